/** The page's tools in the browser's own WebMCP, where that admits them and the gateway need not enforce their rules. */

import type { Params } from "./json-rpc";
import { call, type Registry, type Tool } from "./registry";

export interface NativeContext {
  registerTool(tool: unknown, options: { signal: AbortSignal }): unknown;
}

/** Gives a function that brings the browser's list in line; to be called after each change. */
export function mirrorNatively(
  registry: Registry,
  native: NativeContext,
  offered: (name: string) => boolean,
  began: () => () => void,
): () => void {
  const mirrored = new Map<Tool, AbortController>();

  async function add(tool: Tool): Promise<void> {
    const controller = new AbortController();
    mirrored.set(tool, controller);
    const execute = (input: Params, client?: { signal?: AbortSignal }): Promise<unknown> => {
      const ended = began();
      return call(tool, input, client?.signal).finally(ended);
    };
    try {
      await native.registerTool({ ...tool.definition, execute }, { signal: controller.signal });
    } catch {
      // An opaque frame without `allow="tools"` is not admitted; the other ways of offering a tool are open.
    }
  }

  return () => {
    const wanted = new Set(registry.all().filter((tool) => offered(tool.definition.name)));
    for (const [tool, controller] of mirrored) {
      if (wanted.has(tool)) continue;
      mirrored.delete(tool);
      controller.abort();
    }
    for (const tool of wanted) if (!mirrored.has(tool)) void add(tool);
  };
}
