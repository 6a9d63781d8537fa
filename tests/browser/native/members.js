/**
 * Each member of WebMCP as a page sees it: attributes of properties, conversion of arguments, errors, promises, events, results.
 * Gives observations by label. What a conforming page cannot make use of is left out: where Chromium 156 crashes (a Symbol as
 * a tool's result, the context of a document that is not shown), and whether a call that is aborted at once begins, which differs
 * from run to run there.
 */
async () => {
  const seen = {};
  const show = (value) => {
    try {
      return typeof value === "object" || value === undefined ? (JSON.stringify(value) ?? "undefined") : `${typeof value} ${String(value)}`;
    } catch {
      return "no JSON";
    }
  };
  const failed = (how, error) => [how, error?.name ?? "", error?.message ?? show(error), error instanceof DOMException];
  const see = async (label, run) => {
    let given;
    if (label in seen) throw new Error(`twice: ${label}`);
    try {
      given = run();
    } catch (error) {
      seen[label] = failed("throws", error);
      return;
    }
    if (typeof given?.then !== "function") seen[label] = show(given);
    else seen[label] = await given.then((value) => ["resolves", show(value)], (error) => failed("rejects", error));
  };
  const tick = (time = 30) => new Promise((go) => setTimeout(go, time));
  const context = document.modelContext;
  let count = 0;
  const tool = (more) => ({ name: `n${count++}`, description: "d", execute: () => 1, ...more });
  const find = async (name) => (await context.getTools()).find((one) => one.name === name);
  const listed = async (name) => {
    const one = await find(name);
    return one && { ...one, window: one.window === window, origin: one.origin === location.origin };
  };
  const circle = {};
  circle.self = circle;
  const throwing = (key) => ({ get [key]() { throw new RangeError(`read ${key}`); } });
  const aborted = (...reason) => AbortSignal.abort(...reason);

  // The interfaces
  const describe = (owner, key) => {
    const found = Object.getOwnPropertyDescriptor(owner, key);
    if (!found) return "absent";
    const functions = ["get", "set", "value"].filter((part) => typeof found[part] === "function").map((part) => [part, found[part].name, found[part].length]);
    return [functions, found.set === undefined, found.writable, found.enumerable, found.configurable];
  };
  for (const [name, members] of Object.entries({
    ModelContext: ["ontoolchange", "ontoolactivated", "ontoolcancel", "registerTool", "getTools", "executeTool", "constructor"],
    ToolActivatedEvent: ["toolName", "constructor"],
    ToolCancelEvent: ["toolName", "constructor"],
    SubmitEvent: ["agentInvoked", "respondWith", "constructor"],
    Document: ["modelContext"],
  })) {
    const owner = window[name];
    await see(`${name}`, () => [describe(window, name), owner.length, owner.name, Object.getPrototypeOf(owner).name, Object.getPrototypeOf(owner.prototype).constructor.name, Object.getOwnPropertyDescriptor(owner, "prototype").writable]);
    await see(`${name} as text`, () => [Object.prototype.toString.call(owner.prototype), describe(owner.prototype, Symbol.toStringTag)]);
    for (const member of members) await see(`${name}.prototype.${member}`, () => describe(owner.prototype, member));
    await see(`names of ${name}.prototype`, () => Object.keys(owner.prototype).filter((key) => name !== "Document" || /model|tool/i.test(key)).sort());
  }
  await see("document.modelContext", () => [String(context), context === document.modelContext, Object.hasOwn(document, "modelContext"), context instanceof ModelContext, context instanceof EventTarget, context.constructor === ModelContext]);
  const { get } = Object.getOwnPropertyDescriptor(Document.prototype, "modelContext");
  for (const receiver of [undefined, null, {}, 1, window, document.body, Document.prototype]) await see(`modelContext of ${receiver === Document.prototype ? "the prototype" : String(receiver)}`, () => String(get.call(receiver)));
  await see("modelContext is not assigned", () => { "use strict"; document.modelContext = 1; });
  await see("new ModelContext", () => new ModelContext());
  for (const [method, ...given] of [["registerTool", tool()], ["getTools"], ["executeTool", {}]]) await see(`${method} of another`, () => ModelContext.prototype[method].call({}, ...given));
  await see("ontoolchange of another", () => Object.getOwnPropertyDescriptor(ModelContext.prototype, "ontoolchange").get.call({}));
  await see("handlers", () => {
    const found = [];
    const handle = () => 0;
    for (const value of [handle, null, handle, 1, handle, undefined]) found.push((context.ontoolchange = value, context.ontoolchange === handle), context.ontoolchange === null);
    return found;
  });

  // registerTool
  for (const given of [[], [undefined], [null], [1], ["x"], [true], [Symbol.iterator], [() => 1], [[]], [{}]]) await see(`registerTool(${given.map((one) => String(typeof one) + String(one)).join()})`, () => context.registerTool(...given));
  const known = ["name", "title", "description", "inputSchema", "annotations", "execute", "readOnlyHint", "untrustedContentHint", "consequentialHint", "debugging", "signal", "exposedTo", "toJSON", "type", "window", "origin"];
  const order = [];
  const spy = (object, prefix) => new Proxy(object, { get: (target, key) => (known.includes(key) && order.push(prefix + key), Reflect.get(target, key)) });
  await see("order of registerTool", async () => {
    await context.registerTool(spy({ name: "spy", title: "T", description: "d", inputSchema: spy({ type: "object" }, "schema."), annotations: spy({ readOnlyHint: true }, "annotations."), execute: () => 1 }, ""), spy({ exposedTo: [] }, "options."));
    return order.splice(0);
  });
  const worded = { toString: () => "worded" };
  const values = {
    name: [undefined, null, 1, true, {}, worded, "", "a b", "é", "x".repeat(128), "x".repeat(129), "a.b-c_d", "a/b", Symbol.iterator, "\ud800", throwing("toString")],
    title: [undefined, null, 1, "", worded, {}, Symbol.iterator, "\ud800x", "Title"],
    description: [undefined, null, 1, "", " ", worded, {}, Symbol.iterator, "\ud800x"],
    inputSchema: [undefined, null, 1, "x", "{}", true, [], {}, () => 1, { type: "string" }, { a: undefined }, { toJSON: () => undefined }, { toJSON: () => ({ b: 1 }) }, { toJSON() { throw new RangeError("json"); } }, circle, { a: 1n }, Symbol.iterator, throwing("a"), { type: "object", properties: { n: { type: "number" } }, required: ["n"] }],
    annotations: [undefined, null, 1, "x", true, {}, [], () => 1, Symbol.iterator, { readOnlyHint: 1 }, { readOnlyHint: "no" }, { readOnlyHint: null }, { readOnlyHint: undefined }, { untrustedContentHint: true, consequentialHint: true, debugging: true }, { destructiveHint: true, title: "x" }, throwing("readOnlyHint")],
    execute: [undefined, null, 1, "x", {}, { handleEvent() {} }, class {}, async () => 1, () => 1],
    outputSchema: [{ type: "object" }, null, 1],
    unknown: [1],
  };
  for (const [key, all] of Object.entries(values)) {
    for (const [at, value] of all.entries()) {
      const made = tool({ [key]: value });
      await see(`registerTool with ${key} ${at}`, () => context.registerTool(made));
      if (seen[`registerTool with ${key} ${at}`][0] === "resolves") await see(`listed with ${key} ${at}`, () => listed(typeof made.name === "string" && key !== "name" ? made.name : String(made.name)));
    }
  }
  for (const key of ["name", "title", "description", "inputSchema", "annotations", "execute"]) {
    const made = tool();
    delete made[key];
    await see(`a getter ${key} that throws`, () => context.registerTool(Object.defineProperties(made, Object.getOwnPropertyDescriptors(throwing(key)))));
  }
  const options = [undefined, null, 1, "x", true, Symbol.iterator, [], {}, () => 1, { signal: undefined }, { signal: null }, { signal: {} }, { signal: 1 }, { signal: new AbortController() }, { signal: aborted() }, { signal: aborted("why") }, { signal: aborted(new RangeError("r")) }, throwing("signal"), throwing("exposedTo"),
    ...[undefined, null, [], "x", 1, {}, [1], new Set(["https://a.example"]), { [Symbol.iterator]: 1 }, [Symbol.iterator]].map((exposedTo) => ({ exposedTo }))];
  for (const [at, one] of options.entries()) await see(`registerTool with options ${at}`, () => context.registerTool(tool(), one));
  for (const origin of ["x", "*", "null", "", " https://a ", "//a", "https://a.example", "https://a.example/path", "HTTPS://A", "https://user@x", "http://a.example", "http://localhost:1", "http://a.localhost", "http://127.0.0.2", "http://127.1", "http://10.0.0.1", "http://[::1]", "wss://x", "ws://x", "ws://localhost", "ftp://x", "file:///x", "data:text/html,x", "about:blank", "about:srcdoc", "blob:https://a/x", "blob:http://a/x", "javascript:1", "https://", "urn:x", "https://a\ud800"]) await see(`exposedTo ${origin}`, () => context.registerTool(tool(), { exposedTo: [origin] }));
  await context.registerTool(tool({ name: "taken" }));
  for (const [label, more, option] of [
    ["name, description", { name: "a b", description: "" }], ["taken, description", { name: "taken", description: "" }], ["taken, schema", { name: "taken", inputSchema: circle }],
    ["name, schema", { name: "a b", inputSchema: circle }], ["description, schema", { description: "", inputSchema: circle }], ["name, signal", { name: "a b" }, { signal: aborted("s") }],
    ["taken, signal", { name: "taken" }, { signal: aborted("s") }], ["description, signal", { description: "" }, { signal: aborted("s") }], ["schema, signal", { inputSchema: circle }, { signal: aborted("s") }],
    ["signal, exposedTo", {}, { signal: aborted("s"), exposedTo: ["x"] }], ["name, exposedTo", { name: "a b" }, { exposedTo: ["x"] }], ["taken, exposedTo", { name: "taken" }, { exposedTo: ["x"] }], ["schema, exposedTo", { inputSchema: circle }, { exposedTo: ["x"] }],
    ["execute, options", { execute: 1 }, 1], ["name, options", { name: Symbol.iterator }, 1],
  ]) await see(`two errors: ${label}`, () => context.registerTool(tool(more), option));
  await see("aborted at once", () => { const end = new AbortController(); const done = context.registerTool(tool({ name: "brief" }), { signal: end.signal }); end.abort(new RangeError("brief")); return done; });
  await see("aborted before it is registered", async () => { const end = new AbortController(); const done = context.registerTool(tool({ name: "brief" }), { signal: end.signal }); await 0; end.abort(new RangeError("brief")); return done; });
  await see("aborted later", async () => { const end = new AbortController(); await context.registerTool(tool({ name: "later" }), { signal: end.signal }); end.abort(); return [await listed("later"), await context.registerTool(tool({ name: "later" }))]; });

  const aborts = async (label, act) => see(label, async () => { const end = new AbortController(), name = `ends${count++}`; await act(end, name); await tick(); return (await find(name))?.description ?? "gone"; });
  await aborts("an abort event of the page", async (end, name) => { await context.registerTool(tool({ name }), { signal: end.signal }); end.signal.dispatchEvent(new Event("abort")); });
  await aborts("an abort after an event of the page", async (end, name) => { await context.registerTool(tool({ name }), { signal: end.signal }); end.signal.dispatchEvent(new Event("abort")); end.abort(); });
  await aborts("an abort whose event is stopped", async (end, name) => { end.signal.addEventListener("abort", (event) => event.stopImmediatePropagation()); await context.registerTool(tool({ name }), { signal: end.signal }); end.abort(); });
  await aborts("registered anew in an earlier listener of the abort", async (end, name) => { end.signal.addEventListener("abort", () => context.registerTool(tool({ name, description: "anew" }))); await context.registerTool(tool({ name }), { signal: end.signal }); end.abort(); });
  await aborts("registered anew in a later listener of the abort", async (end, name) => { await context.registerTool(tool({ name }), { signal: end.signal }); end.signal.addEventListener("abort", () => context.registerTool(tool({ name, description: "anew" }))); end.abort(); });
  await aborts("a signal with a method of the page", async (end, name) => { end.signal.addEventListener = () => { throw new Error("mine"); }; await context.registerTool(tool({ name }), { signal: end.signal }); end.abort(); });
  await aborts("a signal that follows another", async (end, name) => { await context.registerTool(tool({ name }), { signal: AbortSignal.any([end.signal]) }); end.abort(); });
  const origins = { *[Symbol.iterator]() { yield "https://a.example"; yield { toString: () => "https://b.example/path" }; } };
  const iterator = (next) => ({ [Symbol.iterator]: () => next });
  for (const [label, list] of Object.entries({ origins, ends: { *[Symbol.iterator]() { yield "https://a.example"; throw new RangeError("mid"); } }, closes: { *[Symbol.iterator]() { try { yield Symbol.iterator; } finally { order.push("closed"); } } }, none: iterator(1), step: iterator({ next: () => 1 }), throws: iterator({ next() { throw new RangeError("next"); } }), no: { [Symbol.iterator]: null }, throwing: throwing(Symbol.iterator), like: { length: 1, 0: "https://a.example" }, bytes: new Uint8Array(1), boxed: new String("x") })) {
    if (label !== "throwing") await see(`exposedTo as a list that ${label}`, () => context.registerTool(tool(), { exposedTo: list }));
    await see(`fromOrigins as a list that ${label}`, async () => (await context.getTools({ fromOrigins: list })).length > 0);
  }
  await see("lists that were closed", () => order.splice(0));
  for (const [label, inputSchema] of Object.entries({ date: new Date(0), boxed: new String("x"), number: { toJSON: () => 1 }, null: { toJSON: () => null }, list: [1], map: new Map(), revocable: new Proxy({ type: "object" }, {}) })) {
    await context.registerTool(tool({ name: `schema-${label}`, inputSchema }));
    await see(`listed with a schema that is a ${label}`, () => listed(`schema-${label}`));
  }
  for (const method of ["registerTool", "getTools", "executeTool"]) for (const receiver of [undefined, null, 1]) await see(`${method} called on ${receiver}`, () => context[method].call(receiver, tool()));
  for (const more of [Object.create(tool({ name: "inherits", title: "T" })), Object.freeze(tool({ name: "frozen", annotations: Object.freeze({ readOnlyHint: true }) })), new Proxy(tool({ name: "proxy" }), {})]) {
    await context.registerTool(more);
    await see(`listed: ${more.name}`, () => listed(more.name));
  }
  await see("a handler that is an object", () => { const handler = { handleEvent() {} }; context.ontoolchange = handler; const kept = context.ontoolchange === handler; context.ontoolchange = null; return kept; });
  await see("the order of members", () => { const found = []; for (const key in context) found.push(key); return found.slice(0, 6); });

  // getTools
  for (const [at, given] of [undefined, null, 1, "x", [], {}, { fromOrigins: undefined }, { fromOrigins: null }, { fromOrigins: "x" }, { fromOrigins: ["x"] }, { fromOrigins: ["http://a.example"] }, { fromOrigins: ["https://a.example"] }, { fromOrigins: {} }, throwing("fromOrigins")].entries()) await see(`getTools with ${at}`, async () => Array.isArray(await context.getTools(given)));
  for (const name of ["zeta", "alpha", "Beta", "_m"]) await context.registerTool(tool({ name, title: `Of ${name}` }));
  await see("the order of tools", async () => (await context.getTools()).map(({ name }) => name).filter((name) => /^(zeta|alpha|Beta|_m|n1|n10|n2)$/.test(name)));
  const alpha = await find("alpha");
  await see("a listed tool", async () => [Object.keys(alpha), Object.getPrototypeOf(alpha) === Object.prototype, Object.isFrozen(alpha), alpha === (await find("alpha")), describe(alpha, "name")]);

  // executeTool
  const calls = [];
  await context.registerTool({ name: "echo", description: "d", execute(...given) { calls.push([given.length, show(given[0]), Object.keys(given[1]), given[1].signal instanceof AbortSignal, Object.getPrototypeOf(given[1]) === Object.prototype]); return given[0]; } });
  const echo = await find("echo");
  for (const [at, input] of [undefined, null, 1, "x", true, [], {}, { a: undefined, b: 1 }, { a: 1n }, { toJSON: () => 1 }, { toJSON() { throw new RangeError("json"); } }, () => 1, new Map(), new Date(0), Symbol.iterator, circle, throwing("a"), { deep: [{ a: [1, null] }] }].entries()) await see(`executeTool with input ${at}`, () => context.executeTool(echo, input));
  await see("executeTool with JSON", () => context.executeTool(echo, '{"a":1}'));
  await see("executeTool()", () => context.executeTool());
  await see("executeTool(tool)", () => context.executeTool(echo));
  await see("what execute is given", () => calls.slice(0, 5));
  const own = { name: "echo", description: "d", origin: location.origin, window };
  const without = (key) => { const { [key]: _, ...rest } = own; return rest; };
  for (const [label, given] of Object.entries({
    undefined, null: null, number: 1, text: "echo", function: () => 1, empty: {}, least: own, ...Object.fromEntries(Object.keys(own).map((key) => [`no ${key}`, without(key)])),
    "another name": { ...own, name: "alpha" }, "unknown name": { ...own, name: "nobody" }, "another description": { ...own, description: "e" }, "null window": { ...own, window: null }, "no window's window": { ...own, window: {} }, "another window": { ...own, window: Object.assign(document.body.appendChild(document.createElement("iframe"))).contentWindow },
    "schema number": { ...own, inputSchema: 1 }, "schema object": { ...own, inputSchema: {} }, "annotations number": { ...own, annotations: 1 }, "title Symbol": { ...own, title: Symbol.iterator },
    ...Object.fromEntries(["", "nope", "data:x", "about:blank", "https://a", "blob:https://a/b", undefined, 1].map((origin) => [`origin ${origin}`, { ...own, origin }])),
  })) await see(`executeTool of ${label}`, () => context.executeTool(given, {}));
  await see("the origin null", () => context.executeTool({ ...own, origin: "null" }, {}));
  for (const [label, input] of Object.entries({ null: { toJSON: () => null }, text: { toJSON: () => '{"a":1}' }, boxed: new Number(5), date: new Date(0), list: [1, [2]], map: new Map([[1, 2]]), prototype: JSON.parse('{"__proto__":{"x":1}}') })) await see(`input that becomes ${label}`, () => context.executeTool(echo, input));
  await see("order of executeTool", async () => { await context.executeTool(spy({ ...echo }, "tool."), spy({}, "input."), spy({}, "options.")); return order.splice(0); });
  for (const [at, given] of [undefined, null, 1, "x", [], {}, { signal: undefined }, { signal: null }, { signal: {} }, { signal: aborted() }, { signal: aborted("why") }, { signal: aborted(new RangeError("r")) }].entries()) await see(`executeTool with options ${at}`, () => context.executeTool(echo, {}, given));
  for (const [label, ...given] of [["unknown, input", { ...own, name: "nobody" }, circle], ["signal, input", own, circle, { signal: aborted("s") }], ["signal, unknown", { ...own, name: "nobody" }, {}, { signal: aborted("s") }], ["origin, input", { ...own, origin: "nope" }, circle], ["window, options", { ...own, window: 1 }, {}, 1], ["input, options", own, 1, 1]]) await see(`two errors of executeTool: ${label}`, () => context.executeTool(...given));

  const run = async (label, execute) => {
    const name = `r${count++}`;
    await context.registerTool(tool({ name, execute }));
    const found = await find(name);
    await see(label, () => context.executeTool(found, {}));
  };
  for (const [label, value] of Object.entries({ text: "s", empty: "", four: 4, zero: 0, minus: -0, nan: NaN, infinite: Infinity, no: false, yes: true, null: null, undefined, object: { a: 1 }, array: [1, [2]], function: () => 1, big: 10n, date: new Date(0), map: new Map([[1, 2]]), boxed: new String("so"), circle, json: { toJSON: () => "j" }, nothing: { toJSON: () => undefined }, worse: { toJSON() { throw new RangeError("j"); } }, content: { content: [{ type: "text", text: "t" }] }, failure: { isError: true, content: [] }, response: new Response("x"), lone: "\ud800x" })) {
    await run(`result ${label}`, () => value);
    await run(`promise of ${label}`, async () => value);
  }
  await run("a thenable", () => ({ then: (resolve) => resolve("then") }));
  for (const [label, value] of Object.entries({ error: new Error("boom"), type: new TypeError("t"), dom: new DOMException("m", "NotFoundError"), abort: new DOMException("a", "AbortError"), text: "thrown", undefined, null: null, object: { message: "m" } })) {
    await run(`thrown ${label}`, () => { throw value; });
    await run(`rejected ${label}`, () => Promise.reject(value));
  }
  await see("unregistered before it is called", async () => { const end = new AbortController(); await context.registerTool(tool({ name: "gone" }), { signal: end.signal }); const gone = await find("gone"); end.abort(); return context.executeTool(gone, {}); });
  await see("unregistered while it runs", async () => { const end = new AbortController(); await context.registerTool(tool({ name: "leaves", execute: () => tick().then(() => "all the same") }), { signal: end.signal }); const running = context.executeTool(await find("leaves"), {}); setTimeout(() => end.abort(), 5); return running; });

  // Events
  const log = [];
  for (const type of ["toolchange", "toolactivated", "toolcancel"]) {
    context.addEventListener(type, (event) => log.push([type, event.constructor.name, event.toolName ?? "", event.bubbles, event.cancelable, event.composed, event.target === context]));
    context[`on${type}`] = ({ type }) => log.push(`on${type}`);
    for (const other of [window, document]) other.addEventListener(type, () => log.push("elsewhere"));
  }
  const logged = async (label, run) => {
    await tick();
    log.length = 0;
    await see(label, async () => { await run(); await tick(60); return log.splice(0); });
  };
  await logged("events of two registrations", () => { context.registerTool(tool({ name: "e1" })).then(() => log.push("first")); context.registerTool(tool({ name: "e2" })).then(() => log.push("second")); log.push("at once"); return Promise.resolve().then(() => log.push("soon")); });
  await logged("events of a registration that is refused", () => context.registerTool(tool({ name: "e1" })).catch(() => 0));
  await logged("events of an abort", async () => { const end = new AbortController(); await context.registerTool(tool(), { signal: end.signal }); end.abort(); end.abort(); });
  await logged("events of an abort at once", () => { const end = new AbortController(); context.registerTool(tool(), { signal: end.signal }).catch(({ name }) => log.push(name)); end.abort(); });
  await context.registerTool(tool({ name: "logs", execute: () => { log.push("execute"); return 1; } }));
  const logs = await find("logs");
  await logged("events of a call", () => { const done = context.executeTool(logs, {}).then(() => log.push("result")); log.push("at once"); return done; });
  await logged("events of a call that is over", async () => { const end = new AbortController(); await context.executeTool(logs, {}, { signal: end.signal }); end.abort(); });
  await logged("events of a call with an input that is none", () => context.executeTool(logs, { toJSON: () => 1 }).catch(() => 0));
  await logged("events of a call that never begins", () => context.executeTool(logs, {}, { signal: aborted() }).catch(() => 0));
  await context.registerTool(tool({ name: "hangs", execute: (_, { signal }) => new Promise((resolve) => signal.addEventListener("abort", () => { log.push(["aborted", signal.reason.name]); resolve("x"); })) }));
  const hangs = await find("hangs");
  await logged("events of a call that is aborted", async () => {
    const end = new AbortController();
    const done = context.executeTool(hangs, {}, { signal: end.signal }).catch((error) => log.push(["rejected", error.message]));
    await tick();
    end.abort(new RangeError("mine"));
    log.push("abort");
    await done;
  });
  for (const Event of [ToolActivatedEvent, ToolCancelEvent]) {
    await see(`new ${Event.name}()`, () => new Event());
    await see(`new ${Event.name} of a Symbol`, () => new Event(Symbol.iterator));
    await see(`new ${Event.name} for a Symbol`, () => new Event("x", { toolName: Symbol.iterator }));
    for (const given of [["x"], ["x", {}], ["x", null], ["x", { toolName: "n", bubbles: true }], ["x", { toolName: null }], ["x", { toolName: 1 }], ["x", 1], [1]]) await see(`new ${Event.name}(${show(given)})`, () => { const made = new Event(...given); return [made.type, made.toolName, made.bubbles, made.cancelable, String(made), made instanceof window.Event]; });
    await see(`toolName of another than a ${Event.name}`, () => Object.getOwnPropertyDescriptor(Event.prototype, "toolName").get.call({}));
  }
  await see("isTrusted of an event", async () => { const next = new Promise((resolve) => context.addEventListener("toolchange", resolve, { once: true })); await context.registerTool(tool()); return (await next).isTrusted; });
  let receiver;
  await context.registerTool(tool({ name: "this", execute() { "use strict"; receiver = this; } }));
  await context.executeTool(await find("this"), {});
  await see("this of execute", () => typeof receiver);
  await see("styles of a form that is filled", () => [":tool-form-active", ":tool-submit-active"].map((name) => CSS.supports(`selector(${name})`)));
  await see("names of earlier drafts", () => ["provideContext", "clearContext", "unregisterTool"].map((name) => name in context).concat("modelContext" in navigator));
  await see("agentInvoked", () => [new SubmitEvent("submit").agentInvoked, new SubmitEvent("submit", { agentInvoked: true }).agentInvoked, new SubmitEvent("submit", { agentInvoked: 0 }).agentInvoked, new SubmitEvent("submit") instanceof SubmitEvent]);
  await see("respondWith", () => new SubmitEvent("submit").respondWith(1));
  await see("respondWith()", () => new SubmitEvent("submit").respondWith());
  await see("agentInvoked of another", () => Object.getOwnPropertyDescriptor(SubmitEvent.prototype, "agentInvoked").get.call({}));
  return seen;
}
