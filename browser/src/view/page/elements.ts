/** Loads files of the backend into elements that refer to them; the page still reads its original values. */

import { attempt } from "../attempt";
import { CANDIDATE, chooseCandidates, originalValue } from "./candidates";
import { afterModules } from "./modules";
import type { Files } from "./page-files";
import { wrap } from "../wrap";
import { originalMarkup } from "./original-markup";

type Kind = "data" | "set" | "script" | "sheet" | "ahead";

/** A reference of an element. */
interface Reference {
  url: string;
  /** The way in which it is loaded. */
  kind: Kind;
  /** Whether the element lacks the attribute, which is written with the file. */
  unwritten: boolean;
  /** Settled when it is loaded, or failed; absent before it has begun. */
  whenLoaded?: Promise<unknown>;
  /** Whether the browser has the file, so that its events are valid. */
  hasFile?: boolean;
  /** Whether it reported a failure. */
  failed: boolean;
}

/** Kinds whose file is written into the element itself. */
const WRITTEN_INSIDE = /data|set/;
/** The kind by element and attribute. */
const KINDS: { [place: string]: Kind } = Object.assign(Object.create(null), {
  "img srcset": "set", "source srcset": "set", "script src": "script", "link href": "sheet",
});
const FILES = "img src,audio src,video src,source src,track src,input src,video poster,image href,image xlink:href,"
  + "body background,table background,td background,th background";
for (const place of FILES.split(",")) KINDS[place] = "data";
const PLACES = Object.keys(KINDS).map((place) => place.split(" ") as [string, string]);
const SELECTOR = PLACES.map(([name]) => name).join() + ",[style],style,meta";
/** Follows each value of ours: the page's original value, or nothing if the page has no such attribute. */
const OURS = "#webmcp-gateway:";
/** An empty image, for which browsers show no missing sign, and a missing file. */
const NOTHING = "data:image/svg+xml,<svg%20xmlns='http://www.w3.org/2000/svg'%20width='0'/>" + OURS, MISSING = "data:,x";

const isSource = ({ localName }: Element, attribute: string): boolean => localName + attribute === "sourcesrc";
/** Resolves when a lazy image is near the viewport, or no longer lazy; a part of the runtime defines it. */
const whenNear = (element: Element): Promise<void> | undefined => (window as { webmcpGatewayNear?: (element: Element) => Promise<void> | undefined }).webmcpGatewayNear?.(element);

/** The attribute for the file: the browser prefers it, so that the other can keep the page's value. */
const slotOf = ({ localName }: Element, attribute: string): string =>
  localName + attribute === "imgsrc" ? "srcset" : attribute.replace("xlink:", "");

export function watchElements(files: Files, resolve: (url: string) => string): void {
  const { setAttribute, getAttribute, removeAttribute } = Element.prototype;
  const references = new WeakMap<Element, { [attribute: string]: Reference }>();
  const sheets = new WeakMap<Element, HTMLStyleElement>();
  /** A script that has started there counts as started in all documents. */
  const nowhere = document.implementation.createHTMLDocument().head;
  let queue: Promise<unknown> = Promise.resolve();
  let count = 0;
  const referenceOf = (element: Element, attribute: string): Reference | undefined => references.get(element)?.[attribute];

  /** The page's reference if the element lacks the attribute. */
  function unwrittenUrl(element: Element, attribute: string): string | undefined {
    const { unwritten, url } = referenceOf(element, attribute) ?? {};
    return unwritten ? url : undefined;
  }

  /** The value that the page reads; undefined if the attribute is ours only. */
  const valueOf = (element: Element, attribute: string): string | null | undefined =>
    unwrittenUrl(element, attribute) ?? originalValue(getAttribute.call(element, attribute));

  /** Whether a file of `element`, or of its picture, is outstanding; scripts and sheets are not written into the element. */
  const pending = (element: Element): boolean =>
    [element, ...element.closest("picture")?.children ?? []].some((one) =>
      Object.entries(references.get(one) ?? {}).some(([attribute, { hasFile, kind }]) => !hasFile && kind === kindOf(one, attribute)));

  function kindOf(element: Element, attribute: string): Kind | undefined {
    const kind = KINDS[`${element.localName} ${attribute}`];
    const slot = slotOf(element, attribute);
    // If both exist, browsers take the other.
    if (!kind || (slot !== attribute && valueOf(element, slot))) return undefined;
    const { rel, type, noModule } = element as HTMLLinkElement & HTMLScriptElement;
    // Others are data, or for browsers without modules.
    if (kind === "script") return noModule || (type && !/module|script$/i.test(type)) ? undefined : kind;
    if (kind !== "sheet" || /stylesheet/i.test(rel)) return kind;
    return /\bpreload/i.test(rel) ? "ahead" : undefined;
  }

  /** Applies the link's properties to its sheet. */
  function updateSheet(element: Element): void {
    const { media, title, disabled } = element as HTMLLinkElement;
    const inline = sheets.get(element);
    if (inline) Object.assign(inline, { media, title, disabled });
  }

  /** Puts `text` inline in place of the element's reference. */
  async function putInline(element: HTMLScriptElement | HTMLLinkElement, text: string): Promise<void> {
    const inline = document.createElement(element.localName === "link" ? "style" : "script");
    inline.textContent = text;
    if (inline instanceof HTMLStyleElement) {
      setAttribute.call(inline, "webmcp-gateway", "");
      sheets.get(element)?.remove();
      sheets.set(element, inline);
      element.after(inline);
      updateSheet(element);
    } else {
      inline.type = element.type;
      inline.async = false; // modules run one after the other
      Object.defineProperty(document, "currentScript", { configurable: true, value: element });
      // It also runs if the page removed it meanwhile.
      if (element.isConnected) element.after(inline);
      else document.head.append(inline);
      inline.remove();
      Reflect.deleteProperty(document, "currentScript");
      if (/module/i.test(inline.type)) await afterModules();
    }
  }

  /** Removes `element`, and puts it back in its place. */
  function reinsert(element: Element, meanwhile?: () => void): void {
    const { parentNode, nextSibling } = element;
    meanwhile?.();
    document.adoptNode(element);
    parentNode?.insertBefore(element, nextSibling);
  }

  /** Begins to load a reference of `element`. */
  function load(element: Element, attribute: string, reference: Reference): void {
    const { parentElement, previousElementSibling: earlier } = element;
    // Browsers load the sources of a video or a sound in order, until one plays.
    if (reference.whenLoaded || (isSource(element, attribute) && (!parentElement || (earlier && referenceOf(earlier, attribute)?.failed === false)))) return;
    const { url, kind } = reference;
    const slot = slotOf(element, attribute);
    const inside = WRITTEN_INSIDE.test(kind);
    /** Scripts that are not `async` run one after the other. */
    const turn = (element as HTMLScriptElement).async === false && queue;
    const isOutdated = (): boolean => referenceOf(element, attribute) !== reference || kindOf(element, attribute) !== kind;

    async function loadFile(): Promise<void> {
      let value: string;
      // Firefox fires no event for an unchanged image: all values differ.
      const ours = slot === attribute ? OURS + encodeURI(url) : `#${count++}${OURS}`;
      // Attributes that the page sets at the same time count, too.
      if (inside) await undefined;
      await whenNear(element);
      if (kind === "data") value = (await files.data(url).catch(() => MISSING)) + ours;
      else if (kind === "set") {
        const found = chooseCandidates([...url.matchAll(CANDIDATE)]);
        const all = await Promise.all(found.map(([, one = ""]) => (files.needsBackend(one) ? files.data(one).catch(() => one) : one)));
        value = found.map(([, , size = ""], at) => all[at] + (at ? "" : ours) + size).join(", ");
      } else {
        // Neither scripts nor sheets may be `data:` URLs there; inline ones are permitted.
        value = await files.text(url, element as HTMLScriptElement, kind === "ahead");
        if (kind === "sheet") {
          // Browsers would load its imports in vain: an import must come first, and a part of the runtime handles it.
          value = value.replace(/^(?=.*@import)/is, "@media{}");
          value = (await files.embedFiles(value, resolve(url))) ?? value;
        }
        await turn;
      }
      if (isOutdated()) return;
      if (inside) {
        reference.hasFile = true;
        reference.unwritten = false;
        setAttribute.call(element, slot, value);
        // The browser has given up on that one, and checks added ones.
        if (isSource(element, attribute)) reinsert(element);
        return;
      }
      if (kind !== "ahead") await putInline(element as HTMLScriptElement, value);
      element.dispatchEvent(new Event("load"));
    }

    reference.whenLoaded = loadFile().catch(() => {
      if (isOutdated()) return;
      sheets.get(element)?.remove();
      element.dispatchEvent(new Event("error"));
    });
    if (turn) queue = reference.whenLoaded.then(() => turn);
  }

  /** Takes over a reference of `element`; `write` does what the browser does. False if the browser can load it. */
  function takeOver(element: Element, attribute: string, url: string, write?: () => void): boolean {
    const kind = kindOf(element, attribute);
    // Our own values are not remote.
    const urls = kind === "set" ? [...url.matchAll(CANDIDATE)].map(([, one = ""]) => one) : [url];
    if (!kind) return false;
    const inside = WRITTEN_INSIDE.test(kind);
    if (!urls.some((one) => files.needsBackend(one, !inside))) return false;
    const slot = slotOf(element, attribute);
    const before = referenceOf(element, attribute);
    // A script runs once.
    if (kind === "script" && before?.whenLoaded) return !write?.();
    const now: Reference = { url, kind, unwritten: inside && slot === attribute && !!write, failed: false };
    references.set(element, { ...references.get(element), [attribute]: now });
    const heard = element.closest("picture")?.querySelector("img") ?? element;
    if (inside && !before) for (const type of ["load", "error"]) heard.addEventListener(type, hideEvent, true);
    if (slot !== attribute && !before) setAttribute.call(element, slot, NOTHING);
    if (kind === "script" && write) {
      // The browser itself must not run it.
      reinsert(element, () => {
        nowhere.append(element);
        write();
      });
    } else if (!now.unwritten) write?.();
    // Others begin when they are inserted into the page.
    if (inside || element.isConnected) load(element, attribute, now);
    return true;
  }

  function forget(element: Element, attribute: string): void {
    if (!KINDS[`${element.localName} ${attribute}`]) return;
    delete references.get(element)?.[attribute];
    const slot = slotOf(element, attribute);
    if (slot !== attribute && valueOf(element, slot) === undefined) removeAttribute.call(element, slot);
    sheets.get(element)?.remove();
  }

  /** Takes over what the parser or the page has written already. */
  function adopt(element: Element, failed = false): void {
    // A refresh would unload the view in any case; a part of the runtime follows it as a link.
    if (/refresh/i.test((element as HTMLMetaElement).httpEquiv)) void loaded.then(() => stop());
    for (const [name, attribute] of PLACES) {
      if (name !== element.localName) continue;
      const before = referenceOf(element, attribute);
      const value = valueOf(element, attribute);
      if (typeof value !== "string") {
        if (before) forget(element, attribute);
        continue;
      }
      const slot = slotOf(element, attribute);
      const lost = slot !== attribute && !getAttribute.call(element, slot)?.includes(OURS);
      // Browsers start some scripts that parsers made, which fail; others, such as those of innerHTML, never run.
      if ((before || failed || name !== "script") && (value !== before?.url || lost) && takeOver(element, attribute, value)) continue;
      if (!before) continue;
      // A link that changes its kind, such as a preloaded one.
      if (before.kind !== kindOf(element, attribute)) takeOver(element, attribute, value) || forget(element, attribute);
      else load(element, attribute, before);
    }
    void whenNear(element);
    updateSheet(element);
    const style = element.localName === "style" ? element : element.getAttributeNode("style");
    const css = style?.textContent;
    void files.embedFiles(css ?? "")?.then((filled) => {
      if (style!.textContent === css) style!.textContent = filled;
    });
  }

  const set = (element: Element, attribute: string, given: unknown, native: () => void): void => {
    const value = String(given);
    const place = element.localName + attribute;
    const typed = place === "linktype" && getAttribute.call(element, "type")?.includes(OURS);
    // Browsers do not load a sheet of an unknown type.
    if (typed || (place === "linkhref" && files.needsBackend(value, true))) {
      setAttribute.call(element, "type", OURS + encodeURI(typed ? value : (element as HTMLLinkElement).type));
      if (typed) return;
    }
    if (takeOver(element, attribute, value, native)) return;
    forget(element, attribute);
    native();
  };
  /** `make` receives the element, the attribute, the native function, and the value. */
  type Make = (element: Element, attribute: string, native: () => unknown, value: unknown) => unknown;
  const methods: { [method: string]: Make } = {
    setAttribute: (element, attribute, native, value) => set(element, attribute, value, native),
    removeAttribute: (element, attribute, native) => {
      // An attribute that is ours only does not exist for the page.
      if (valueOf(element, attribute) === undefined) return;
      forget(element, attribute);
      native();
    },
    getAttribute: (element, attribute, native) => unwrittenUrl(element, attribute) ?? originalValue(native() as string | null) ?? null,
    hasAttribute: (element, attribute, native) =>
      unwrittenUrl(element, attribute) !== undefined || (native() && originalValue(getAttribute.call(element, attribute)) !== undefined),
  };
  for (const [method, make] of Object.entries(methods)) {
    for (const name of [method, `${method}NS`]) {
      wrap<Element>(Element.prototype, name, (native, element, given) => {
        const [first, second] = given.map(String) as [string, string];
        const attribute = name === method ? first.toLowerCase() : (/xlink/.test(first) ? "xlink:" : "") + second.replace(/.*:/, "");
        return make(element, attribute, native, given[name === method ? 1 : 2]);
      });
    }
  }
  /** `read` receives the element and the browser's own getter. */
  function define(owner: object, property: string, read: (element: Element, get: () => unknown) => unknown): void {
    const { get, set: write, ...native } = Object.getOwnPropertyDescriptor(owner, property) ?? {};
    if (!get) return;
    Object.defineProperty(owner, property, {
      ...native,
      get(this: Element) {
        return read(this, () => get.call(this));
      },
      set(this: Element, value: unknown) {
        if (!write) return;
        set(this, property, value, () => write.call(this, value));
        // Before the browser loads its contents, also where no observer sees them.
        if (property === "innerHTML" && this.ownerDocument === document) adoptAll(this);
      },
    });
  }
  for (const [name, attribute] of [...PLACES, ["", "src"]] as const) {
    const owner = name ? Object.getPrototypeOf(document.createElement(name)) as object : HTMLMediaElement.prototype;
    define(owner, attribute, (element, get) => {
      const url = valueOf(element, attribute) ?? "";
      return /set|back/.test(attribute) ? url : files.needsBackend(url) ? (attempt(() => resolve(url)) ?? url) : get();
    });
  }
  define(HTMLLinkElement.prototype, "type", (_, get) => originalValue(get() as string) ?? "");
  define(HTMLLinkElement.prototype, "sheet", (link, get) => sheets.get(link)?.sheet ?? get());
  define(Image.prototype, "complete", (picture, get) => !pending(picture) && get());
  for (const owner of [Element.prototype, ShadowRoot.prototype]) {
    for (const property of ["innerHTML", "outerHTML"]) define(owner, property, (_, get) => originalMarkup(get() as string));
  }

  /** Events for our placeholder values, before the file is loaded, are hidden from the page. */
  function hideEvent(event: Event): void {
    const { target, isTrusted, type } = event;
    if (!isTrusted || !(target instanceof Element)) return;
    if (type === "error") adopt(target, true);
    if (pending(target)) return event.stopImmediatePropagation();
    const source = referenceOf(target, "src");
    if (source) source.failed = type === "error";
  }
  addEventListener("error", hideEvent, true);
  // Before the load event, no browser refreshes, and a stop would end its parsing.
  const loaded = new Promise((go) => addEventListener("load", go, true));
  const adoptAll = (root: ParentNode): void => root.querySelectorAll(SELECTOR).forEach((one) => adopt(one));
  const elementsIn = (node: Node): Element[] => (node instanceof Element ? [node, ...node.querySelectorAll(SELECTOR)] : []);
  const observer = new MutationObserver((records) => {
    for (const { type, target, addedNodes, removedNodes } of records) {
      // For a style, its text changes; a text may be directly in a shadow root.
      if (type === "attributes" || (target as Element).localName === "style") adopt(target as Element);
      for (const node of removedNodes) {
        for (const one of elementsIn(node)) {
          sheets.get(one)?.remove();
          // A link that is inserted again is reloaded.
          const link = referenceOf(one, "href");
          if (link) takeOver(one, "href", link.url);
        }
      }
      for (const node of addedNodes) for (const one of elementsIn(node)) adopt(one);
    }
  });
  const observe = (root: Node): void =>
    observer.observe(root, { subtree: true, childList: true, attributes: true, attributeFilter: "src,srcset,href,poster,background,style,rel,media,disabled,loading,content,http-equiv".split(",") });
  observe(document);
  // A declarative root exists already, and is passed by a part of the runtime.
  wrap(Element.prototype, "attachShadow", (native, _, [init]) => {
    const root = (init as { declared?: ShadowRoot }).declared ?? (native() as ShadowRoot);
    observe(root);
    adoptAll(root);
    return root;
  });
}
