/** The custom element `<mcp-app-item>`: an item of a message, whose app is created when it is scrolled into view. */
import { defineMcpApp, type McpApp } from "../element/mcp-app";
import { adoptStyles, make } from "./dom";
import { McpAppItemError, parseMcpAppItem, type McpAppItem } from "./item";
import { startNearView } from "./near-view";
import { surfaceStyles } from "./surface-styles";

/** Properties of the `<mcp-app>` of an item: the gateway, handlers, the host context and so on. */
export type McpAppItemOptions = Partial<Omit<McpApp, keyof HTMLElement>> & {
  /** Create the app at once, also out of sight. */
  eager?: boolean;
  /** Fields that the item itself leaves out, such as `upstream`. */
  defaults?: Partial<McpAppItem>;
};

declare global {
  interface HTMLElementTagNameMap {
    "mcp-app-item": McpAppItemElement;
  }
}

/** Addresses on the gateway's common mount begin with the name of an app or an upstream; pages of its own apps have a digest. */
const ON_MOUNT = /^(ui|mcp-app):\/\/([^/]+)\/(.+)$/;
const OWN_PAGE = /^[0-9a-f]{12}\.html$/;

const STYLES = `
:host { display: block; min-width: 0; }
:host([hidden]) { display: none; }
.card.waiting { min-height: var(--mcp-app-height, 15rem); }
.card.waiting .bar { border-color: transparent; }
.problem { margin: 0; padding: 12px 16px; white-space: pre-line; overflow-wrap: anywhere; unicode-bidi: plaintext; }
.problem + .problem { padding-block-start: 0; color: var(--muted); font-size: 13px; }
`;

/** Outside of a browser, the element can be imported, and rendered by its tag. */
const Base = (globalThis.HTMLElement ?? class {}) as typeof HTMLElement;

export class McpAppItemElement extends Base {
  static readonly observedAttributes = ["item"];

  private given: unknown;
  private readonly root: ShadowRoot;
  private settings: McpAppItemOptions = {};
  /** The options as the app has them. */
  private applied: Record<string, unknown> = {};
  private valid: McpAppItem | null = null;
  private shown: McpApp | null = null;
  private stopWaiting: (() => void) | null = null;
  private updating = false;

  constructor() {
    super();
    this.root = this.attachShadow({ mode: "open" });
    adoptStyles(this.root, surfaceStyles);
    adoptStyles(this.root, STYLES);
  }

  /** The item; setting it again, for the same `mcp_app_id`, brings news of the tool call to the app. */
  get item(): McpAppItem | null {
    return this.valid;
  }
  set item(value: unknown) {
    this.given = value;
    this.scheduleUpdate();
  }

  get options(): McpAppItemOptions {
    return this.settings;
  }
  set options(value: McpAppItemOptions | null | undefined) {
    this.settings = value ?? {};
    this.scheduleUpdate();
  }

  /** The app; null before it was scrolled into view, and for an invalid item. */
  get app(): McpApp | null {
    return this.shown;
  }

  connectedCallback(): void {
    for (const name of ["item", "options"] as const) this.upgradeProperty(name);
    this.scheduleUpdate();
  }

  disconnectedCallback(): void {
    this.stopWaiting?.();
    this.stopWaiting = null;
  }

  attributeChangedCallback(_name: string, before: string | null, text: string | null): void {
    if (before === text || text === null) return;
    try {
      this.item = JSON.parse(text);
    } catch (error) {
      this.item = text;
      console.warn("mcp-app-item: the attribute `item` is no JSON:", error);
    }
  }

  /** One update for all changes of a moment. */
  private scheduleUpdate(): void {
    if (this.updating) return;
    this.updating = true;
    queueMicrotask(() => {
      this.updating = false;
      if (this.isConnected && this.given !== undefined) this.update();
    });
  }

  private update(): void {
    const before = this.valid;
    try {
      const given = this.given;
      const whole = typeof given === "object" && given !== null && !Array.isArray(given) ? withDefaults(given, this.settings.defaults) : given;
      this.valid = parseMcpAppItem(whole);
    } catch (error) {
      if (!(error instanceof McpAppItemError)) throw error;
      return this.refuse(error);
    }
    const { valid: item } = this;
    if (this.shown && before && isSameApp(before, item)) return this.describe(this.shown, item, before);
    this.drop();
    // A tile loads nothing before it is opened.
    if (this.settings.eager || (item.display_mode ?? "inline") !== "inline") return this.create(item);
    this.root.replaceChildren(placeholder(item.title));
    this.stopWaiting ??= startNearView(this, () => {
      this.stopWaiting = null;
      if (!this.valid || !this.isConnected || this.shown) return Promise.resolve();
      this.create(this.valid);
      return settled(this.shown!);
    });
  }

  private create(item: McpAppItem): void {
    // By its tag: a page may have loaded two copies of this module, of which the first has defined it.
    const app = document.createElement("mcp-app") as McpApp;
    this.applied = {};
    this.describe(app, item, null);
    this.shown = app;
    this.root.replaceChildren(document.createElement("slot"));
    this.append(app);
  }

  /** Bring the item to its app: its words, its source, and the tool call so far. */
  private describe(app: McpApp, item: McpAppItem, before: McpAppItem | null): void {
    this.applyOptions(app);
    const { gateway } = this.settings;
    const { app: id, upstream, resource } = gateway === undefined ? ownSourceOf(item) : sourceOf(item);
    // Each assignment of a source shows the app anew.
    const values = {
      title: item.title,
      ariaLabel: item.aria_label ?? null,
      fallbackText: item.fallback_text,
      mcpAppId: item.mcp_app_id,
      gateway: gateway ?? (id || upstream ? "" : undefined),
      app: id,
      upstream,
      resourceUri: resource,
      resourceHtml: item.resource_html ?? undefined,
      toolName: item.tool_name ?? undefined,
      toolCallId: item.tool_call_id ?? undefined,
      toolInput: item.tool_input ?? undefined,
      toolResult: item.tool_result ?? undefined,
    };
    const current = app as unknown as Record<string, unknown>;
    for (const [name, value] of Object.entries(values)) if (current[name] !== value) current[name] = value;
    const mode = item.display_mode ?? "inline";
    if (mode !== (before?.display_mode ?? "inline")) app.setAttribute("display-mode", mode);
    if (!item.tool_call_id) return;
    if (item.tool_input_partial && !item.tool_input) app.sendToolInputPartial(item.tool_input_partial);
    if (typeof item.tool_cancelled === "string" && !item.tool_result) app.cancelTool(item.tool_cancelled);
  }

  /** Frameworks give new objects with the same content: what has not changed must not show the app anew. */
  private applyOptions(app: McpApp): void {
    const { eager: _eager, defaults: _defaults, ...properties } = this.settings;
    for (const [name, value] of Object.entries(properties)) {
      if (isSame(value, this.applied[name])) continue;
      (app as unknown as Record<string, unknown>)[name] = this.applied[name] = value;
    }
  }

  private refuse(error: McpAppItemError): void {
    this.drop();
    this.valid = null;
    const { fallback_text: fallback } = (this.given ?? {}) as { fallback_text?: unknown };
    const texts = [...(typeof fallback === "string" ? [fallback] : ["This app cannot be shown."]), error.message];
    this.root.replaceChildren(make("div", { class: "card", role: "alert" }, ...texts.map((text) => make("p", { class: "problem" }, text))));
    console.warn(`mcp-app-item: ${error.message}`);
    const detail = { code: "bad-item", message: error.message };
    this.dispatchEvent(new CustomEvent("mcp-app-error", { bubbles: true, composed: true, detail }));
  }

  private drop(): void {
    this.stopWaiting?.();
    this.stopWaiting = null;
    this.shown?.remove();
    this.shown = null;
  }

  /** Take a property that was set before the element was defined. */
  private upgradeProperty(name: "item" | "options"): void {
    if (!Object.hasOwn(this, name)) return;
    const value = this[name];
    delete (this as unknown as Record<string, unknown>)[name];
    this[name] = value as never;
  }
}

/**
 * The element of an item, ready to be inserted into the page. A bad item becomes an inline error with its fallback text:
 * one of them does not break a conversation.
 */
export function renderMcpAppItem(item: unknown, options: McpAppItemOptions = {}): McpAppItemElement {
  const element = document.createElement("mcp-app-item");
  element.item = item;
  element.options = options;
  return element;
}

/** Define the element, once; outside of a browser, nothing happens. */
export function defineMcpAppItem(name = "mcp-app-item"): void {
  defineMcpApp();
  if (typeof customElements !== "undefined" && !customElements.get(name)) customElements.define(name, McpAppItemElement);
}

/** Whether two values of an option have the same content. A value that is no JSON is compared by its identity. */
function isSame(one: unknown, other: unknown): boolean {
  if (one === other) return true;
  if (typeof one !== "object" || typeof other !== "object") return false;
  try {
    return JSON.stringify(one) === JSON.stringify(other);
  } catch {
    return false;
  }
}

function withDefaults(item: object, defaults: Partial<McpAppItem> | undefined): object {
  return defaults ? { ...defaults, ...Object.fromEntries(Object.entries(item).filter(([, value]) => value !== undefined && value !== null)) } : item;
}

function isSameApp(before: McpAppItem, item: McpAppItem): boolean {
  const source = ({ mcp_app_id: id, app, upstream, resource_uri: uri, resource_html: html, tool_call_id: call }: McpAppItem): string =>
    JSON.stringify([id, app, upstream, uri, html, call]);
  return source(before) === source(item);
}

interface ItemSource {
  app?: string | undefined;
  upstream?: string | undefined;
  resource?: string | undefined;
}

function ownSourceOf({ app, upstream, resource_uri: uri }: McpAppItem): ItemSource {
  return { app: app ?? undefined, upstream: upstream ?? undefined, resource: uri ?? undefined };
}

/** The source of the app at the gateway: named by the fields of the item, or by the address on the common mount. */
function sourceOf(item: McpAppItem): ItemSource {
  const { app, upstream, resource_uri: uri } = item;
  if (app || upstream || !uri) return ownSourceOf(item);
  const [, scheme, name, rest] = ON_MOUNT.exec(uri) ?? [];
  if (!name || !rest) return { resource: uri };
  return OWN_PAGE.test(rest) ? { app: name, resource: uri } : { upstream: name, resource: `${scheme}://${rest}` };
}

/** The app is there, or is known not to come. */
function settled(app: McpApp): Promise<unknown> {
  return new Promise((resolve) => {
    for (const name of ["mcp-app-initialized", "mcp-app-error", "mcp-app-teardown"]) app.addEventListener(name, resolve, { once: true });
  });
}

function placeholder(title: string): HTMLElement {
  return make("div", { class: "card waiting" }, make("div", { class: "bar" }, make("span", { class: "name" }, title)));
}
