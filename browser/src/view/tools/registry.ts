/** The tools that the page registered, by name. */

import { rejectOnAbort } from "../abort";
import { objectOf, type Params } from "../host/json-rpc";
import { toolFailure, toolResult, type ToolResult } from "./results";

export type Execute = (input: Params, client: { signal: AbortSignal }) => unknown;

/** A tool as `tools/list` of MCP describes it. */
export interface Definition {
  name: string;
  title?: string;
  description: string;
  inputSchema: Params;
  outputSchema?: Params;
  annotations?: Params;
}

export interface Tool {
  definition: Definition;
  execute: Execute;
}

export interface Registry {
  get(name: string): Tool | undefined;
  all(): Tool[];
  add(tool: Tool): void;
  remove(tool: Tool): void;
  /** `listener` is called after each change. */
  onChange(listener: () => void): void;
}

export function createRegistry(): Registry {
  const tools = new Map<string, Tool>();
  const listeners: (() => void)[] = [];
  const notifyChange = (): void => listeners.forEach((listener) => listener());
  return {
    get: (name) => tools.get(name),
    all: () => [...tools.values()],
    add(tool) {
      tools.set(tool.definition.name, tool);
      notifyChange();
    },
    remove(tool) {
      if (tools.get(tool.definition.name) !== tool) return;
      tools.delete(tool.definition.name);
      notifyChange();
    },
    onChange: (listener) => void listeners.push(listener),
  };
}

/** The raw result of the page's function for `input`. Rejects with the signal's reason as soon as that is aborted. */
export async function execute(tool: Tool, input: Params, signal = new AbortController().signal): Promise<unknown> {
  signal.throwIfAborted();
  return rejectOnAbort((async () => tool.execute(input, { signal }))(), signal);
}

/** The result in MCP's form; errors of the page become `isError`. */
export async function call(tool: Tool, input: unknown, signal?: AbortSignal): Promise<ToolResult> {
  try {
    return toolResult(await execute(tool, objectOf(input), signal));
  } catch (error) {
    return toolFailure(error);
  }
}
