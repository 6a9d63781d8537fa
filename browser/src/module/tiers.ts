/** What the view runtime offers to pages, as functions that work with and without it. */

import type { Params } from "../view/json-rpc";
import type { ToolResult } from "../view/results";
import type { Interaction, PageSide, Tier } from "../view/tiers";

export type { Interaction, PageSide, Tier, ToolResult };

declare global {
  interface Window {
    /** There in pages with the view runtime. */
    webmcpGateway?: PageSide;
  }
}

const runtime = (): PageSide | undefined => (typeof window === "undefined" ? undefined : window.webmcpGateway);

// On the app's own site nobody else tells its style sheets.
if (typeof document !== "undefined" && !runtime()) document.documentElement.dataset["tier"] = "standalone";

/** `standalone` without the view runtime, undefined as long as the host has not answered. */
export function getTier(): Tier | undefined {
  const side = runtime();
  return side ? side.tier : "standalone";
}

/** Calls `listener` after each change; what this gives ends that. */
export function onTierChange(listener: (tier: Tier | undefined) => void): () => void {
  const told = (): void => listener(getTier());
  document.addEventListener("tierchange", told);
  return () => document.removeEventListener("tierchange", told);
}

/** The page's own tool `name`, else, unless `localOnly`, the server's, or a report of the call to the model. Never rejects. */
export async function safeCallTool(name: string, args: Params = {}, options: { localOnly?: boolean } = {}): Promise<ToolResult> {
  const side = runtime();
  if (side) return side.safeCallTool(name, args, options);
  return { content: [{ type: "text", text: `Nobody here can call the tool ${name}` }], isError: true };
}

/** Tells the model what a person did; false where nobody could be told. */
export async function reportInteraction(interaction: Interaction): Promise<boolean> {
  return (await runtime()?.reportInteraction(interaction)) ?? false;
}
