/** The frames of a page of the backend that show others: the shell loads them, since nothing in a view navigates. */

import { attempt } from "../attempt";
import { wrapGetter } from "./entries";
import { FRAME, FRAMED, FRAME_PAGE } from "../shell/protocol";
import { isMessage } from "../host/json-rpc";
import { isEnvelope } from "../tools/envelope";

/** The attribute with the URL of a frame. */
const HELD = "webmcp-gateway-src";

interface FrameDependencies {
  notify(method: string, params: object): void;
  resolve(url: string): URL;
  here(): string;
  origin: string;
  /** The pages around this one, and itself. */
  above: string[];
}

export interface OwnFrames {
  /** A message of the shell: true if it concerns a frame. */
  take(method: string, params: { [name: string]: unknown }): boolean;
  /** Shows a page of the app in the frame with that name; returns whether there is such a frame. */
  lead(name: string, url: string): boolean;
}

export function watchFrames({ notify, resolve, here, origin, above }: FrameDependencies): OwnFrames {
  const elements = new Map<string, HTMLIFrameElement>();
  const ids = new WeakMap<HTMLIFrameElement, string>();
  const asked = new WeakMap<HTMLIFrameElement, string>();
  const { setAttribute, getAttribute } = Element.prototype;
  const native = Object.getOwnPropertyDescriptor(HTMLIFrameElement.prototype, "src")!;
  const nativeDocument = Object.getOwnPropertyDescriptor(HTMLIFrameElement.prototype, "srcdoc")!;
  const prefix = Math.random().toString(36).slice(2);
  let count = 0;

  const isOwn = (url: string): boolean => attempt(() => resolve(url).origin) === origin && !/^\s*(about|javascript|data|blob):/i.test(url);

  function open(element: HTMLIFrameElement, url: string): void {
    const id = ids.get(element) ?? `${prefix}-${++count}`;
    ids.set(element, id);
    elements.set(id, element);
    asked.set(element, url);
    notify(FRAME, { frame: id, url: resolve(url).href, at: here(), above });
  }

  /** Takes over what the parser, or markup of the page, has written. */
  function adopt(element: HTMLIFrameElement): void {
    const source = getAttribute.call(element, "src");
    if (source !== null && isOwn(source) && !element.hasAttribute("srcdoc")) {
      setAttribute.call(element, HELD, source);
      element.removeAttribute("src");
    }
    const held = getAttribute.call(element, HELD);
    if (held !== null && element.isConnected && asked.get(element) !== held) open(element, held);
  }

  function set(element: HTMLIFrameElement, value: string, write: () => void): void {
    if (!isOwn(value)) {
      element.removeAttribute(HELD);
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
  Element.prototype.setAttribute = function (name, value) {
    if (this instanceof HTMLIFrameElement && /^src$/i.test(name)) set(this, String(value), () => setAttribute.call(this, name, value));
    else setAttribute.call(this, name, value);
  };
  Element.prototype.getAttribute = function (name) {
    return (this instanceof HTMLIFrameElement && /^src$/i.test(name) ? getAttribute.call(this, HELD) : null) ?? getAttribute.call(this, name);
  };
  new MutationObserver((records) => {
    for (const { target, addedNodes } of records) {
      if (target instanceof HTMLIFrameElement) adopt(target);
      for (const node of addedNodes) {
        if (node instanceof HTMLIFrameElement) adopt(node);
        else if (node instanceof Element) node.querySelectorAll("iframe").forEach(adopt);
      }
    }
  }).observe(document, { childList: true, subtree: true, attributes: true, attributeFilter: ["src", HELD] });

  const frameOf = (source: unknown): string | undefined => {
    for (const [id, element] of elements) if (element.contentWindow === source) return id;
    return undefined;
  };
  // What a frame says to the shell; what its page says to this one is this one's.
  addEventListener("message", (event: MessageEvent<unknown>) => {
    const isTools = isEnvelope(event.data);
    const id = isTools || isMessage(event.data) ? frameOf(event.source) : undefined;
    if (id === undefined) return;
    event.stopImmediatePropagation();
    // The tools of a frame are not the page's.
    if (!isTools) notify(FRAMED, { frame: id, message: event.data });
  }, true);
  const parent = above.length > 1 ? window.parent : undefined;
  wrapGetter(MessageEvent.prototype, "origin", (event, given) => (event.source && (event.source === parent || frameOf(event.source) !== undefined) ? origin : given));

  return {
    take(method, params) {
      if (method !== FRAMED && method !== FRAME_PAGE) return false;
      const element = elements.get(String(params["frame"]));
      // One within a frame of this page.
      if (!element) for (const one of elements.values()) one.contentWindow?.postMessage({ jsonrpc: "2.0", method, params }, "*");
      else if (method === FRAMED) element.contentWindow?.postMessage(params["message"], "*");
      else nativeDocument.set!.call(element, params["html"]);
      return true;
    },
    lead(name, url) {
      const element = name ? [...elements.values()].find((one) => one.isConnected && one.name === name) : undefined;
      if (!element) return false;
      open(element, url);
      return true;
    },
  };
}
