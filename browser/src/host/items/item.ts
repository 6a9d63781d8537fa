/** Message items of a chat that show an app (`response_type: "mcp_app"`), and the check that every item passes. */
import type { CallToolResult } from "@modelcontextprotocol/client";

export type DisplayMode = "inline" | "fullscreen" | "pip";
export const DISPLAY_MODES: readonly DisplayMode[] = ["inline", "fullscreen", "pip"];

/** An item of a message, as it is stored with a conversation: plain JSON. */
export interface McpAppItem {
  response_type: "mcp_app";
  /** The name of the app; the panel and the workspace are headed by it. */
  title: string;
  /** The same for each item of the same app instance; at most one of them is open in a panel or in the workspace. */
  mcp_app_id: string;
  /** The name for assistive technology, in place of the title. */
  aria_label?: string | undefined;
  /** Shown in place of an app that cannot be shown. */
  fallback_text?: string | undefined;
  /** A `ui://` or `mcp-app://` resource; not needed beside `resource_html` or `app`. */
  resource_uri?: string | undefined;
  /** The HTML of the resource, if it was read already. */
  resource_html?: string | undefined;
  /** `inline` by default. */
  display_mode?: DisplayMode | undefined;
  tool_name?: string | undefined;
  /** The tool call that opened the app. Without it the app receives no notification of a call. */
  tool_call_id?: string | undefined;
  /** The arguments of the call, once they are complete. */
  tool_input?: Record<string, unknown> | undefined;
  /** The arguments so far, while the model writes them. */
  tool_input_partial?: Record<string, unknown> | undefined;
  /** The result of the call, also one with `isError`. */
  tool_result?: CallToolResult | undefined;
  /** The call was cancelled, for this reason. */
  tool_cancelled?: string | undefined;
  /** An app of the gateway, by its id under `apps:`. */
  app?: string | undefined;
  /** The MCP server of the resource, by its name under `upstreams:` of the gateway. */
  upstream?: string | undefined;
}

/** One fault of an item. */
export interface ItemProblem {
  field: string;
  /** The fault of the field, and what to write. */
  message: string;
}

/** The value is no valid `mcp_app` item; the message has a line for each fault. */
export class McpAppItemError extends TypeError {
  override readonly name = "McpAppItemError";
  readonly problems: readonly ItemProblem[];

  constructor(problems: readonly ItemProblem[]) {
    super(`not a valid mcp_app item:\n${problems.map(({ field, message }) => `${field}: ${message}`).join("\n")}`);
    this.problems = problems;
  }
}

const TEXTS = ["aria_label", "fallback_text", "resource_uri", "resource_html", "tool_name", "tool_call_id", "tool_cancelled", "app", "upstream"] as const;
const OBJECTS = ["tool_input", "tool_input_partial"] as const;
const REQUIRED = {
  title: "write the app's name, which heads its panel and workspace",
  mcp_app_id: "write an id that stays the same when the conversation is loaded again",
};

/** Whether `value` says of itself that it is an item of this kind, valid or not. */
export function isMcpAppItem(value: unknown): boolean {
  return isRecord(value) && value["response_type"] === "mcp_app";
}

/** The item, if it is valid. Throws `McpAppItemError`, which names each faulty field and what to write. */
export function parseMcpAppItem(value: unknown): McpAppItem {
  const problems = isRecord(value) ? problemsOf(value) : [{ field: "item", message: `is ${nameOf(value)}; give an object` }];
  if (problems.length) throw new McpAppItemError(problems);
  return value as McpAppItem;
}

function problemsOf(item: Record<string, unknown>): ItemProblem[] {
  const problems: ItemProblem[] = [];
  const add = (field: string, message: string): void => void problems.push({ field, message });
  const type = item["response_type"];
  if (type !== "mcp_app") add("response_type", `is ${nameOf(type)}; write "mcp_app"`);
  for (const [field, remedy] of Object.entries(REQUIRED)) {
    const text = item[field];
    if (typeof text !== "string" || !text.trim()) add(field, `is ${text === "" ? "empty" : nameOf(text)}; ${remedy}`);
  }
  for (const field of TEXTS) {
    const text = item[field];
    if (isSet(text) && typeof text !== "string") add(field, `is ${nameOf(text)}; write a string, or leave it out`);
  }
  for (const field of OBJECTS) {
    const input = item[field];
    if (isSet(input) && !isRecord(input)) add(field, `is ${nameOf(input)}; write the arguments of the call as an object`);
  }
  checkSource(item, add);
  const mode = item["display_mode"];
  if (isSet(mode) && !DISPLAY_MODES.includes(mode as DisplayMode)) {
    add("display_mode", `is ${nameOf(mode)}; write "inline", "fullscreen" or "pip"`);
  }
  const result = item["tool_result"];
  if (isSet(result) && !(isRecord(result) && (Array.isArray(result["content"]) || isRecord(result["structuredContent"])))) {
    add("tool_result", "is no result of a tool; write an object with `content`, an array, or `structuredContent`, an object");
  }
  return problems;
}

function checkSource(item: Record<string, unknown>, add: (field: string, message: string) => void): void {
  const uri = item["resource_uri"];
  if (typeof uri === "string" && !/^(ui|mcp-app):\/\/./.test(uri)) {
    add("resource_uri", `is ${nameOf(uri)}; write the ui:// or mcp-app:// address of the tool's \`_meta.ui.resourceUri\``);
  }
  if (!isSet(uri) && !isSet(item["resource_html"]) && !isSet(item["app"])) {
    add("resource_uri", "is missing; write it, or `resource_html`, or `app` with the id of an app of the gateway");
  }
  if (item["resource_html"] === "") add("resource_html", "is empty; write the page, or leave the field out and write `resource_uri`");
}

/** Null counts as left out: many databases store it so. */
function isSet(value: unknown): boolean {
  return value !== undefined && value !== null;
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A value as an error message shows it. */
function nameOf(value: unknown): string {
  if (value === undefined) return "missing";
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  if (typeof value === "string") return JSON.stringify(value.length > 60 ? `${value.slice(0, 60)}…` : value);
  return typeof value === "object" ? "an object" : `the ${typeof value} ${String(value)}`;
}
