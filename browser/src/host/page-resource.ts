/** The page of an app, as the gateway or a host page has it. */
import type { McpUiResourceMeta } from "@modelcontextprotocol/ext-apps/app-bridge";
import { fromBase64 } from "../view/base64";
import type { BridgeView } from "./bridge-view";

/**
 * An app to show; `sandbox` is the proxy's signed address for it alone, if it has one, and `document` the address of its
 * page on an origin of its own. `tool` is the tool whose result the app shows.
 */
export interface Page {
  html: string;
  document: string | null;
  meta: McpUiResourceMeta;
  sandbox: string | null;
  tool: string | null;
}

/** The `_meta` key with the gateway's instructions to show an app, and the one that requests them. */
const SHOWN = "webmcp-gateway/shown";
const SHOW = "webmcp-gateway/show";

/** The app's page, read over its own view. */
export async function readPage(open: Pick<BridgeView, "call" | "resource">): Promise<Page> {
  const result = await open.call("resources/read", { uri: open.resource, _meta: { [SHOW]: true } });
  const contents = Array.isArray(result["contents"]) ? result["contents"] : [];
  const content = contents[0] as { text?: unknown; blob?: unknown; _meta?: { ui?: McpUiResourceMeta } } | undefined;
  const html = typeof content?.blob === "string" ? new TextDecoder().decode(fromBase64(content.blob)) : content?.text;
  if (typeof html !== "string") throw new TypeError(`${open.resource} is no text`);
  const said = (result["_meta"] as { [SHOWN]?: Partial<Page> & { ui?: McpUiResourceMeta } } | undefined)?.[SHOWN];
  return { html, meta: said?.ui ?? content?._meta?.ui ?? {}, sandbox: said?.sandbox ?? null, document: said?.document ?? null, tool: said?.tool ?? null };
}
