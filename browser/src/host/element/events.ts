/** The events of `<mcp-app>`: all bubble, and leave shadow trees. */
import type {
  McpUiAppCapabilities,
  McpUiDownloadFileRequest,
  McpUiMessageRequest,
  McpUiSizeChangedNotification,
  McpUiUpdateModelContextRequest,
} from "@modelcontextprotocol/ext-apps/app-bridge";
import type { JsonObject } from "../../mux";
import type { SurfaceEvent } from "../items/surface";
import type { DisplayMode } from "./options";

/** In the detail of a cancelable event: the host's own answer, instead of the default. */
export interface Respond<Answer> {
  respondWith(answer: Answer | Promise<Answer>): void;
}

/** The details of the events, by name. */
export interface McpAppEvents {
  "mcp-app-initialize": { appInfo: { name: string; version: string } | null; appCapabilities: McpUiAppCapabilities; protocolVersion: string };
  "mcp-app-initialized": { appCapabilities: McpUiAppCapabilities };
  "mcp-app-size-changed": McpUiSizeChangedNotification["params"];
  "mcp-app-request-display-mode": { mode: DisplayMode; from: DisplayMode; userActivated: boolean } & Respond<DisplayMode>;
  "mcp-app-display-mode-changed": { mode: DisplayMode; from: DisplayMode };
  "mcp-app-before-open": SurfaceEvent;
  "mcp-app-open": SurfaceEvent;
  "mcp-app-before-close": SurfaceEvent;
  "mcp-app-close": SurfaceEvent;
  "mcp-app-message": McpUiMessageRequest["params"] & Respond<boolean>;
  "mcp-app-update-model-context": McpUiUpdateModelContextRequest["params"] & Respond<boolean>;
  "mcp-app-open-link": { url: string } & Respond<boolean>;
  "mcp-app-download-file": McpUiDownloadFileRequest["params"] & Respond<boolean>;
  "mcp-app-tools-call": { name: string; arguments: JsonObject } & Respond<JsonObject>;
  "mcp-app-resources-read": { uri: string } & Respond<JsonObject>;
  "mcp-app-log": { level: string; logger?: string | undefined; data?: unknown };
  "mcp-app-error": { code: ErrorCode; message: string };
  "mcp-app-teardown": { reason: string };
  "mcp-app-tools-changed": Record<string, never>;
  "mcp-app-sandbox-proxy-ready": Record<string, never>;
  "mcp-app-sandbox-resource-ready": { uri: string };
  "mcp-app-notifications-message": { level: string; logger?: string | undefined; data?: unknown };
}

export type EventName = keyof McpAppEvents;

/** The reason for which an app is not shown as it should be. */
export type ErrorCode = "bad-attribute" | "not-opened" | "timeout" | "ended" | "bad-context" | "handler-failed";

/** The events whose default the host may prevent. */
export const CANCELABLE: ReadonlySet<EventName> = new Set([
  "mcp-app-request-display-mode",
  "mcp-app-before-open",
  "mcp-app-before-close",
  "mcp-app-message",
  "mcp-app-update-model-context",
  "mcp-app-open-link",
  "mcp-app-download-file",
  "mcp-app-tools-call",
  "mcp-app-resources-read",
  "mcp-app-teardown",
]);

/** Dispatch an event; false if a listener prevented its default. */
export function announce<Name extends EventName>(target: EventTarget, name: Name, detail: McpAppEvents[Name]): boolean {
  return target.dispatchEvent(new CustomEvent(name, { bubbles: true, composed: true, cancelable: CANCELABLE.has(name), detail }));
}

type Answer<Name extends EventName> = McpAppEvents[Name] extends Respond<infer Value> ? Value : never;

/**
 * Dispatch an event that a listener may answer. Returns that answer, `"prevented"` if a listener only prevented the
 * default, or undefined.
 */
export async function consult<Name extends EventName>(
  target: EventTarget,
  name: Name,
  detail: Omit<McpAppEvents[Name], "respondWith">,
): Promise<Answer<Name> | "prevented" | undefined> {
  let own: { answer: Answer<Name> | Promise<Answer<Name>> } | undefined;
  // The first answer counts.
  const respondWith = (answer: Answer<Name> | Promise<Answer<Name>>): void => void (own ??= { answer });
  const isDefault = announce(target, name, { ...detail, respondWith } as unknown as McpAppEvents[Name]);
  const given = own as { answer: Answer<Name> | Promise<Answer<Name>> } | undefined;
  if (given) return given.answer;
  return isDefault ? undefined : "prevented";
}
