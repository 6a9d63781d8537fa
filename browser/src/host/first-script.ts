/** The script that runs first in the page of an MCP server's app, and in each on an origin of its own; it leaves no element. */

/** The key under which it reports violations of the content security policy, which no page around a foreign frame can see. */
export const BLOCKED = "webmcp-gateway/blocked";

/**
 * Reports violations under the key `blocked`, and replaces the parent.
 *
 * The parent of a foreign frame throws at most properties, even at marks that a library looks for in any object: Vue
 * does so with a client that is part of its state. Properties that no window has are undefined instead; those of a
 * window still throw. `event.source` is replaced, too. Messages go to the origin `to` alone, if it is given.
 *
 * It is also used as text, so it contains all that it needs.
 */
export function shieldParent(blocked: string, to?: string): void {
  const real = window.parent;
  const post = (message: unknown, target?: unknown, transfer?: Transferable[]): void => {
    const options = typeof target === "object" ? target : { targetOrigin: target, transfer };
    real.postMessage(message, { ...options, ...(to && { targetOrigin: to }) } as WindowPostMessageOptions);
  };
  addEventListener("securitypolicyviolation", (e) => post({ [blocked]: [e.effectiveDirective, e.blockedURI, e.sample] }, "*"));
  const { get } = Object.getOwnPropertyDescriptor(MessageEvent.prototype, "source")!;
  const shown: Window = new Proxy(Object.create(null) as Window, {
    set: (_, key, value) => Reflect.set(real, key, value),
    has: (_, key) => key in real,
    get(_, key) {
      if (to && key === "postMessage") return post;
      try {
        const value: unknown = Reflect.get(real, key);
        return typeof value === "function" ? (value.bind(real) as unknown) : value;
      } catch (error) {
        if (key in window) throw error;
        return undefined;
      }
    },
  });
  const source = {
    get(this: MessageEvent): unknown {
      const from: unknown = get!.call(this);
      return from === real ? shown : from;
    },
  };
  Object.defineProperty(source.get, "name", { value: "get source" });
  Object.defineProperty(MessageEvent.prototype, "source", source);
  Object.defineProperty(window, "parent", { value: shown, writable: true });
}

const SCRIPT = `(${shieldParent})(${JSON.stringify(BLOCKED)});document.currentScript.remove()`;

const START =
  /^\uFEFF?(?:\s|<!--[^]*?-->)*(?:<!doctype[^>]*>)?(?:\s|<!--[^]*?-->)*(?:<html[^>]*>)?(?:\s|<!--[^]*?-->)*(?:<head(?:\s[^>]*)?>)?/i;

/** The page with that script. */
export function withFirstScript(html: string): string {
  return html.replace(START, (before) => `${before}<script>${SCRIPT}</script>`);
}
