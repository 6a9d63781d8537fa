/** Elements that name a file of the backend, in the page and on their way into it, get that file. */

import { modulesRun } from "./modules";
import type { Files } from "./page-files";

type Kind = "data" | "set" | "script" | "sheet" | "ahead";

/** What an element names. */
interface Named {
  url: string;
  /** How it gets in. */
  kind: Kind;
  /** Over when it is in, or failed; absent where it has not begun. */
  begun?: Promise<unknown>;
}

/** By element and attribute that names files, how these get in. */
const NAMING: { [place: string]: Kind } = Object.assign(Object.create(null), {
  "img srcset": "set", "source srcset": "set", "script src": "script", "link href": "sheet",
});
const INSIDE = "img src,audio src,video src,source src,track src,input src,video poster,image href,image xlink:href,"
  + "body background,table background,td background,th background";
for (const place of INSIDE.split(",")) NAMING[place] = "data";
const PLACES = Object.keys(NAMING).map((place) => place.split(" ") as [string, string]);
const SELECTOR = PLACES.map(([name]) => name).join() + ",[style],style";
const CANDIDATE = /(?<=(?:^|,)\s*)([^\s,]\S*[^\s,])(\s+[\d.]+[wx][\s\dh]*)?(?=,|\s*$)/g;

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

export function watchElements(files: Files, resolve: (url: string) => string): void {
  const { setAttribute, getAttribute, removeAttribute, attachShadow } = Element.prototype;
  /** What the page named, by element and attribute, and how it gets in. */
  const named = new WeakMap<Element, { [attribute: string]: Named | undefined }>();
  /** Those that have what they name, or name nothing of the backend any more. */
  const filled = new WeakSet<Element>();
  const sheets = new WeakMap<Element, HTMLStyleElement>();
  let queue: Promise<unknown> = Promise.resolve();

  const held = (element: Element, attribute: string): string | undefined => named.get(element)?.[attribute]?.url;

  function kindOf(element: Element, attribute: string): Kind | undefined {
    const kind = NAMING[`${element.localName} ${attribute}`];
    const { rel, type, noModule } = element as HTMLLinkElement & HTMLScriptElement;
    // Others are data, or for browsers without modules.
    if (kind === "script") return noModule || (type && !/module|script$/i.test(type)) ? undefined : kind;
    if (kind !== "sheet" || /stylesheet/i.test(rel)) return kind;
    return /icon/i.test(rel) ? "data" : /preload/i.test(rel) ? "ahead" : undefined;
  }

  /** Its sheet is as a link says. */
  function follow(element: Element): void {
    const { media, title, disabled } = element as HTMLLinkElement;
    const inline = sheets.get(element);
    if (inline) Object.assign(inline, { media, title, disabled });
  }

  /** Where `text` stands in place of what `element` names. */
  async function putInline(element: HTMLScriptElement | HTMLLinkElement, text: string): Promise<void> {
    const inline = document.createElement(element.localName === "link" ? "style" : "script");
    inline.textContent = text;
    if (inline instanceof HTMLStyleElement) {
      sheets.get(element)?.remove();
      sheets.set(element, inline);
      element.after(inline);
      follow(element);
    } else {
      inline.type = element.type;
      inline.async = false; // modules run one after the other
      // It runs, too, where the page took it out again meanwhile.
      if (element.isConnected) element.after(inline);
      else document.head.append(inline);
      inline.remove();
      if (/module/i.test(inline.type)) await modulesRun();
    }
  }

  /** Begins to load what `element` names. */
  function begin(element: Element, attribute: string, what: Named): void {
    if (what.begun) return;
    const { url, kind } = what;
    /** Scripts that are not `async` run one after the other. */
    const turn = (element as HTMLScriptElement).async === false && queue;
    const over = (): boolean => named.get(element)?.[attribute] !== what;

    async function fill(): Promise<void> {
      let value: string;
      if (kind === "data") value = await files.data(url);
      else if (kind === "set") {
        const found = chosen([...url.matchAll(CANDIDATE)]);
        const data = await Promise.all(found.map(([, one = ""]) => (files.remote(one) ? files.data(one).catch(() => one) : one)));
        value = found.map(([, , size = ""], at) => data[at] + size).join(", ");
      } else {
        // Neither scripts nor sheets may be `data:` URLs there; inline ones may.
        value = await files.text(url, element as HTMLScriptElement, kind === "ahead");
        if (kind === "sheet") value = (await files.styled(value, resolve(url))) ?? value;
        await turn;
      }
      if (over()) return;
      if (/data|set/.test(kind)) {
        filled.add(element);
        return setAttribute.call(element, attribute.replace("xlink:", ""), value);
      }
      if (kind !== "ahead") await putInline(element as HTMLScriptElement, value);
      element.dispatchEvent(new Event("load"));
    }

    what.begun = fill().catch(() => {
      if (over()) return;
      filled.add(element);
      sheets.get(element)?.remove();
      element.dispatchEvent(new Event("error"));
    });
    if (turn) queue = what.begun.then(() => turn);
  }

  /** Takes what `element` names into our hands; false where the browser can load it. */
  function take(element: Element, attribute: string, url: string): boolean {
    const kind = kindOf(element, attribute);
    // What we write ourselves is not remote.
    const urls = kind === "set" ? [...url.matchAll(CANDIDATE)].map(([, one = ""]) => one) : [url];
    if (!kind || !urls.some(files.remote)) return false;
    const what: Named = { url, kind };
    named.set(element, { ...named.get(element), [attribute]: what });
    filled.delete(element);
    // Others begin when they get into the page.
    if (/data|set/.test(kind) || element.isConnected) begin(element, attribute, what);
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
  function adopt(element: Element, failed = false): void {
    for (const [name, attribute] of PLACES) {
      if (name !== element.localName) continue;
      const before = named.get(element)?.[attribute];
      const value = getAttribute.call(element, attribute);
      // Of scripts that parsers made, browsers begin some, and fail with them; others, as those of innerHTML, never run.
      if ((before || failed || name !== "script") && value !== null && value !== before?.url && take(element, attribute, value)) continue;
      if (!before) continue;
      // A link that becomes another's, such as one that was loaded ahead.
      if (before.kind !== kindOf(element, attribute)) take(element, attribute, before.url);
      else begin(element, attribute, before);
    }
    follow(element);
    const style = element.localName === "style" ? element : element.getAttributeNode("style");
    const css = style?.textContent;
    void files.styled(css ?? "")?.then((filled) => {
      if (style!.textContent === css) style!.textContent = filled;
    });
  }

  const set = (element: Element, attribute: string, value: unknown, native: () => void): void => {
    if (take(element, attribute, String(value))) return;
    forget(element, attribute);
    native();
  };
  /** `make` is told the element, the attribute, what does as the browser does, and the value. */
  type Make = (element: Element, attribute: string, native: () => unknown, value: unknown) => unknown;
  const methods: { [method: string]: Make } = {
    setAttribute: (element, attribute, native, value) => set(element, attribute, value, native),
    removeAttribute: (element, attribute, native) => (forget(element, attribute), native()),
    getAttribute: (element, attribute, native) => held(element, attribute) ?? native(),
    hasAttribute: (element, attribute, native) => held(element, attribute) !== undefined || native(),
  };
  const prototype = Element.prototype as unknown as { [method: string]: (...given: unknown[]) => unknown };
  for (const [method, make] of Object.entries(methods)) {
    for (const name of [method, `${method}NS`]) {
      const native = prototype[name]!;
      prototype[name] = function (this: Element, ...given) {
        const [first, second] = given.map(String) as [string, string];
        const attribute = name === method ? first.toLowerCase() : (/xlink/.test(first) ? "xlink:" : "") + second.replace(/.*:/, "");
        return make(this, attribute, () => native.apply(this, given), given[name === method ? 1 : 2]);
      };
    }
  }
  Element.prototype.toggleAttribute = function (this: Element, name: string, force: boolean = !this.hasAttribute(name)) {
    if (!force) this.removeAttribute(name);
    else if (!this.hasAttribute(name)) this.setAttribute(name, "");
    return !!force;
  };
  /** `read` is told the element and the browser's own getter. */
  function define(owner: object, property: string, read: (element: Element, get: () => unknown) => unknown): void {
    const { get, set: write, ...native } = Object.getOwnPropertyDescriptor(owner, property) ?? {};
    if (!get) return;
    Object.defineProperty(owner, property, {
      ...native,
      get(this: Element) {
        return read(this, () => get.call(this));
      },
      set(this: Element, value: unknown) {
        if (write) set(this, property, value, () => write.call(this, value));
      },
    });
  }
  for (const [name, attribute] of PLACES) {
    define(Object.getPrototypeOf(document.createElement(name)) as object, attribute, (element, get) => {
      const url = held(element, attribute);
      return url === undefined ? get() : /set|back/.test(attribute) ? url : resolve(url);
    });
  }
  define(HTMLLinkElement.prototype, "sheet", (link, get) => sheets.get(link)?.sheet ?? get());
  define(Image.prototype, "complete", (picture, get) => (!named.has(picture) || filled.has(picture)) && get());
  const { decode } = Image.prototype;
  Image.prototype.decode = async function () {
    await named.get(this)?.["src"]?.begun;
    return decode.call(this);
  };

  // The browser could not load what stood there before we had it: that is no error of the page's.
  addEventListener("error", (event) => {
    const { target, isTrusted } = event;
    if (!isTrusted || !(target instanceof Element)) return;
    adopt(target, true);
    if (named.has(target) && !filled.has(target)) event.stopImmediatePropagation();
  }, true);
  const observer = new MutationObserver((records) => {
    for (const { type, target, addedNodes, removedNodes } of records) {
      if (type === "attributes") adopt(target as Element);
      for (const node of removedNodes as NodeListOf<Element>) {
        sheets.get(node)?.remove();
        // A link that comes back is loaded anew.
        const href = held(node, "href");
        if (href) take(node, "href", href);
      }
      for (const node of addedNodes) {
        if (!(node instanceof Element)) {
          adopt(target as Element);
          continue;
        }
        [node, ...node.querySelectorAll(SELECTOR)].forEach((one) => adopt(one));
      }
    }
  });
  const observe = (root: Node): void =>
    observer.observe(root, { subtree: true, childList: true, attributes: true, attributeFilter: ["src", "srcset", "href", "poster", "background", "style", "rel", "media", "disabled"] });
  observe(document);
  Element.prototype.attachShadow = function (init) {
    const root = attachShadow.call(this, init);
    observe(root);
    return root;
  };
}
