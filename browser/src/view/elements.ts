/** Elements that name a file of the backend, in the page and on their way into it, get that file. */

import type { Files } from "./page-files";

type Kind = "data" | "set" | "script" | "sheet" | "ahead";

/** By element and attribute that names files, how these get in. */
const NAMING: { [place: string]: Kind } = Object.create(null);
for (const name of ["img", "audio", "video", "source", "track", "input"]) NAMING[`${name} src`] = "data";
Object.assign(NAMING, {
  "img srcset": "set", "source srcset": "set", "video poster": "data", "image href": "data", "image xlink:href": "data",
  "script src": "script", "link href": "sheet",
});
const PLACES = Object.keys(NAMING).map((place) => place.split(" ") as [string, string]);
const SELECTOR = PLACES.map(([name, attribute]) => `${name}[${attribute.replace(":", "\\:")}]`).join() + ",[style],style";
const CANDIDATE = /([^\s,]\S*[^\s,])(\s[^,]*)?/g;

/**
 * The one of a `srcset` that the screen asks for; all where that depends on widths. Browsers take the densest of those
 * that are `data:` URLs, whatever the screen.
 */
function chosen(found: RegExpMatchArray[]): RegExpMatchArray[] {
  const density = ([, , size = "1"]: RegExpMatchArray): number => parseFloat(size);
  if (found.some(([, , size]) => size?.endsWith("w"))) return found;
  found.sort((one, other) => density(one) - density(other));
  return [found.find((one) => density(one) >= devicePixelRatio) ?? found.at(-1)!];
}

let modules = 0;

/** When the module `script`, which gets into the page now, has run: modules run later, in their order. */
function whenRun(script: HTMLScriptElement): Promise<unknown> {
  const name = `webmcp-gateway-module-${++modules}`;
  const next = document.createElement("script");
  next.type = "module";
  next.text = `dispatchEvent(new Event("${name}"))`;
  script.async = next.async = false;
  queueMicrotask(() => {
    document.head.append(next);
    next.remove();
  });
  return new Promise((go) => addEventListener(name, go, { once: true }));
}

export function watchElements(files: Files, resolve: (url: string) => string): void {
  const { setAttribute, setAttributeNS, getAttribute, hasAttribute, removeAttribute, attachShadow } = Element.prototype;
  /** What the page named, by element and attribute, and how it gets in. */
  const named = new WeakMap<Element, { [attribute: string]: { url: string; kind: Kind } | undefined }>();
  /** Those that have what they name, or name nothing of the backend any more. */
  const filled = new WeakSet<Element>();
  const sheets = new WeakMap<Element, HTMLStyleElement>();
  const waiting = new WeakMap<Element, () => void>();

  const held = (element: Element, attribute: string): string | undefined => named.get(element)?.[attribute]?.url;

  function kindOf(element: Element, attribute: string): Kind | undefined {
    const kind = NAMING[`${element.localName} ${attribute}`];
    const { rel, type, noModule } = element as HTMLLinkElement & HTMLScriptElement;
    // Others are data, or for browsers without modules.
    if (kind === "script") return noModule || (type && !/module|script$/i.test(type)) ? undefined : kind;
    if (kind !== "sheet" || /stylesheet/i.test(rel)) return kind;
    return /icon/i.test(rel) ? "data" : /preload/i.test(rel) ? "ahead" : undefined;
  }

  function put(element: Element, attribute: string, value: string): void {
    filled.add(element);
    setAttribute.call(element, attribute.replace("xlink:", ""), value);
  }

  /** Where `text` stands in place of what `element` names. */
  async function putInline(element: HTMLScriptElement | HTMLLinkElement, text: string): Promise<void> {
    const inline = document.createElement(element.localName === "link" ? "style" : "script");
    inline.textContent = text;
    while (!element.isConnected) await new Promise<void>((go) => waiting.set(element, go));
    waiting.delete(element);
    if (inline instanceof HTMLStyleElement) {
      for (const { name, value } of element.attributes) if (/^(media|title|nonce)$/.test(name)) setAttribute.call(inline, name, value);
      sheets.get(element)?.remove();
      sheets.set(element, inline);
      element.after(inline);
      inline.disabled = (element as HTMLLinkElement).disabled;
    } else {
      inline.type = element.type;
      const ran = /module/i.test(inline.type) && whenRun(inline);
      element.after(inline);
      inline.remove();
      await ran;
    }
  }

  async function fill(element: Element, attribute: string, kind: Kind, url: string): Promise<void> {
    const over = (): boolean => held(element, attribute) !== url;
    if (kind === "data") {
      const data = await files.data(url);
      if (!over()) put(element, attribute, data);
    } else if (kind === "set") {
      const found = chosen([...url.matchAll(CANDIDATE)]);
      const data = await Promise.all(found.map(([, one = ""]) => (files.remote(one) ? files.data(one).catch(() => one) : one)));
      if (!over()) put(element, attribute, found.map(([, , size = ""], at) => data[at] + size).join(", "));
    } else {
      // Neither scripts nor sheets may be `data:` URLs there; inline ones may.
      const text = await files.text(url, element as HTMLScriptElement);
      const whole = kind === "sheet" ? await files.styled(text, resolve(url)) : undefined;
      if (over()) return;
      if (kind !== "ahead") await putInline(element as HTMLScriptElement, whole ?? text);
      element.dispatchEvent(new Event("load"));
    }
  }

  /** Takes what `element` names into our hands; false where the browser can load it. */
  function take(element: Element, attribute: string, url: string): boolean {
    const kind = kindOf(element, attribute);
    // What we write ourselves is not remote.
    if (!kind || !(kind === "set" ? [...url.matchAll(CANDIDATE)].some(([, one = ""]) => files.remote(one)) : files.remote(url))) return false;
    named.set(element, { ...named.get(element), [attribute]: { url, kind } });
    filled.delete(element);
    fill(element, attribute, kind, url).catch(() => {
      if (held(element, attribute) !== url) return;
      sheets.get(element)?.remove();
      element.dispatchEvent(new Event("error"));
    });
    return true;
  }

  function forget(element: Element, attribute: string): void {
    if (held(element, attribute) === undefined) return;
    delete named.get(element)?.[attribute];
    filled.add(element);
    if (attribute === "xlink:href") removeAttribute.call(element, "href");
    sheets.get(element)?.remove();
  }

  /** What the parser or the page has written already. */
  function adopt(element: Element): void {
    for (const [name, attribute] of PLACES) {
      if (name !== element.localName) continue;
      const before = named.get(element)?.[attribute];
      const value = getAttribute.call(element, attribute);
      if (value !== null && value !== before?.url && take(element, attribute, value)) continue;
      // A link that becomes another's, such as one that was loaded ahead.
      if (before && before.kind !== kindOf(element, attribute)) take(element, attribute, before.url);
    }
    const inline = sheets.get(element);
    if (inline) {
      inline.media = (element as HTMLLinkElement).media;
      inline.disabled = (element as HTMLLinkElement).disabled;
    }
    const own = element instanceof HTMLStyleElement;
    const read = (): string => (own ? element.textContent : getAttribute.call(element, "style")) ?? "";
    const css = read();
    void files.styled(css)?.then((filled) => {
      if (read() !== css) return;
      if (own) element.textContent = filled;
      else setAttribute.call(element, "style", filled);
    });
  }

  const { prototype } = Element;
  const set = (element: Element, name: string, value: unknown, native: () => void): void => {
    const attribute = String(name).toLowerCase();
    if (take(element, attribute, String(value))) return;
    forget(element, attribute);
    native();
  };
  prototype.setAttribute = function (name, value) {
    set(this, name, value, () => setAttribute.call(this, name, value));
  };
  prototype.setAttributeNS = function (space: string | null, name: string, value: string) {
    set(this, name, value, () => setAttributeNS.call(this, space, name, value));
  };
  prototype.removeAttribute = function (name) {
    forget(this, String(name).toLowerCase());
    removeAttribute.call(this, name);
  };
  prototype.getAttribute = function (name) {
    return held(this, String(name).toLowerCase()) ?? getAttribute.call(this, name);
  };
  prototype.hasAttribute = function (name) {
    return held(this, String(name).toLowerCase()) !== undefined || hasAttribute.call(this, name);
  };
  for (const [name, attribute] of PLACES) {
    const owner = Object.getPrototypeOf(document.createElement(name)) as object;
    const native = Object.getOwnPropertyDescriptor(owner, attribute);
    if (!native?.set || !native.get) continue;
    const { get, set: write } = native;
    Object.defineProperty(owner, attribute, {
      ...native,
      get(this: Element) {
        const url = held(this, attribute);
        return url === undefined ? get.call(this) : attribute === "srcset" ? url : resolve(url);
      },
      set(this: Element, value) {
        set(this, attribute, value, () => write.call(this, value));
      },
    });
  }
  const { get } = Object.getOwnPropertyDescriptor(HTMLLinkElement.prototype, "sheet")!;
  Object.defineProperty(HTMLLinkElement.prototype, "sheet", {
    configurable: true,
    get(this: HTMLLinkElement) {
      return sheets.get(this)?.sheet ?? get!.call(this);
    },
  });

  // The browser could not load what stood there before we had it: that is no error of the page's.
  addEventListener("error", (event) => {
    const { target, isTrusted } = event;
    if (isTrusted && target instanceof Element && named.has(target) && !filled.has(target)) event.stopImmediatePropagation();
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
    observer.observe(root, { subtree: true, childList: true, attributes: true, attributeFilter: ["src", "srcset", "href", "poster", "style", "rel", "media", "disabled"] });
  observe(document);
  Element.prototype.attachShadow = function (init) {
    const root = attachShadow.call(this, init);
    observe(root);
    return root;
  };
}
