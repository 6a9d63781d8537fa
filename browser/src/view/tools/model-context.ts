/** `document.modelContext` as WebMCP specifies and Chromium implements it, with the names of earlier drafts that pages still use. */

import { attempt } from "../attempt";
import {
  toAbortSignal, toAnnotations, toCallback, demandSecure, dictionary, createFail, isObjectLike, toJson, toObject, originOf, toDomString, toStrings, toUsvString, wellFormed, toWindow, type Fail,
} from "./conversions";
import { defineClass, defineHandler } from "../http/handlers";
import { isObject, type Params } from "../host/json-rpc";
import { createRegistry, execute, type Definition, type Registry, type Tool } from "./registry";
import { task } from "../tasks";
import { ToolActivatedEvent, ToolCancelEvent } from "./tool-events";

const NAME = /^[A-Za-z0-9_.-]{1,128}$/;
/** Hints of MCP that WebMCP does not define; the page's definition has them. */
const MCP_HINTS = ["title", "destructiveHint", "idempotentHint", "openWorldHint"];
const UNKNOWN = "The operation failed for an unknown transient reason (e.g. out of memory).";
const FAILED = "Tool was executed but the invocation failed. For example, the script function threw an error";

/** The window that the tools belong to. */
interface Scope {
  location: { origin: string };
}

interface ListedTool {
  annotations?: { [hint: string]: boolean };
  description: string;
  inputSchema?: unknown;
  name: string;
  origin: string;
  title: string;
  window: unknown;
}

/** The data for `getTools` that is not in a tool's MCP definition. */
interface PageDefinition {
  schema: string | undefined;
  hints: { [hint: string]: boolean } | undefined;
  signal: AbortSignal | undefined;
}

const { addEventListener } = EventTarget.prototype;

/** Calls `run` once `signal` is aborted, which no listener of the page can stop or imitate (DOM, 3.2 "add an algorithm"). */
function onAbort(signal: AbortSignal | undefined, run: () => void): void {
  if (!signal) return;
  let done = false;
  const listen = (): void => {
    if (done || !signal.aborted) return;
    done = true;
    run();
  };
  for (const one of [signal, AbortSignal.any([signal])]) addEventListener.call(one, "abort", listen);
}

type Client = { signal: AbortSignal; requestUserInteraction?: (ask: () => unknown) => unknown };

const invalidStateError = (message: string): DOMException => new DOMException(message, "InvalidStateError");
const unknownError = (message: string): DOMException => new DOMException(message, "UnknownError");

/** MCP demands `type: "object"`; WebMCP leaves it to the page. */
function objectSchema(text: string | undefined): Params | undefined {
  const schema: unknown = text === undefined ? undefined : JSON.parse(text);
  return schema === undefined ? undefined : { type: "object", ...(isObject(schema) && schema) };
}

/** The page's annotations, with the booleans that WebMCP makes of them. */
function mcpAnnotations(given: unknown, hints: { [hint: string]: boolean }): Params {
  const written = Object(given) as Params;
  const known = Object.fromEntries(Object.entries(hints).filter(([name, value]) => value || name in written));
  const more = Object.fromEntries(MCP_HINTS.map((name) => [name, written[name]]));
  return { ...known, ...((attempt(() => JSON.parse(JSON.stringify(more))) as Params | undefined) ?? {}) };
}

/** A tool's result as text (ECMA-262, JSON.stringify; text is unchanged, and values without JSON become their string). */
function toText(value: unknown): string {
  const text = typeof value === "object" || typeof value === "function" ? String(JSON.stringify(value)) : String(value);
  return wellFormed(text) || "Operation succeeded";
}

/** The object for `document.modelContext`. It holds no reference through which the page reaches more than its tools. */
export function createModelContext(registry: Registry, scope: Scope, active = true): EventTarget {
  const KEY = Symbol();
  const givens = new WeakMap<Tool, PageDefinition>();
  let provided: Tool[] = [];

  /** A tool's function, with the events around its run. */
  function withEvents(name: string, run: Tool["execute"]): Tool["execute"] {
    const dispatchLater = (event: Event): void => queueMicrotask(() => target.dispatchEvent(event));
    return (input, client) => {
      const { signal } = client;
      const dispatchCancel = (): void => dispatchLater(new ToolCancelEvent("toolcancel", { toolName: name }));
      dispatchLater(new ToolActivatedEvent("toolactivated", { toolName: name }));
      signal.addEventListener("abort", dispatchCancel, { once: true });
      const result = (async () => run(input, client))();
      const stopListening = (): void => signal.removeEventListener("abort", dispatchCancel);
      result.then(stopListening, stopListening);
      return result;
    };
  }

  function add(tool: unknown, options: unknown, fail: Fail): { added: Tool; signal: AbortSignal | undefined } {
    const member = dictionary(tool, "ModelContextTool", fail, false);
    let hinted: unknown;
    const hints = member("annotations", (value, failHere) => toAnnotations((hinted = value), failHere));
    const description = wellFormed(member("description", toDomString, true));
    // `handler` is the name of `execute` in earlier drafts.
    const run = member("execute", toCallback) ?? member("handler", toCallback) ?? member("execute", toCallback, true);
    const given = member("inputSchema", toObject);
    const name = member("name", toDomString, true);
    const title = member("title", toUsvString);
    const option = dictionary(options, "ModelContextRegisterToolOptions", fail);
    const exposedTo = option("exposedTo", toStrings);
    const signal = option("signal", toAbortSignal);

    if (!NAME.test(name)) throw invalidStateError("Invalid tool name");
    const registered = registry.get(name);
    // In a listener of the abort that ends it.
    if (registered && givens.get(registered)?.signal?.aborted) registry.remove(registered);
    else if (registered) throw invalidStateError("Duplicate tool name");
    if (!description) throw invalidStateError("Description is required");
    const schema = given && toJson(given, "invalid input schema", fail);
    signal?.throwIfAborted();
    // Only the page itself can see its tools here: the list has no effect beyond this check.
    demandSecure(exposedTo ?? [], "exposedTo");

    const definition: Definition = { name, description, inputSchema: objectSchema(schema) ?? { type: "object", properties: {} } };
    if (title !== undefined) definition.title = title;
    if (hints) definition.annotations = mcpAnnotations(hinted, hints);
    // Of mcp-b, and of MCP.
    const output = attempt(() => objectSchema(JSON.stringify((tool as { outputSchema?: unknown }).outputSchema)));
    if (output) definition.outputSchema = output;
    const added: Tool = {
      definition,
      execute(input, { signal }) {
        const client: Client = { signal };
        // Of an earlier draft, in which a tool requested the person's attention from the browser.
        Object.defineProperty(client, "requestUserInteraction", { value: (ask: () => unknown) => ask() });
        // Called as a method of the page's object, as libraries do, some of which use `this`.
        return run.call(tool, input, client);
      },
    };
    givens.set(added, { schema, hints, signal });
    registry.add(added);
    onAbort(signal, () => registry.remove(added));
    return { added, signal };
  }

  function describeTool(tool: Tool): ListedTool {
    const { name, title = "", description, inputSchema, annotations: written } = tool.definition;
    const { schema, hints } = givens.get(tool) ?? { schema: JSON.stringify(inputSchema), hints: written && toAnnotations(written, createFail("getTools")) };
    return {
      ...(hints && { annotations: { ...hints } }),
      description,
      ...(schema !== undefined && { inputSchema: JSON.parse(schema) as unknown }),
      name,
      origin: scope.location.origin,
      title,
      window: scope,
    };
  }

  /** Runs a tool for the page itself. An abort rejects the promise at once, and reaches the tool in a later task. */
  function run(name: string, here: boolean, input: string, signal: AbortSignal | undefined): Promise<string> {
    return new Promise((resolve, reject) => {
      const controller = new AbortController();
      onAbort(signal, () => {
        reject(signal!.reason);
        task(() => controller.abort());
      });
      task(() => {
        if (signal?.aborted) return;
        const tool = here && registry.get(name);
        if (!tool) return reject(unknownError(UNKNOWN));
        const value: unknown = JSON.parse(input);
        if (!isObjectLike(value)) {
          target.dispatchEvent(new ToolActivatedEvent("toolactivated", { toolName: name }));
          return reject(unknownError("Failed to parse input arguments"));
        }
        execute(tool, value as Params, controller.signal).then(toText).then(resolve, (error: unknown) => {
          if (!controller.signal.aborted) console.warn(`WebMCP tool execution failed: ${attempt(() => String(error))}`);
          // A form's own error tells why it was refused.
          reject(error instanceof DOMException && error.name === "UnknownError" ? error : unknownError(FAILED));
        });
      });
    });
  }

  class ModelContext extends EventTarget {
    #here = true;

    constructor(...given: unknown[]) {
      if (given[0] !== KEY) throw new TypeError("Failed to construct 'ModelContext': Illegal constructor");
      super();
    }

    /** Begins an operation, with at least `least` arguments. */
    static #begin(target: unknown, operation: string, given: unknown[], least = 0): Fail {
      const fail = createFail(operation);
      if (!(#here in Object(target))) fail("Illegal invocation");
      if (given.length < least) fail("1 argument required, but only 0 present.");
      if (!active) throw invalidStateError("The document is not active.");
      return fail;
    }

    /** Takes effect at once; the promise only reports errors, as in the browser's own. `unregister` is of earlier drafts. */
    registerTool(tool: unknown, ..._options: unknown[]): Promise<void> & { unregister(): void } {
      const given = [...arguments];
      let made: Tool | undefined;
      const done = (async () => {
        const { added, signal } = add(tool, given[1], ModelContext.#begin(this, "registerTool", given, 1));
        made = added;
        await new Promise<void>((resolve, reject) => {
          onAbort(signal, () => reject(signal!.reason));
          task(resolve);
        });
      })();
      return Object.defineProperty(done as Promise<void> & { unregister(): void }, "unregister", { value: () => made && registry.remove(made) });
    }

    async getTools(...given: unknown[]): Promise<ListedTool[]> {
      const fail = ModelContext.#begin(this, "getTools", given);
      demandSecure(dictionary(given[0], "ModelContextGetToolOptions", fail)("fromOrigins", toStrings) ?? [], "fromOrigins");
      // As in Chromium, a tool whose schema is no object in JSON is not listed.
      return registry.all().map(describeTool).filter(({ inputSchema }) => inputSchema === undefined || isObjectLike(inputSchema)).sort((one, other) => (one.name < other.name ? -1 : 1));
    }

    async executeTool(tool: unknown, ...more: unknown[]): Promise<string | null> {
      const fail = ModelContext.#begin(this, "executeTool", [...arguments], 1);
      const member = dictionary(tool, "RegisteredTool", fail, false);
      member("annotations", toAnnotations);
      member("description", toDomString, true);
      member("inputSchema", toObject);
      const name = member("name", toDomString, true);
      const origin = member("origin", toUsvString, true);
      member("title", toDomString);
      const here = member("window", toWindow, true) === scope;
      const signal = dictionary(more[1], "ExecuteToolOptions", fail)("signal", toAbortSignal);
      // mcp-b passes the input as JSON.
      const input = typeof more[0] === "string" ? attempt(() => JSON.parse(more[0] as string) as unknown) : (more[0] ?? (more[0] === undefined && {}));
      if (!isObjectLike(input)) return fail("invalid input object: value is not an object");
      const same = originOf(origin, scope.location.origin) === scope.location.origin;
      const text = toJson(input, "invalid input object", fail);
      signal?.throwIfAborted();
      return run(name, here && same, text, signal);
    }

    unregisterTool(name: string): void {
      const tool = registry.get(String(name));
      if (tool) registry.remove(tool);
    }

    provideContext(context: { tools?: unknown[] } = {}): void {
      this.clearContext();
      provided = (context.tools ?? []).map((tool) => add(tool, undefined, createFail("provideContext")).added);
    }

    clearContext(): void {
      provided.forEach(registry.remove);
      provided = [];
    }
  }
  const { prototype } = ModelContext;
  for (const type of ["toolchange", "toolactivated", "toolcancel"]) defineHandler(prototype, type);
  // In the browser's order: its attributes come first.
  for (const name of ["executeTool", "getTools", "registerTool"] as const) {
    const found = Object.getOwnPropertyDescriptor(prototype, name);
    Reflect.deleteProperty(prototype, name);
    Object.defineProperty(prototype, name, { ...found, enumerable: true });
  }
  defineClass(ModelContext, "ModelContext");
  const target = new ModelContext(KEY);
  // All of them: tools of the page's own client are listed here, too.
  const known = new WeakSet<Tool>();
  registry.onChange(() => {
    for (const tool of registry.all()) {
      if (known.has(tool)) continue;
      known.add(tool);
      tool.execute = withEvents(tool.definition.name, tool.execute);
    }
  });
  // In a separate task, as in browsers: a listener that registers tools would otherwise never let the current task end.
  registry.onChange(() => task(() => target.dispatchEvent(new Event("toolchange"))));
  return target;
}

/** Installs `context` at its standard places, and its interfaces in `window`. */
export function installModelContext(context: EventTarget): void {
  const contexts = new WeakMap<object, EventTarget>([[document, context]]);
  const { get: typeOf } = Object.getOwnPropertyDescriptor(Node.prototype, "nodeType")!;
  const places = {
    get modelContext(): EventTarget {
      if (typeOf!.call(this) !== Node.DOCUMENT_NODE) throw new TypeError("Illegal invocation");
      const known = contexts.get(this) ?? createModelContext(createRegistry(), window, false);
      contexts.set(this, known);
      return known;
    },
  };
  Object.defineProperties(Document.prototype, Object.getOwnPropertyDescriptors(places));
  for (const value of [context.constructor as { name: string }, ToolActivatedEvent, ToolCancelEvent]) {
    Object.defineProperty(window, value.name, { value, configurable: true, writable: true });
  }
}
