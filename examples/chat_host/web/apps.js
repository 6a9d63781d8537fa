/**
 * The apps of the conversation, by the gateway's element.
 *
 * `renderMcpAppItem` makes an element of an `mcp_app` item: an app in the conversation, or a tile from which it opens in
 * a panel or beside the conversation. All that the chat adds is here: which app is the current one, and what the person
 * is asked.
 */
import { icon, make } from "./dom.js";
import { theme } from "./theme.js";

const MOST_TEXT = 8000;
const WIDE = matchMedia("(min-width: 60rem)");

export class Apps {
  /**
   * `consent(title, text)` asks the person; `send(text, title)`, `context(title, text)` and `skip()` speak to the back
   * end, `token()` gets the page's token for the gateway.
   */
  constructor(answers) {
    this.answers = answers;
    this.shown = new Map(); // the id of the item -> its place and what it shows
    this.current = new Map(); // the app -> the item that shows it now
    this.library = null;
    addEventListener("themechange", ({ detail }) => {
      for (const { element } of this.shown.values()) element?.app?.sendHostContext({ theme: detail });
    });
  }

  /** The gateway's console, from which the element is loaded once. */
  connect(gateway) {
    if (this.gateway) return;
    this.gateway = gateway;
    this.library = import(`${gateway}/host/mcp-app.js`);
    this.library.then(
      () => this.renderMissing(),
      () => (this.gateway = this.library = null), // it is tried again when the gateway is there again
    );
  }

  /** Apps of the conversation that could not be shown while the gateway was away. */
  renderMissing() {
    for (const { entry, use } of this.current.values()) if (!entry.element) void this.render(entry, use);
  }

  /** Show the app of a tool call at `place`, or bring it news of the call. */
  show(place, use, partial) {
    if (!use.app || use.state === "failed") return this.forget(use.id);
    const known = this.shown.get(use.id);
    const entry = known ?? { place, element: null, isNew: use.state !== "done" };
    entry.item = itemOf(use, partial);
    entry.isDone = use.state === "done";
    this.shown.set(use.id, entry);
    if (!known) this.makeCurrent(entry, use);
    if (entry.element) entry.element.item = entry.item;
    else if (this.isCurrent(entry, use)) void this.render(entry, use);
    this.openNew(entry);
  }

  /** An app of a panel or of the workspace opens at the end of its call, where there is room; else the person opens it. */
  openNew(entry) {
    if (!entry.isNew || !entry.isDone || !entry.element) return;
    entry.isNew = false;
    if (entry.item.display_mode === "inline") return;
    if (WIDE.matches && entry.element.app) entry.element.app.displayMode = entry.item.display_mode;
    else this.answers.skip();
  }

  forget(id) {
    const entry = this.shown.get(id);
    if (!entry) return;
    entry.place.replaceChildren();
    this.shown.delete(id);
    for (const [key, { entry: one }] of this.current) if (one === entry) this.current.delete(key);
  }

  isCurrent(entry, use) {
    return this.current.get(keyOf(use))?.entry === entry;
  }

  /** An app runs once in a conversation, where it was asked for last; what it showed before can be shown again. */
  makeCurrent(entry, use) {
    const former = this.current.get(keyOf(use));
    this.current.set(keyOf(use), { entry, use });
    if (!former || former.entry === entry) return;
    const again = make("button", { type: "button", class: "again" }, icon("app"), `Show ${former.entry.item.title} here`);
    again.addEventListener("click", () => {
      this.makeCurrent(former.entry, former.use);
      void this.render(former.entry, former.use);
    });
    former.entry.element?.remove();
    former.entry.element = null;
    former.entry.place.replaceChildren(again);
  }

  async render(entry, use) {
    try {
      const { renderMcpAppItem } = await this.library;
      if (entry.element || !this.isCurrent(entry, use)) return;
      entry.element = renderMcpAppItem(entry.item, this.options(entry.item.title));
      entry.place.dataset.mode = entry.item.display_mode;
      // An app that does not declare the mode is shown in the conversation instead.
      entry.element.addEventListener("mcp-app-initialized", ({ target }) => {
        if (!target.availableDisplayModes.includes(entry.item.display_mode)) entry.place.dataset.mode = "inline";
      });
      entry.place.replaceChildren(entry.element);
      await new Promise((resolve) => setTimeout(resolve)); // the element creates its app
      this.openNew(entry);
    } catch {
      entry.place.replaceChildren(make("p", { class: "stopped" }, `${entry.item.fallback_text} The gateway cannot be reached.`));
    }
  }

  options(title) {
    return {
      gateway: this.gateway,
      getToken: this.answers.token,
      sizing: "fill", // the height is the chat's decision: see `.app` in items.css
      hostInfo: { name: "Parlour", version: "1" },
      hostContext: { theme: theme() },
      onMessage: async ({ content }) => {
        const text = textOf(content);
        return text !== "" && (await this.answers.consent(title, text)) && this.answers.send(text, title);
      },
      onUpdateModelContext: ({ content, structuredContent }) => {
        const text = textOf(content) || (structuredContent ? JSON.stringify(structuredContent) : "");
        return this.answers.context(title, text.slice(0, MOST_TEXT));
      },
    };
  }
}

const keyOf = ({ app }) => app.app ?? `${app.upstream} ${app.resource_uri}`;

/** The `mcp_app` item of a tool call, with what is known of the call by now. */
function itemOf({ state, arguments: input, result, text, app }, partial) {
  const isOver = state === "stopped";
  return {
    ...app,
    ...(state === "writing" ? { tool_input_partial: partial } : { tool_input: input }),
    ...(result && { tool_result: result }),
    ...(isOver && !result && { tool_cancelled: text || "The person stopped this call." }),
  };
}

function textOf(content) {
  const parts = Array.isArray(content) ? content : [];
  return parts.filter(({ type }) => type === "text").map(({ text }) => String(text)).join("\n").slice(0, MOST_TEXT).trim();
}
