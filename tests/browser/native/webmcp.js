/**
 * How a page uses WebMCP, natively and in a view of the same browser: tools come, are called, and go. What each member does with
 * each argument is in `members.js`.
 */
async () => {
  const seen = [];
  const see = (...values) => seen.push(values);
  const failure = async (run) => { try { await run(); return "none"; } catch (error) { return error.name; } };
  const { modelContext } = document;
  see(typeof modelContext, String(modelContext), modelContext instanceof EventTarget, modelContext.constructor.name, modelContext.ontoolchange);
  see(modelContext.registerTool.length, modelContext.getTools.length, modelContext.executeTool.length);

  const next = () => new Promise((resolve) => modelContext.addEventListener("toolchange", resolve, { once: true }));
  const names = async () => (await modelContext.getTools()).map(({ name }) => name).sort();
  const find = async (wanted) => (await modelContext.getTools()).find(({ name }) => name === wanted);
  const tool = (more) => ({ name: "one", description: "The first.", execute: async (input) => ({ got: input }), ...more });
  const add = async (more, options) => {
    const changed = next();
    const given = await modelContext.registerTool(tool(more), options);
    const { type, bubbles, cancelable, constructor } = await changed;
    see(more.name, given === undefined, type, bubbles, cancelable, constructor.name);
  };

  const end = new AbortController();
  const inputSchema = { type: "object", properties: { n: { type: "number" } }, required: ["n"] };
  await add({ title: "One", inputSchema, annotations: { readOnlyHint: true } }, { signal: end.signal });
  const one = await find("one");
  see(Object.keys(one).sort(), one.name, one.title, one.description, one.inputSchema, one.annotations.readOnlyHint, one.origin === origin, one.window === window);
  see(await modelContext.executeTool(one, { n: 1 }), await modelContext.executeTool(one, {}), await modelContext.executeTool(one, { n: "no number" }));

  const wrong = [{}, { name: "" }, { name: "a b" }, { name: "x".repeat(129) }, { name: undefined }, { description: "" }, { description: undefined },
    { execute: undefined }, { execute: "no" }, { inputSchema: "no" }, { inputSchema: 1 }];
  for (const more of wrong) see(Object.keys(more), await failure(() => modelContext.registerTool(tool(more))));
  see(await failure(() => modelContext.registerTool()), await failure(() => modelContext.registerTool(null)));
  see(await failure(() => modelContext.registerTool(tool({ name: "late" }), { signal: AbortSignal.abort() })), await names());
  see(await failure(() => modelContext.executeTool(null, {})), await failure(() => modelContext.executeTool()));

  const results = { text: "text", number: 4, object: { a: [1] }, none: null, content: { content: [{ type: "text", text: "x" }] }, no: false };
  for (const [name, value] of Object.entries(results)) {
    await add({ name, execute: async () => value });
    see(await modelContext.executeTool(await find(name), {}));
  }
  await add({ name: "throws", execute() { throw new RangeError("sold out"); } });
  see((await failure(async () => modelContext.executeTool(await find("throws"), {}))) !== "none");

  const aborted = [];
  await add({ name: "hangs", execute: (_, { signal }) => new Promise(() => signal.addEventListener("abort", () => aborted.push(signal.reason.name))) });
  const stop = new AbortController();
  const running = failure(async () => modelContext.executeTool(await find("hangs"), {}, { signal: stop.signal }));
  setTimeout(() => stop.abort(), 50);
  see(await running);
  while (!aborted.length) await new Promise((go) => setTimeout(go));
  see(aborted);

  const changed = next();
  end.abort();
  await changed;
  see(await names(), (await failure(() => modelContext.executeTool(one, {}))) !== "none");
  await add({ title: "again" });
  see(await names());

  see(await failure(() => modelContext.registerTool(tool())), (await find("one")).title, (await names()).filter((name) => name === "one").length);
  const leave = new AbortController();
  let finish;
  await add({ name: "leaves", outputSchema: { type: "object" }, execute: () => new Promise((resolve) => (finish = resolve)) }, { signal: leave.signal });
  const leaves = await find("leaves");
  see(Object.keys(leaves).includes("outputSchema"));
  const going = failure(async () => see(await modelContext.executeTool(leaves, {})));
  while (!finish) await new Promise((go) => setTimeout(go));
  leave.abort();
  see((await names()).includes("leaves"), await failure(() => modelContext.registerTool(tool({ name: "leaves" }))));
  finish("done all the same");
  see(await going);
  const quick = new AbortController();
  void modelContext.registerTool(tool({ name: "quick" }), { signal: quick.signal });
  quick.abort();
  quick.abort();
  see(await failure(() => modelContext.registerTool(tool({ name: "quick" }))), (await names()).includes("quick"));
  see(await failure(() => modelContext.registerTool(tool({ name: "signalled" }), { signal: {} })), await failure(() => modelContext.registerTool(tool({ name: "nulled" }), null)));
  see(await failure(() => modelContext.executeTool(leaves, {}, { signal: AbortSignal.abort(new RangeError("no")) })));
  const frozen = Object.freeze(tool({ name: "frozen" }));
  see(await failure(() => modelContext.registerTool(frozen)));
  class Kind { name = "kind"; description = "A class."; execute() { return 1; } }
  await modelContext.registerTool(new Kind());
  see(await modelContext.executeTool(await find("kind"), {}));
  await modelContext.registerTool(tool({ name: "twice", execute: async (input) => input }));
  const twice = await find("twice");
  see(await Promise.all([modelContext.executeTool(twice, { n: 1 }), modelContext.executeTool(twice, { n: 2 })]), await modelContext.executeTool(twice, {}, null));
  return seen;
}
