/** The interface between the runtime and its part for `document.modelContext`. */

import type { Params } from "../host/json-rpc";
import type { Definition, Execute, Registry } from "./registry";

/** Updates the browser's own list of tools; to be called after each change. */
export type Mirror = () => void;

/** Exposes the tools to the page; returns the function that mirrors them in the browser's own WebMCP, if there is one. */
export type TakeTools = (
  registry: Registry,
  framed: boolean,
) => ((offered: (name: string) => boolean, began: () => () => void) => Mirror) | undefined;

/** WebMCP for pages whose use of it the packer did not see: registration only, unchecked. */
const registerOnly: TakeTools = (registry, framed) => {
  // An ordinary web site uses the browser's own, if there is one.
  if (!framed && "modelContext" in document) return undefined;
  const modelContext = {
    async registerTool({ execute, ...given }: Params, { signal }: { signal?: AbortSignal } = {}) {
      const definition = { inputSchema: { type: "object" }, ...(JSON.parse(JSON.stringify(given)) as Params) } as unknown as Definition;
      const tool = { definition, execute: execute as Execute };
      registry.add(tool);
      signal?.addEventListener("abort", () => registry.remove(tool));
    },
  };
  for (const place of [document, navigator]) Object.defineProperty(place, "modelContext", { value: modelContext, configurable: true });
  return undefined;
};

/** The part, if the page has it; no script of the page sees it. */
export function takeToolPart(): TakeTools {
  const scope = window as { webmcpGatewayTools?: TakeTools };
  const { webmcpGatewayTools: part = registerOnly } = scope;
  delete scope.webmcpGatewayTools;
  return part;
}
