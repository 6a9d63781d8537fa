/** The frames of a page that show others of its backend: they are loaded through the gateway, since nothing in a view navigates. */

import { attempt } from "../attempt";
import { withIdentityOf } from "../wrap";
import { wrapGetter } from "./entries";
import { FRAME, FRAMED, FRAME_PAGE, type Navigation } from "../shell/protocol";
import { isMessage } from "../host/json-rpc";
import { isEnvelope } from "../tools/envelope";

/** The attribute with the URL of a frame. */
const HELD = "webmcp-gateway-src";
/** Elements for plugins, with the URL as the page writes it, or as the gateway does. */
const PLUGINS = `object[data],embed[src],object[webmcp-gateway-data],embed[${HELD}]`;
const PLUGIN_FILE = /\.(?:pdf|swf|jar|class)$|^application\/(?:pdf|x-shockwave|x-java|java)/i;
const PICTURE_FILE = /\.(?:apng|avif|bmp|gif|ico|jfif|jpe?g|png|svg|webp)$|^(?:data:)?image\//i;

interface FrameDependencies {
  notify(method: string, params: object): void;
  resolve(url: string): URL;
  here(): string;
  origin: string;
  /** The pages around this one, and itself. */
  above(): string[];
}

export interface OwnFrames {
  /** A message of the shell: true if it concerns a frame. */
  take(method: string, params: { [name: string]: unknown }): boolean;
  /** Shows a page of the app in the frame with that name; returns whether there is such a frame. */
  lead(name: string, navigation: Navigation): boolean;
}

export function watchFrames({ notify, resolve, here, origin, above }: FrameDependencies): OwnFrames {
  const elements = new Map<string, HTMLIFrameElement>();
  const ids = new WeakMap<HTMLIFrameElement, string>();
  const asked = new WeakMap<HTMLIFrameElement, string>();
  const empty = new WeakSet<HTMLIFrameElement>();
  const { setAttribute, getAttribute } = Element.prototype;
  const native = Object.getOwnPropertyDescriptor(HTMLIFrameElement.prototype, "src")!;
  const nativeDocument = Object.getOwnPropertyDescriptor(HTMLIFrameElement.prototype, "srcdoc")!;
  const prefix = Math.random().toString(36).slice(2);
  const told = new Set<string>();
  let count = 0;

  const isOwn = (url: string): boolean => attempt(() => resolve(url).origin) === origin && !/^\s*(about|javascript|data|blob):/i.test(url);

  function open(element: HTMLIFrameElement, navigation: Navigation): void {
    const id = ids.get(element) ?? `${prefix}-${++count}`;
    ids.set(element, id);
    elements.set(id, element);
    notify(FRAME, { ...navigation, frame: id, url: resolve(navigation.url).href, at: here(), above: above() });
  }

  /** The element shows something else, or is not in the page any more. */
  function close(element: HTMLIFrameElement): void {
    const id = ids.get(element);
    if (id === undefined) return;
    ids.delete(element);
    elements.delete(id);
    asked.delete(element);
    element.removeAttribute("srcdoc");
    notify(FRAME, { frame: id, gone: true });
  }

  /** Takes over what the parser, or markup of the page, has written. */
  function adopt(element: HTMLIFrameElement): void {
    const source = getAttribute.call(element, "src");
    if (source !== null && isOwn(source) && (!element.hasAttribute("srcdoc") || ids.has(element))) {
      setAttribute.call(element, HELD, source);
      element.removeAttribute("src");
    }
    const held = getAttribute.call(element, HELD);
    if (held === null || !element.isConnected || asked.get(element) === held) return;
    if (!ids.has(element)) empty.add(element);
    asked.set(element, held);
    open(element, { url: held });
  }

  function set(element: HTMLIFrameElement, value: string, write: () => void): void {
    if (!isOwn(value)) {
      element.removeAttribute(HELD);
      close(element);
      return write();
    }
    setAttribute.call(element, HELD, value);
    asked.delete(element);
    adopt(element);
  }

  Object.defineProperty(HTMLIFrameElement.prototype, "src", {
    ...native,
    get(this: HTMLIFrameElement) {
      const held = getAttribute.call(this, HELD);
      return held === null ? (native.get!.call(this) as string) : resolve(held).href;
    },
    set(this: HTMLIFrameElement, value: unknown) {
      set(this, String(value), () => native.set!.call(this, value));
    },
  });
  Object.defineProperty(HTMLIFrameElement.prototype, "srcdoc", {
    ...nativeDocument,
    get(this: HTMLIFrameElement) {
      return ids.has(this) ? "" : (nativeDocument.get!.call(this) as string);
    },
    set(this: HTMLIFrameElement, value: unknown) {
      this.removeAttribute(HELD);
      close(this);
      nativeDocument.set!.call(this, value);
    },
  });
  Element.prototype.setAttribute = withIdentityOf(setAttribute, function (this: Element, name: string, value: string) {
    if (this instanceof HTMLIFrameElement && /^src$/i.test(name)) set(this, String(value), () => setAttribute.call(this, name, value));
    else if (this instanceof HTMLIFrameElement && /^srcdoc$/i.test(name)) this.srcdoc = value;
    else setAttribute.call(this, name, value);
  });
  Element.prototype.getAttribute = withIdentityOf(getAttribute, function (this: Element, name: string) {
    return (this instanceof HTMLIFrameElement && /^src$/i.test(name) ? getAttribute.call(this, HELD) : null) ?? getAttribute.call(this, name);
  });

  const replacements = new WeakMap<Element, HTMLElement>();
  /** Shows what an <object> or <embed> names as a picture or in a frame: no view loads plugins. */
  function replacePlugin(element: HTMLElement): void {
    if (document.readyState === "loading") return document.addEventListener("DOMContentLoaded", () => replacePlugin(element), { once: true });
    const isObject = element.localName === "object";
    const name = isObject ? "data" : "src";
    const written = getAttribute.call(element, name);
    const url = (written ?? getAttribute.call(element, `webmcp-gateway-${name}`) ?? "").trim();
    const outer = element.parentElement?.closest("object");
    if (!element.isConnected || (outer && replacements.has(outer))) return;
    const type = getAttribute.call(element, "type") ?? "";
    const path = attempt(() => resolve(url).pathname) ?? "";
    if (!isOwn(url) && !/^data:image\//i.test(url)) return;
    if (PLUGIN_FILE.test(type) || PLUGIN_FILE.test(path)) {
      if (!told.has(url)) console.warn(`webmcp-gateway: <${element.localName}> of ${url} shows nothing in a view: link to the file, or use an <iframe> for a page`);
      return void told.add(url);
    }
    if (written !== null) {
      setAttribute.call(element, `webmcp-gateway-${name}`, url);
      element.removeAttribute(name);
    }
    replacements.get(element)?.remove();
    const picture = [type, path, url].some((one) => PICTURE_FILE.test(one));
    const shown = document.createElement(picture ? "img" : "iframe");
    const hidden = isObject ? [...element.children] as HTMLElement[] : [element];
    if (isObject) {
      element.style.fontSize = "0";
      if (getComputedStyle(element).display === "inline") element.style.display = "inline-block";
      shown.style.cssText = "border:0;width:100%;height:100%";
    } else {
      for (const copied of ["class", "style", "width", "height", "title"]) {
        const value = getAttribute.call(element, copied);
        if (value !== null) setAttribute.call(shown, copied, value);
      }
      shown.style.border ||= "0";
    }
    for (const one of hidden) one.style.setProperty("display", "none", "important");
    replacements.set(element, shown);
    shown.addEventListener("load", () => element.dispatchEvent(new Event("load")));
    shown.addEventListener("error", () => {
      if (isObject) {
        shown.remove();
        replacements.delete(element);
        element.style.fontSize = "";
        for (const one of hidden) one.style.removeProperty("display");
        element.querySelectorAll<HTMLElement>(PLUGINS).forEach(replacePlugin);
      }
      element.dispatchEvent(new Event("error"));
    });
    shown.src = url;
    if (isObject) element.prepend(shown);
    else element.after(shown);
  }
  const each = (nodes: NodeList, selector: string, run: (element: Element) => void): void => {
    for (const node of nodes) {
      if (!(node instanceof Element)) continue;
      if (node.matches(selector)) run(node);
      node.querySelectorAll(selector).forEach(run);
    }
  };
  new MutationObserver((records) => {
    for (const { target, addedNodes, removedNodes } of records) {
      if (target instanceof HTMLIFrameElement) adopt(target);
      else if (target instanceof HTMLElement && target.matches("object[data],embed[src]")) replacePlugin(target);
      each(removedNodes, "iframe", (one) => !one.isConnected && close(one as HTMLIFrameElement));
      each(addedNodes, "iframe", (one) => adopt(one as HTMLIFrameElement));
      each(addedNodes, PLUGINS, (one) => replacePlugin(one as HTMLElement));
      each(removedNodes, "embed", (one) => !one.isConnected && replacements.get(one)?.remove());
    }
  }).observe(document, { childList: true, subtree: true, attributes: true, attributeFilter: ["src", "data", HELD] });
  // Until its page is there, such a frame is empty, which a browser reports as a page.
  document.addEventListener("load", (event) => {
    if (event.target instanceof HTMLIFrameElement && (empty.has(event.target) || (getAttribute.call(event.target, HELD) !== null && !ids.has(event.target)))) event.stopImmediatePropagation();
  }, true);

  const frameOf = (source: unknown): string | undefined => {
    for (const [id, element] of elements) if (element.contentWindow === source) return id;
    return undefined;
  };
  // What a frame says to the shell; what its page says to this one is this one's.
  addEventListener("message", (event: MessageEvent<unknown>) => {
    const isTools = isEnvelope(event.data);
    if (!isTools && !isMessage(event.data)) return;
    const id = frameOf(event.source);
    // What a page said last, before its frame showed another, has no source.
    if (id !== undefined || (event.isTrusted && !event.source)) event.stopImmediatePropagation();
    if (id === undefined) return;
    // The tools of a frame are not the page's.
    if (!isTools) notify(FRAMED, { frame: id, message: event.data });
  }, true);
  const parent = above().length > 1 ? window.parent : undefined;
  wrapGetter(MessageEvent.prototype, "origin", (event, given) => (event.source && (event.source === parent || frameOf(event.source) !== undefined) ? origin : given));

  function lead(name: string, navigation: Navigation): boolean {
    const element = name && !/^_/.test(name) ? [...document.querySelectorAll("iframe")].find((one) => one.name === name) : undefined;
    if (!element || !isOwn(navigation.url)) return false;
    open(element, navigation);
    return true;
  }
  const { open: openWindow } = window;
  window.open = (url, name, ...rest) => {
    const element = name ? [...document.querySelectorAll("iframe")].find((one) => one.name === name) : undefined;
    return element && lead(name!, { url: String(url) }) ? element.contentWindow : openWindow(url, name, ...rest);
  };

  return {
    take(method, params) {
      if (method !== FRAMED && method !== FRAME_PAGE) return false;
      const element = elements.get(String(params["frame"]));
      // One within a frame of this page.
      if (!element) for (const one of elements.values()) one.contentWindow?.postMessage({ jsonrpc: "2.0", method, params }, "*");
      else if (method === FRAMED) element.contentWindow?.postMessage(params["message"], "*");
      else {
        empty.delete(element);
        nativeDocument.set!.call(element, params["html"]);
      }
      return true;
    },
    lead,
  };
}
