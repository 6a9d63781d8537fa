/** Mirrors the page's tools in the browser's own WebMCP, if that permits it and the gateway need not enforce their rules. */

import type { Params } from "../host/json-rpc";
import { call, type Registry, type Tool } from "./registry";

export interface NativeContext {
  registerTool(tool: unknown, options: { signal: AbortSignal }): unknown;
}

/** Returns a function that updates the browser's list; to be called after each change. */
export function mirrorNatively(
  registry: Registry,
  native: NativeContext,
  isOffered: (name: string) => boolean,
  beginCall: () => () => void,
): () => void {
  const mirrored = new Map<Tool, AbortController>();

  async function add(tool: Tool): Promise<void> {
    const controller = new AbortController();
    mirrored.set(tool, controller);
    const execute = (input: Params, client?: { signal?: AbortSignal }): Promise<unknown> => {
      const ended = beginCall();
      return call(tool, input, client?.signal).finally(ended);
    };
    try {
      await native.registerTool({ ...tool.definition, execute }, { signal: controller.signal });
    } catch {
      // An opaque frame without `allow="tools"` is refused; tools are still offered in other ways.
    }
  }

  return () => {
    const wanted = new Set(registry.all().filter((tool) => isOffered(tool.definition.name)));
    for (const [tool, controller] of mirrored) {
      if (wanted.has(tool)) continue;
      mirrored.delete(tool);
      controller.abort();
    }
    for (const tool of wanted) if (!mirrored.has(tool)) void add(tool);
  };
}
