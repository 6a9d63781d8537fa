/** The frame of one page, a realm of its own: the shell is the host of the view runtime in it, and trusts it with nothing. */

import { isEnvelope } from "../tools/envelope";
import { answer, failure, isMessage, isNotification, isRequest, METHOD_NOT_FOUND, notification, objectOf, type Message, type Params, type Request } from "../host/json-rpc";
import { LEAVE, OWN_METHODS, STORED } from "./protocol";

/** Milliseconds that a page has to tell what it stored, before it goes: it may be busy for ever. */
const LEAVE_TIME = 1000;

export interface FrameOwner {
  /** The host's answer to `ui/initialize`, for the page. */
  hostResult(): Params;
  /** Handles a request of the page; the returned function cancels it. */
  request(method: string, params: Params, respond: (result: { result: Params } | { error: { code: number; message: string } }, transfer?: Transferable[]) => void): (() => void) | undefined;
  notification(method: string, params: Params): void;
  /** A message of the page's own MCP server. */
  envelope(payload: unknown): void;
}

export interface PageFrame {
  element: HTMLIFrameElement;
  post(message: unknown, transfer?: Transferable[]): void;
  notify(method: string, params: Params): void;
  /** The storage of the page; undefined if it does not report it. */
  leave(): Promise<string | undefined>;
  /** Removes it: its calls are cancelled. */
  remove(): void;
}

/** The conversation with one page. */
export interface Peer {
  post(message: unknown, transfer?: Transferable[]): void;
  receive(message: Message): void;
  /** Cancels its calls. */
  end(): void;
}

/** `post` sends a message to the page, and `stored` receives its storage before it goes. */
export function createPeer(post: (message: unknown, transfer: Transferable[]) => void, owner: FrameOwner, stored?: (text: string | undefined) => void): Peer {
  const running = new Map<unknown, () => void>();
  const send = (message: unknown, transfer: Transferable[] = []): void => post(message, transfer);

  function receiveRequest({ id, method, params = {} }: Request): void {
    if (method === "ui/initialize") return send(answer(id, owner.hostResult()));
    if (method === "ping") return send(answer(id, {}));
    if (running.has(id)) return;
    const cancel = owner.request(method, params, (response, transfer) => {
      running.delete(id);
      send({ jsonrpc: "2.0", id, ...response }, transfer);
    });
    if (cancel) running.set(id, cancel);
  }

  return {
    post: send,
    receive(message) {
      if (isRequest(message)) return receiveRequest(message);
      if (!isNotification(message)) return;
      const { stored: text } = objectOf(message.params);
      if (message.method === STORED) stored?.(typeof text === "string" ? text : undefined);
      else if (message.method === "notifications/cancelled") {
        const id = message.params?.["requestId"];
        running.get(id)?.();
        running.delete(id);
      } else if (message.method !== "ui/notifications/initialized") owner.notification(message.method, objectOf(message.params));
    },
    end() {
      running.forEach((cancel) => cancel());
      running.clear();
    },
  };
}

export function createPageFrame(html: string, name: string, allow: string, owner: FrameOwner): PageFrame {
  const element = document.createElement("iframe");
  element.style.cssText = "position:fixed;inset:0;width:100%;height:100%;border:0";
  // Without an origin, and without permission to navigate anything but itself.
  element.setAttribute("sandbox", "allow-scripts");
  element.allow = allow;
  element.name = name;
  element.srcdoc = html;
  let left: ((stored: string | undefined) => void) | undefined;
  const peer = createPeer((message, transfer) => element.contentWindow?.postMessage(message, "*", transfer), owner, (stored) => left?.(stored));

  const listen = ({ source, data }: MessageEvent<unknown>): void => {
    if (!source || source !== element.contentWindow) return;
    if (isEnvelope(data)) {
      if (data.direction === "server-to-client") owner.envelope(data.payload);
    } else if (isMessage(data)) peer.receive(data);
  };
  addEventListener("message", listen);

  return {
    element,
    post: peer.post,
    notify: (method, params) => peer.post(notification(method, params)),
    leave: () =>
      new Promise((resolve) => {
        left = resolve;
        setTimeout(resolve, LEAVE_TIME);
        peer.post(notification(LEAVE));
      }),
    remove() {
      removeEventListener("message", listen);
      peer.end();
      element.remove();
    },
  };
}

/** The answer to a request that the shell does not pass on. */
export const refused = (method: string) => failure(0, METHOD_NOT_FOUND, `Method not found: ${method}`).error!;

export const isOwn = (method: string): boolean => method.startsWith(OWN_METHODS);
