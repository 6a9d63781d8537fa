/** `document.modelContext` as WebMCP specifies it, with the names of earlier drafts that pages still use. */

import { isObject, type Params } from "./json-rpc";
import { execute, type Definition, type Execute, type Registry, type Tool } from "./registry";

const NAME = /^[A-Za-z0-9_.-]{1,128}$/;

/** What a page hands to `registerTool`. */
interface Registration {
  name?: unknown;
  title?: unknown;
  description?: unknown;
  inputSchema?: unknown;
  annotations?: unknown;
  execute?: unknown;
  /** The name of `execute` in earlier drafts. */
  handler?: unknown;
}

/** The window that the tools belong to. */
interface Scope {
  location: { origin: string };
}

interface Listed {
  name: string;
  title: string;
  description: string;
  inputSchema: Params | null;
  annotations?: Params;
  origin: string;
  window: unknown;
}

function invalid(message: string): DOMException {
  return new DOMException(message, "InvalidStateError");
}

function schema(given: unknown): Params {
  if (given === undefined) return { type: "object", properties: {} };
  if (!isObject(given)) throw new TypeError("inputSchema must be an object");
  const json = JSON.stringify(given);
  if (json === undefined) throw new TypeError("inputSchema cannot be written as JSON");
  // MCP demands `type: "object"`; WebMCP leaves it to the page.
  return { type: "object", ...(JSON.parse(json) as Params) };
}

function readTool(given: Registration | null | undefined): Tool {
  if (typeof given !== "object" || given === null) throw new TypeError("registerTool takes an object");
  const { title, annotations } = given;
  const run = given.execute ?? given.handler;
  if (given.name === undefined) throw new TypeError("a tool needs a name");
  if (given.description === undefined) throw new TypeError("a tool needs a description");
  if (typeof run !== "function") throw new TypeError("a tool needs a function execute");
  const name = String(given.name);
  if (!NAME.test(name)) throw invalid(`Invalid tool name: ${name}`);
  const description = String(given.description);
  if (!description) throw invalid("Description is required");
  const definition: Definition = { name, description, inputSchema: schema(given.inputSchema) };
  if (title !== undefined) definition.title = String(title);
  if (isObject(annotations)) definition.annotations = JSON.parse(JSON.stringify(annotations)) as Params;
  // Called as a method of what the page handed in, as it may read `this`.
  return { definition, execute: run.bind(given) as Execute };
}

function readInput(input: unknown): Params {
  const value: unknown = typeof input === "string" ? JSON.parse(input) : (input ?? {});
  if (!isObject(value)) throw new TypeError("the input of a tool is an object");
  return JSON.parse(JSON.stringify(value)) as Params;
}

function toText(value: unknown): string | null {
  return typeof value === "string" ? value : (JSON.stringify(value) ?? null);
}

function listed({ definition }: Tool, scope: Scope): Listed {
  const { name, title = "", description, inputSchema, annotations } = definition;
  return {
    ...(JSON.parse(JSON.stringify({ name, title, description, inputSchema, annotations })) as Omit<Listed, "window">),
    origin: scope.location.origin,
    window: scope,
  };
}

/** The object for `document.modelContext`. It holds no reference through which the page reaches more than its tools. */
export function createModelContext(registry: Registry, scope: Scope): EventTarget {
  const target = new EventTarget();
  let handler: ((event: Event) => unknown) | null = null;
  let provided: Tool[] = [];
  let announced = false;

  function add(given: unknown, signal?: AbortSignal): Tool {
    const tool = readTool(given as Registration);
    if (registry.has(tool.definition.name)) throw invalid(`Duplicate tool name: ${tool.definition.name}`);
    signal?.throwIfAborted();
    registry.add(tool);
    signal?.addEventListener("abort", () => registry.remove(tool), { once: true });
    return tool;
  }

  function clear(): void {
    provided.forEach(registry.remove);
    provided = [];
  }

  registry.onChange(() => {
    if (announced) return;
    announced = true;
    queueMicrotask(() => {
      announced = false;
      target.dispatchEvent(new Event("toolchange"));
    });
  });
  target.addEventListener("toolchange", (event) => handler?.call(target, event));

  const members = {
    /** Takes effect at once; the promise only tells of errors, as in the browser's own. `unregister` is of earlier drafts. */
    registerTool(tool: unknown, options?: { signal?: AbortSignal }): Promise<void> & { unregister(): void } {
      let added: Tool | undefined;
      const done = (async () => {
        added = add(tool, options?.signal);
      })();
      return Object.assign(done, { unregister: () => added && registry.remove(added) });
    },
    async getTools(): Promise<Listed[]> {
      return registry.all().map((tool) => listed(tool, scope));
    },
    async executeTool(tool: { name?: unknown }, input?: unknown, options?: { signal?: AbortSignal }): Promise<string | null> {
      const known = isObject(tool) ? registry.get(String(tool["name"])) : undefined;
      if (!known) throw new TypeError("executeTool takes a tool that getTools() gave");
      return toText(await execute(known, readInput(input), options?.signal ?? new AbortController().signal));
    },
    unregisterTool(name: string): void {
      const tool = registry.get(String(name));
      if (tool) registry.remove(tool);
    },
    provideContext(context: { tools?: unknown[] } = {}): void {
      clear();
      provided = (context.tools ?? []).map((tool) => add(tool));
    },
    clearContext: clear,
  };
  for (const [name, value] of Object.entries(members)) {
    Object.defineProperty(target, name, { value, writable: true, configurable: true });
  }
  Object.defineProperties(target, {
    ontoolchange: {
      get: () => handler,
      set: (value: unknown) => (handler = typeof value === "function" ? (value as typeof handler) : null),
      configurable: true,
      enumerable: true,
    },
    [Symbol.toStringTag]: { value: "ModelContext", configurable: true },
  });
  return target;
}

/** Puts `context` where pages look for it; configurable, as libraries that build on it replace it. */
export function installModelContext(context: EventTarget): void {
  for (const place of [document, navigator]) {
    Object.defineProperty(place, "modelContext", { value: context, configurable: true, enumerable: true, writable: true });
  }
}
