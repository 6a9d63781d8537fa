/** `document.modelContext` as WebMCP specifies it, with the names of earlier drafts that pages still use. */

import { coalesced } from "./coalesced";
import { defineClass, defineHandler } from "./handlers";
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

/** The errors of WebIDL, which demands these before anything else is looked at. */
function demand(met: boolean, what: string): void {
  if (!met) throw new TypeError(`a tool needs ${what}`);
}

function schema(given: unknown): Params {
  if (given === undefined) return { type: "object", properties: {} };
  const json = isObject(given) ? JSON.stringify(given) : undefined;
  if (json === undefined) throw new TypeError("inputSchema must be a JSON object");
  // MCP demands `type: "object"`; WebMCP leaves it to the page.
  return { type: "object", ...(JSON.parse(json) as Params) };
}

function readTool(given: Registration | null | undefined): Tool {
  // As WebIDL reads a dictionary: getters of a class count, too.
  const { name: called, title, description: said, inputSchema, annotations, execute, handler } = given ?? {};
  const run = execute ?? handler;
  demand(called !== undefined, "a name");
  demand(said !== undefined, "a description");
  demand(typeof run === "function", "a function execute");
  const name = String(called);
  if (!NAME.test(name)) throw invalid(`Invalid tool name: ${name}`);
  const description = String(said);
  if (!description) throw invalid("Description is required");
  const definition: Definition = { name, description, inputSchema: schema(inputSchema) };
  if (title !== undefined) definition.title = String(title);
  if (isObject(annotations)) definition.annotations = JSON.parse(JSON.stringify(annotations)) as Params;
  // Called as a method of what the page handed in, as it may read `this`.
  return { definition, execute: (run as Execute).bind(given) };
}

function readInput(input: unknown): Params {
  const value: unknown = typeof input === "string" ? JSON.parse(input) : input;
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
  let provided: Tool[] = [];

  function add(given: unknown, signal?: AbortSignal): Tool {
    const tool = readTool(given as Registration);
    if (registry.get(tool.definition.name)) throw invalid(`Duplicate tool name: ${tool.definition.name}`);
    signal?.throwIfAborted();
    registry.add(tool);
    signal?.addEventListener("abort", () => registry.remove(tool), { once: true });
    return tool;
  }

  class ModelContext extends EventTarget {
    /** Takes effect at once; the promise only tells of errors, as in the browser's own. `unregister` is of earlier drafts. */
    registerTool(tool: unknown, options: { signal?: AbortSignal } | null = {}): Promise<void> & { unregister(): void } {
      let added: Tool | undefined;
      const done = (async () => {
        added = add(tool, options?.signal);
      })();
      return Object.assign(done, { unregister: () => added && registry.remove(added) });
    }

    async getTools(): Promise<Listed[]> {
      return registry.all().map((tool) => listed(tool, scope));
    }

    async executeTool(tool: { name?: unknown }, input: unknown = {}, options: { signal?: AbortSignal } | null = {}): Promise<string | null> {
      const known = registry.get(tool?.name as string);
      if (!known) throw new TypeError("This tool is not of getTools()");
      return toText(await execute(known, readInput(input), options?.signal));
    }

    unregisterTool(name: string): void {
      const tool = registry.get(String(name));
      if (tool) registry.remove(tool);
    }

    provideContext(context: { tools?: unknown[] } = {}): void {
      this.clearContext();
      provided = (context.tools ?? []).map((tool) => add(tool));
    }

    clearContext(): void {
      provided.forEach(registry.remove);
      provided = [];
    }
  }
  defineHandler(ModelContext.prototype, "toolchange");
  defineClass(ModelContext, "ModelContext");
  const target = new ModelContext();
  // In a task of its own, as of browsers: a listener that registers tools would never end a turn of the event loop.
  registry.onChange(coalesced(() => target.dispatchEvent(new Event("toolchange")), setTimeout));
  return target;
}

/** Puts `context` where pages look for it; configurable, as libraries that build on it replace it. */
export function installModelContext(context: object): void {
  for (const place of [document, navigator]) {
    Object.defineProperty(place, "modelContext", { value: context, configurable: true, enumerable: true, writable: true });
  }
}
