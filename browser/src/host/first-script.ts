/** The script that runs first in the page of an MCP server's app; it leaves no element. */

/** The key under which it reports violations of the content security policy, which no page around an opaque frame can see. */
export const BLOCKED = "webmcp-gateway/blocked";

/**
 * The parent of an opaque frame throws at most properties, even at marks that a library looks for in any object: Vue
 * does so with a client that is part of its state.
 *
 * Properties that no window has are undefined instead; those of a window still throw. `event.source` is replaced, too.
 */
const SCRIPT = `addEventListener("securitypolicyviolation", e =>
  parent.postMessage({ ${JSON.stringify(BLOCKED)}: [e.effectiveDirective, e.blockedURI, e.sample] }, "*"));
{
  const real = parent, { get } = Object.getOwnPropertyDescriptor(MessageEvent.prototype, "source");
  const shown = new Proxy(Object.create(null), {
    set: (_, key, value) => Reflect.set(real, key, value),
    has: (_, key) => key in real,
    get(_, key) {
      try {
        const value = real[key];
        return typeof value === "function" ? value.bind(real) : value;
      } catch (error) {
        if (key in window) throw error;
      }
    },
  });
  const source = { get() { const from = get.call(this); return from === real ? shown : from; } };
  Object.defineProperty(source.get, "name", { value: "get source" });
  Object.defineProperty(MessageEvent.prototype, "source", source);
  Object.defineProperty(window, "parent", { value: shown, writable: true });
}
document.currentScript.remove()`;

const START =
  /^\uFEFF?(?:\s|<!--[^]*?-->)*(?:<!doctype[^>]*>)?(?:\s|<!--[^]*?-->)*(?:<html[^>]*>)?(?:\s|<!--[^]*?-->)*(?:<head(?:\s[^>]*)?>)?/i;

/** The page with that script. */
export function withFirstScript(html: string): string {
  return html.replace(START, (before) => `${before}<script>${SCRIPT}</script>`);
}
