/** The view runtime's API for pages, as functions that work with and without it. */

import type { Params } from "../view/host/json-rpc";
import type { ToolResult } from "../view/tools/results";
import type { Interaction, PageSide, Tier } from "../view/host/tiers";

export type { Interaction, PageSide as PageSide, Tier, ToolResult };

declare global {
  interface Window {
    /** Defined in pages with the view runtime. */
    webmcpGateway?: PageSide;
  }
}

const runtime = (): PageSide | undefined => (typeof window === "undefined" ? undefined : window.webmcpGateway);

// On the app's own site no runtime sets it for style sheets.
if (typeof document !== "undefined" && !runtime()) document.documentElement.dataset["tier"] = "standalone";

/** `standalone` without the view runtime, undefined until the host has answered. */
export function getTier(): Tier | undefined {
  const side = runtime();
  return side ? side.tier : "standalone";
}

/** Calls `listener` after each change; the returned function unregisters it. */
export function onTierChange(listener: (tier: Tier | undefined) => void): () => void {
  const notify = (): void => listener(getTier());
  document.addEventListener("tierchange", notify);
  return () => document.removeEventListener("tierchange", notify);
}

/** Calls the page's own tool `name`, else, unless `localOnly`, the server's, or reports the call to the model. Never rejects. */
export async function safeCallTool(name: string, args: Params = {}, options: { localOnly?: boolean } = {}): Promise<ToolResult> {
  const side = runtime();
  if (side) return side.safeCallTool(name, args, options);
  return { content: [{ type: "text", text: `Nobody here can call the tool ${name}` }], isError: true };
}

/** Reports a person's action to the model; false if that is impossible. */
export async function reportInteraction(interaction: Interaction): Promise<boolean> {
  return (await runtime()?.reportInteraction(interaction)) ?? false;
}
