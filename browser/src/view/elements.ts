/** Elements that name a file of the backend, in the page and on their way into it, get that file. */

import type { Files } from "./page-files";

type Kind = "data" | "set" | "script" | "sheet";

/** By element and attribute that names files, how these get in. */
const NAMING: { [place: string]: Kind } = Object.create(null);
for (const name of ["img", "audio", "video", "source", "track", "input"]) NAMING[`${name} src`] = "data";
Object.assign(NAMING, {
  "img srcset": "set", "source srcset": "set", "video poster": "data", "image href": "data", "script src": "script", "link href": "sheet",
});
const PLACES = Object.keys(NAMING).map((place) => place.split(" ") as [string, string]);
const SELECTOR = PLACES.map(([name, attribute]) => `${name}[${attribute}]`).join() + ",[style],style";
const CANDIDATE = /([^\s,]\S*[^\s,])(\s[^,]*)?/g;

export function watchElements(files: Files, resolve: (url: string) => string): void {
  const { setAttribute, getAttribute, attachShadow } = Element.prototype;
  /** What the page named, by element and attribute. */
  const named = new WeakMap<Element, { [attribute: string]: string }>();

  function kindOf(element: Element, attribute: string): Kind | undefined {
    const kind = NAMING[`${element.localName} ${attribute}`];
    if (kind !== "sheet") return kind;
    const { rel } = element as HTMLLinkElement;
    return /stylesheet/.test(rel) ? kind : /icon/.test(rel) ? "data" : undefined;
  }

  function put(element: Element, attribute: string, value: string): void {
    setAttribute.call(element, attribute, value);
  }

  async function fill(element: Element, attribute: string, kind: Kind, url: string): Promise<void> {
    if (kind === "data") return put(element, attribute, await files.data(url));
    if (kind === "set") {
      const found = [...url.matchAll(CANDIDATE)];
      const data = await Promise.all(found.map(([, one = ""]) => (files.remote(one) ? files.data(one) : one)));
      return put(element, attribute, found.map(([, , size = ""], at) => data[at] + size).join(", "));
    }
    // Neither scripts nor sheets may be `data:` URLs there; inline ones may.
    let text = await files.text(url);
    if (kind === "sheet") text = (await files.styled(text, resolve(url))) ?? text;
    if (named.get(element)?.[attribute] !== url) return;
    const inline = document.createElement(kind === "sheet" ? "style" : "script");
    if (kind === "sheet") for (const { name, value } of element.attributes) if (/^(media|title|nonce)$/.test(name)) put(inline, name, value);
    if (kind === "script" && (element as HTMLScriptElement).type) (inline as HTMLScriptElement).type = (element as HTMLScriptElement).type;
    inline.textContent = text;
    while (!element.isConnected) await new Promise<void>((go) => waiting.set(element, go));
    waiting.delete(element);
    if (kind === "script") (element.after(inline), inline.remove());
    else {
      sheets.get(element)?.remove();
      sheets.set(element, inline);
      element.after(inline);
    }
    element.dispatchEvent(new Event("load"));
  }

  const sheets = new WeakMap<Element, Element>();
  const waiting = new WeakMap<Element, () => void>();

  /** Takes what `element` names into our hands; false where the browser can load it. */
  function take(element: Element, attribute: string, value: string): boolean {
    const kind = kindOf(element, attribute);
    // What we write ourselves is not remote.
    if (!kind || !(kind === "set" ? value.split(",").some(files.remote) : files.remote(value))) return false;
    named.set(element, { ...named.get(element), [attribute]: value });
    fill(element, attribute, kind, value).catch(() => element.dispatchEvent(new Event("error")));
    return true;
  }

  /** What the parser or the page has written already. */
  function adopt(element: Element): void {
    for (const [name, attribute] of PLACES) {
      const value = name === element.localName ? getAttribute.call(element, attribute) : null;
      if (value !== null && named.get(element)?.[attribute] !== value) take(element, attribute, value);
    }
    const own = element instanceof HTMLStyleElement;
    const css = own ? element.textContent : getAttribute.call(element, "style");
    void files.styled(css ?? "")?.then((filled) => {
      if (own) element.textContent = filled;
      else if (getAttribute.call(element, "style") === css) put(element, "style", filled);
    });
  }

  Element.prototype.setAttribute = function (name, value) {
    if (!take(this, String(name).toLowerCase(), String(value))) setAttribute.call(this, name, value);
  };
  for (const [name, attribute] of PLACES) {
    const prototype = Object.getPrototypeOf(document.createElement(name)) as object;
    const native = Object.getOwnPropertyDescriptor(prototype, attribute);
    if (!native?.set || !native.get) continue;
    const { get, set } = native;
    Object.defineProperty(prototype, attribute, {
      ...native,
      get(this: Element) {
        const held = named.get(this)?.[attribute];
        return held === undefined ? get.call(this) : attribute === "srcset" ? held : resolve(held);
      },
      set(this: Element, value) {
        if (take(this, attribute, String(value))) return;
        delete named.get(this)?.[attribute];
        set.call(this, value);
      },
    });
  }

  // The browser could not load what stood there before we had it: that is no error of the page's.
  addEventListener("error", (event) => {
    const { target, isTrusted } = event;
    if (isTrusted && target instanceof Element && named.has(target) && !/^data:/.test(getAttribute.call(target, "src") ?? "")) event.stopImmediatePropagation();
  }, true);
  const observer = new MutationObserver((records) => {
    for (const { type, target, addedNodes, removedNodes } of records) {
      if (type === "attributes") adopt(target as Element);
      for (const node of removedNodes) if (node instanceof Element && !node.isConnected) sheets.get(node)?.remove();
      for (const node of addedNodes) {
        if (!(node instanceof Element)) {
          if (target instanceof HTMLStyleElement) adopt(target);
          continue;
        }
        for (const element of [node, ...node.querySelectorAll(SELECTOR)]) {
          waiting.get(element)?.();
          if (element.matches(SELECTOR)) adopt(element);
        }
      }
    }
  });
  const observe = (root: Node): void =>
    observer.observe(root, { subtree: true, childList: true, attributes: true, attributeFilter: ["src", "srcset", "href", "poster", "style"] });
  observe(document);
  Element.prototype.attachShadow = function (init) {
    const root = attachShadow.call(this, init);
    observe(root);
    return root;
  };
}
