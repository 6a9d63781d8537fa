/** Between the runtime and the part of it with `document.modelContext`. */

import type { Params } from "./json-rpc";
import type { Definition, Execute, Registry } from "./registry";

/** Brings the browser's own list of tools in line; to be called after each change. */
export type Mirror = () => void;

/** Shows the tools to the page; gives what mirrors them in the browser's own WebMCP, where there is one. */
export type TakeTools = (
  registry: Registry,
  framed: boolean,
) => ((offered: (name: string) => boolean, began: () => () => void) => Mirror) | undefined;

/** All of WebMCP that a page has whose packer did not see that it uses it: registering, unchecked. */
const registeringAlone: TakeTools = (registry, framed) => {
  // An ordinary web site has the browser's own where there is one.
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

/** The part, where the page has it; no script of the page sees it. */
export function takeToolPart(): TakeTools {
  const scope = window as { webmcpGatewayTools?: TakeTools };
  const { webmcpGatewayTools: part = registeringAlone } = scope;
  delete scope.webmcpGatewayTools;
  return part;
}
