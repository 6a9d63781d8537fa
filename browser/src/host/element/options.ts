/** The attributes of `<mcp-app>`, and the values that they stand for. */

/** Display modes of MCP Apps. */
export const DISPLAY_MODES = ["inline", "fullscreen", "pip"] as const;
export type DisplayMode = (typeof DISPLAY_MODES)[number];

/** Seconds within which a page must send `ui/notifications/initialized`, by default. */
export const TIMEOUT = 30;

/** The content of an attribute: text, JSON, seconds, or words separated by spaces. */
type Kind = "text" | "json" | "seconds" | "words" | "mode";

interface Attribute {
  readonly kind: Kind;
  readonly property: string;
  /** Whether a change shows the app anew. */
  readonly remounts?: true;
  readonly doc: string;
}

/** The attributes by name; each reflects no property, but sets it. */
export const ATTRIBUTES = {
  gateway: { kind: "text", property: "gateway", remounts: true, doc: "The gateway's URL; empty for the page's own origin. Without it, the host's handlers answer." },
  app: { kind: "text", property: "app", remounts: true, doc: "The id of an app of the gateway." },
  upstream: { kind: "text", property: "upstream", remounts: true, doc: "The name of an upstream of the gateway, with `resource-uri`." },
  "resource-uri": { kind: "text", property: "resourceUri", remounts: true, doc: "The `ui://` or `mcp-app://` address of the page." },
  "resource-html": { kind: "text", property: "resourceHtml", remounts: true, doc: "The page itself, if it was read already. Over a gateway it must be the gateway's own, byte for byte." },
  "resource-meta": { kind: "json", property: "resourceMeta", remounts: true, doc: "The `_meta.ui` of `resource-html`: its `csp` and `permissions`." },
  "sandbox-url": { kind: "text", property: "sandboxUrl", remounts: true, doc: "The address of the sandbox proxy, on another origin than the page; a gateway has its own." },
  tools: { kind: "json", property: "tools", doc: "Tools with their visibility: the page may call only those with `app`. Without it, the server decides." },
  "display-mode": { kind: "mode", property: "displayMode", doc: "`inline`, `fullscreen` or `pip`; falls back to `inline` if the app does not declare the mode." },
  "display-modes": { kind: "words", property: "displayModes", doc: "The modes that the host offers; by default all three." },
  title: { kind: "text", property: "title", doc: "The app's title. Required." },
  "aria-label": { kind: "text", property: "ariaLabel", doc: "The name for assistive technology; by default the title." },
  "fallback-text": { kind: "text", property: "fallbackText", doc: "The text that stands for the app if it cannot be shown." },
  "mcp-app-id": { kind: "text", property: "mcpAppId", doc: "A stable id of the app in its conversation." },
  "tool-call-id": { kind: "text", property: "toolCallId", doc: "The id of the tool call that the app shows. Without it, the page is notified of no call." },
  "tool-name": { kind: "text", property: "toolName", doc: "The name of that tool." },
  "tool-input": { kind: "json", property: "toolInput", doc: "The complete arguments of that call; sent once." },
  "tool-result": { kind: "json", property: "toolResult", doc: "The result of that call; sent after the input, once." },
  "host-context": { kind: "json", property: "hostContext", doc: "Members of the host context that replace the measured ones." },
  "allowed-links": { kind: "words", property: "allowedLinks", doc: "Origins, or patterns such as `https://*.example.com/docs/*`, of links that may be opened. By default all, each after a confirmation." },
  capabilities: { kind: "words", property: "capabilities", doc: "Capabilities that the host has beyond its handlers: `message`, `update-model-context`." },
  sizing: { kind: "text", property: "sizing", doc: "`content`: the height follows the page; `fill`: the page fills the element." },
  timeout: { kind: "seconds", property: "timeout", doc: "Seconds that the page may take to be initialized; 30 by default." },
} as const satisfies Record<string, Attribute>;

export type AttributeName = keyof typeof ATTRIBUTES;

/** The value of an attribute; undefined if it is absent. Throws TypeError that names the attribute. */
export function parseAttribute(name: AttributeName, text: string | null): unknown {
  if (text === null) return undefined;
  switch (ATTRIBUTES[name].kind) {
    case "json":
      return parseJson(name, text);
    case "seconds":
      return parseSeconds(name, text);
    case "words":
      return text.split(/\s+/).filter((word) => word !== "");
    case "mode":
      return parseMode(name, text);
    case "text":
      return text;
  }
}

/** The value of a property. Throws TypeError that names the attribute. */
export function parseProperty(name: AttributeName, given: unknown): unknown {
  if (given === undefined || given === null) return undefined;
  if (name === "tools") return parseTools(given);
  switch (ATTRIBUTES[name].kind) {
    case "mode":
      return parseMode(name, given);
    case "seconds":
      return parseSeconds(name, given);
    case "words":
      return typeof given === "string" ? parseAttribute(name, given) : parseWords(name, given);
    case "text":
      return parseText(name, given);
    case "json":
      return given;
  }
}

/** A text, also of a number or a URL. Throws TypeError for anything else, which no app could read. */
function parseText(name: string, given: unknown): string {
  if (typeof given !== "string" && typeof given !== "number" && !(given instanceof URL)) throw new TypeError(`${name}: a text`);
  return String(given);
}

function parseWords(name: string, given: unknown): readonly string[] {
  if (!Array.isArray(given) || !given.every((word) => typeof word === "string")) throw new TypeError(`${name}: a list of texts`);
  return given as readonly string[];
}

/** A display mode. Throws TypeError for another text. */
export function parseMode(name: string, text: unknown): DisplayMode {
  const mode = DISPLAY_MODES.find((one) => one === text);
  if (mode === undefined) throw new TypeError(`${name}: ${DISPLAY_MODES.join(", ")}, and not ${JSON.stringify(text)}`);
  return mode;
}

function parseJson(name: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new TypeError(`${name}: it is not JSON: ${(error as Error).message}`);
  }
}

/** Seconds. Throws TypeError. */
export function parseSeconds(name: string, given: unknown): number {
  const seconds = Number(given);
  if (!(seconds > 0 && seconds <= 3600)) throw new TypeError(`${name}: seconds, more than 0 and at most 3600, and not ${JSON.stringify(given)}`);
  return seconds;
}

/** A tool as the host lists it. */
export interface ListedTool {
  name: string;
  visibility?: readonly string[];
  _meta?: { ui?: { visibility?: readonly string[] } } & Record<string, unknown>;
}

/** The reason for which the page may not call the tool `name`; null if it may (MCP Apps, `visibility`). */
export function refusalOfTool(tools: readonly ListedTool[] | undefined, name: unknown): string | null {
  if (tools === undefined) return null;
  const tool = tools.find((one) => one.name === name);
  if (!tool) return `There is no tool ${JSON.stringify(String(name).slice(0, 128))} for this app.`;
  const visibility = tool.visibility ?? tool._meta?.ui?.visibility ?? ["model", "app"];
  return Array.isArray(visibility) && visibility.includes("app") ? null : `The tool ${tool.name} is for the model only.`;
}

/** The tools in a value of the host. Throws TypeError. */
export function parseTools(given: unknown): readonly ListedTool[] | undefined {
  if (given === undefined || given === null) return undefined;
  const isTool = (one: unknown): boolean => typeof one === "object" && one !== null && typeof (one as ListedTool).name === "string";
  if (!Array.isArray(given) || !given.every(isTool)) throw new TypeError("tools: a list of {name, visibility}");
  return given as readonly ListedTool[];
}

/** Whether a link is one of the allowed ones: an origin, or a pattern with `*`. Without a list, each is. */
export function isAllowedLink(allowed: readonly string[] | undefined, url: URL): boolean {
  if (allowed === undefined) return true;
  return allowed.some((pattern) => {
    const whole = /^[a-z]+:\/\/[^/]+$/.test(pattern) ? `${pattern}/*` : pattern;
    const [, origin = "", path = ""] = /^([a-z]+:\/\/[^/]+)(\/.*)$/.exec(whole) ?? [];
    return matches(origin, url.origin, "[^/.@:]+(?:\\.[^/.@:]+)*") && matches(path, url.pathname + url.search, ".*");
  });
}

function matches(pattern: string, text: string, star: string): boolean {
  const source = pattern.split("*").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return pattern !== "" && new RegExp(`^${source.join(star)}$`, "s").test(text);
}
