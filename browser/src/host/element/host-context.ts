/** The host context of MCP Apps, measured on the page around an app, with updates when it changes. */
import type { McpUiHostContext, McpUiStyleVariableKey } from "@modelcontextprotocol/ext-apps/app-bridge";
import { DISPLAY_MODES, type DisplayMode } from "./options";

/** Bytes of the JSON of a host's own context, beyond which a member is left out. */
const MAX_CONTEXT = 256 * 1024;
/** Members of a host's own context. */
const MAX_MEMBERS = 1000;
/** Problems of a context that are named; the others are counted. */
const MAX_PROBLEMS = 5;
/** Milliseconds between two updates. */
const UPDATE_INTERVAL = 50;
/** The largest height in pixels of an app in the flow. */
export const MAX_HEIGHT = 10_000;

const THEMED = ["primary", "secondary", "tertiary", "inverse", "ghost", "info", "danger", "success", "warning", "disabled"] as const;
const RINGS = ["primary", "secondary", "inverse", "info", "danger", "success", "warning"] as const;
const TEXTS = ["xs", "sm", "md", "lg"] as const;
const HEADINGS = ["xs", "sm", "md", "lg", "xl", "2xl", "3xl"] as const;

/** The names of style variables (MCP Apps, theming): a host page sets them as custom properties, and apps receive them. */
export const STYLE_VARIABLES: readonly McpUiStyleVariableKey[] = [
  ...THEMED.flatMap((name) => [`--color-background-${name}`, `--color-text-${name}`, `--color-border-${name}`] as const),
  ...RINGS.map((name) => `--color-ring-${name}` as const),
  "--font-sans",
  "--font-mono",
  ...(["normal", "medium", "semibold", "bold"] as const).map((name) => `--font-weight-${name}` as const),
  ...TEXTS.flatMap((name) => [`--font-text-${name}-size`, `--font-text-${name}-line-height`] as const),
  ...HEADINGS.flatMap((name) => [`--font-heading-${name}-size`, `--font-heading-${name}-line-height`] as const),
  ...(["xs", "sm", "md", "lg", "xl", "full"] as const).map((name) => `--border-radius-${name}` as const),
  "--border-width-regular",
  "--shadow-hairline",
  ...(["sm", "md", "lg"] as const).map((name) => `--shadow-${name}` as const),
];

/** The mode and the place in which the app is shown. */
export interface Placement {
  displayMode?: DisplayMode;
  availableDisplayModes?: readonly DisplayMode[];
  /** Whether the app has all of the element's height, or determines it. */
  fills?: boolean;
}

/**
 * The host context of an app in `element`: theme, style variables, sizes, locale, device.
 *
 * Outside of a browser, only what is known there.
 */
export function buildMcpHostContext(element?: Element | null, { displayMode = "inline", availableDisplayModes, fills = false }: Placement = {}): McpUiHostContext {
  const general: McpUiHostContext = {
    displayMode,
    availableDisplayModes: [...(availableDisplayModes ?? ["inline"])],
    platform: "web",
    timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
  };
  if (typeof window === "undefined") return general;
  const shown = element ?? document.documentElement;
  const style = getComputedStyle(shown);
  return {
    ...general,
    theme: themeOf(shown, style),
    styles: { variables: styleVariables(shown, style) },
    ...(element && { containerDimensions: dimensions(element, style, fills) }),
    locale: navigator.language,
    userAgent: navigator.userAgent,
    platform: isMobile() ? "mobile" : "web",
    deviceCapabilities: { touch: matches("(any-pointer: coarse)"), hover: matches("(any-hover: hover)") },
    safeAreaInsets: safeAreaInsets(),
  };
}

/** Calls `update` after anything that the context contains may have changed, until `signal` aborts. */
export function watchHostContext(element: Element, update: () => void, signal: AbortSignal): void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const soon = (): void => {
    timer ??= setTimeout(() => {
      timer = undefined;
      if (!signal.aborted) update();
    }, UPDATE_INTERVAL);
  };
  const sizes = new ResizeObserver(soon);
  sizes.observe(element);
  const attributes = new MutationObserver(soon);
  // Pages switch their theme by an attribute of the root, the body, or a part around the app.
  for (let above: Element | null = element; above; above = parentOf(above)) {
    attributes.observe(above, { attributeFilter: ["class", "style", "data-theme", "theme", "data-color-scheme", "lang"] });
  }
  for (const query of ["(prefers-color-scheme: dark)", "(any-pointer: coarse)", "(any-hover: hover)"]) {
    matchMedia(query).addEventListener("change", soon, { signal });
  }
  for (const type of ["resize", "orientationchange", "languagechange"]) window.addEventListener(type, soon, { signal });
  signal.addEventListener("abort", () => {
    clearTimeout(timer);
    sizes.disconnect();
    attributes.disconnect();
  });
}

/**
 * A host's own context as JSON. What JSON has not is left out, and so is what apps would refuse to start with: members
 * that cannot be read, are cyclic or too large, or are not of the kind that MCP Apps gives them. `refuse` is called once
 * with all problems.
 */
export function plainContext(given: unknown, refuse: (problem: string) => void): McpUiHostContext {
  if (given === undefined || given === null) return {};
  const plain: McpUiHostContext = {};
  const problems: string[] = [];
  let size = 0;
  const names = attempt(() => (typeof given === "object" && !Array.isArray(given) ? Object.keys(given) : null));
  if (!Array.isArray(names)) problems.push(names === null ? "host-context: an object" : `host-context: ${names.problem}`);
  else if (names.length > MAX_MEMBERS) problems.push(`host-context: it has more than ${MAX_MEMBERS} members`);
  else
    for (const name of names) {
      const text = attempt(() => JSON.stringify((given as Record<string, unknown>)[name]) as string | undefined);
      if (text === undefined) continue;
      if (typeof text !== "string") problems.push(`host-context.${name}: ${text.problem}`);
      else if (size + text.length > MAX_CONTEXT) problems.push(`host-context.${name}: the context has more than ${MAX_CONTEXT} characters`);
      else {
        const value = JSON.parse(text) as unknown;
        const [isRight, kind] = KINDS.get(name) ?? [];
        if (isRight && !isRight(value)) problems.push(`host-context.${name}: ${kind}`);
        else {
          size += text.length;
          plain[name] = value;
        }
      }
    }
  const more = problems.length - MAX_PROBLEMS;
  if (problems.length) refuse(problems.slice(0, MAX_PROBLEMS).join("; ") + (more > 0 ? `; and ${more} more` : ""));
  return plain;
}

type Check = (value: unknown) => boolean;

const isObject: Check = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const isText: Check = (value) => typeof value === "string";
const isNumber: Check = (value) => typeof value === "number";
const isBoolean: Check = (value) => typeof value === "boolean";
const oneOf = (words: readonly string[]): Check => (value) => words.includes(value as string);
const listOf = (is: Check): Check => (value) => Array.isArray(value) && value.every(is);
/** An object whose members, of these names or all, are of a kind. */
const objectOf = (is: Check, names?: readonly string[]): Check => (value) =>
  isObject(value) && Object.entries(value as object).every(([name, member]) => (names && !names.includes(name)) || is(member));
const SIDES = ["top", "right", "bottom", "left"];
const hasSides: Check = (value) => isObject(value) && SIDES.every((side) => side in (value as object));

/** The kinds of the context's members; apps of the SDK do not start with another value (MCP Apps, host context). */
const KINDS: ReadonlyMap<string, readonly [Check, string]> = new Map([
  ["theme", [oneOf(["light", "dark"]), '"light" or "dark"']],
  ["displayMode", [oneOf(DISPLAY_MODES), `one of ${DISPLAY_MODES.join(", ")}`]],
  ["availableDisplayModes", [listOf(oneOf(DISPLAY_MODES)), `an array of ${DISPLAY_MODES.join(", ")}`]],
  ["locale", [isText, "a text"]],
  ["timeZone", [isText, "a text"]],
  ["userAgent", [isText, "a text"]],
  ["platform", [oneOf(["web", "desktop", "mobile"]), '"web", "desktop" or "mobile"']],
  ["containerDimensions", [objectOf(isNumber, ["width", "maxWidth", "height", "maxHeight"]), "an object of numbers"]],
  ["toolInfo", [(value) => isObject(value) && isObject((value as { tool?: unknown }).tool), "an object with `tool`"]],
  ["deviceCapabilities", [objectOf(isBoolean, ["touch", "hover"]), "an object of booleans"]],
  ["safeAreaInsets", [(value) => objectOf(isNumber, SIDES)(value) && hasSides(value), `an object with the numbers ${SIDES.join(", ")}`]],
  [
    "styles",
    [
      (value) => isObject(value) && objectOf(isText)((value as { variables?: unknown }).variables ?? {}) && objectOf(isText, ["fonts"])((value as { css?: unknown }).css ?? {}),
      "an object with `variables`, an object of texts",
    ],
  ],
]);

function attempt<Value>(read: () => Value): Value | { problem: string } {
  try {
    return read();
  } catch (error) {
    return { problem: error instanceof Error ? error.message.split("\n")[0]! : String(error) };
  }
}

/** The page's theme: its declared colour scheme, else the one of the background behind the app. */
function themeOf(element: Element, style: CSSStyleDeclaration): "light" | "dark" {
  const schemes = style.colorScheme.split(/\s+/);
  const [dark, light] = [schemes.includes("dark"), schemes.includes("light")];
  if (dark && light) return matches("(prefers-color-scheme: dark)") ? "dark" : "light";
  if (dark || light) return dark ? "dark" : "light";
  const [red = 255, green = 255, blue = 255] = (backgroundOf(element)?.match(/[\d.]+/g) ?? []).map(Number);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue < 128 ? "dark" : "light";
}

/** The custom properties of those names, and a few that follow from the element's own style. */
function styleVariables(element: Element, style: CSSStyleDeclaration): Record<McpUiStyleVariableKey, string | undefined> {
  const background = backgroundOf(element);
  const variables: Partial<Record<McpUiStyleVariableKey, string>> = {
    "--color-text-primary": style.color,
    ...(background && { "--color-background-primary": background }),
    "--font-sans": style.fontFamily,
  };
  for (const name of STYLE_VARIABLES) {
    const value = style.getPropertyValue(name).trim();
    if (value) variables[name] = value;
  }
  return variables as Record<McpUiStyleVariableKey, string | undefined>;
}

/** The colour of the first opaque background behind an element. */
function backgroundOf(element: Element): string | null {
  for (let above: Element | null = element; above; above = parentOf(above)) {
    const { backgroundColor } = getComputedStyle(above);
    if (backgroundColor.startsWith("rgb(")) return backgroundColor;
  }
  return null;
}

function parentOf(element: Element): Element | null {
  if (element.assignedSlot) return element.assignedSlot;
  if (element.parentElement) return element.parentElement;
  const root = element.getRootNode();
  return root instanceof ShadowRoot ? root.host : null;
}

function dimensions(element: Element, style: CSSStyleDeclaration, fills: boolean): NonNullable<McpUiHostContext["containerDimensions"]> {
  const width = element.clientWidth;
  if (fills) return { width, height: element.clientHeight };
  const limit = parseFloat(style.maxHeight);
  return { width, maxHeight: Number.isFinite(limit) && style.maxHeight.endsWith("px") ? limit : MAX_HEIGHT };
}

/** The insets of the screen, read from a temporary element that has them as its padding. */
function safeAreaInsets(): { top: number; right: number; bottom: number; left: number } {
  const probe = document.createElement("div");
  const side = (name: string): string => `env(safe-area-inset-${name}, 0px)`;
  probe.style.cssText = "position:fixed;visibility:hidden;width:0;height:0";
  probe.style.padding = ["top", "right", "bottom", "left"].map(side).join(" ");
  document.documentElement.append(probe);
  const { paddingTop, paddingRight, paddingBottom, paddingLeft } = getComputedStyle(probe);
  const [top = 0, right = 0, bottom = 0, left = 0] = [paddingTop, paddingRight, paddingBottom, paddingLeft].map((text) => parseFloat(text) || 0);
  probe.remove();
  return { top, right, bottom, left };
}

function isMobile(): boolean {
  const { userAgentData } = navigator as Navigator & { userAgentData?: { mobile?: boolean } };
  return userAgentData?.mobile ?? /Android|iPhone|iPad|Mobile/.test(navigator.userAgent);
}

function matches(query: string): boolean {
  return typeof matchMedia === "function" && matchMedia(query).matches;
}
