/** Notifications to an app about the model's call that opens it (MCP Apps, `ui/notifications/tool-*`). */
import type { AppBridge } from "@modelcontextprotocol/ext-apps/app-bridge";
import type { JsonObject } from "../mux";

/** One notification; `tool-input-partial` is for hosts whose model streams its output. */
export type ToolNotice =
  | { is: "tool-input"; params: Parameters<AppBridge["sendToolInput"]>[0] }
  | { is: "tool-input-partial"; params: Parameters<AppBridge["sendToolInputPartial"]>[0] }
  | { is: "tool-result"; params: Parameters<AppBridge["sendToolResult"]>[0] }
  | { is: "tool-cancelled"; params: Parameters<AppBridge["sendToolCancelled"]>[0] };

const NAME = /^ui\/notifications\/(tool-(?:input|input-partial|result|cancelled))$/;

/** For a page that a person opened: there are no arguments. Only a page whose tool was called has a result. */
export const OPENED_BY_PERSON: ToolNotice = { is: "tool-input", params: { arguments: {} } };

/** The notice in a notification of the gateway, with params as in MCP Apps. */
export function noticeOf(message: JsonObject): ToolNotice | null {
  const name = NAME.exec(String(message["method"]))?.[1];
  return name ? ({ is: name, params: message["params"] ?? {} } as unknown as ToolNotice) : null;
}

/** Notify the page. */
export function sendNotice(apps: AppBridge, notice: ToolNotice): Promise<void> {
  switch (notice.is) {
    case "tool-input":
      return apps.sendToolInput(notice.params);
    case "tool-input-partial":
      return apps.sendToolInputPartial(notice.params);
    case "tool-result":
      return apps.sendToolResult(notice.params);
    case "tool-cancelled":
      return apps.sendToolCancelled(notice.params);
  }
}
