/** Both ends of the page's connection: the real parent, and the one that the page sees. */

import { REAL, type Natives } from "../natives";

/** The result of `fromHost` for a message that the page must not see. */
export const HANDLED = Symbol();

export interface Wire {
  toHost(message: unknown): void;
  toPage(message: unknown): void;
}

export interface Receivers {
  /** The part of `message` that the page may see, or `HANDLED`; `port` was transferred with it. */
  fromHost(message: unknown, port?: MessagePort): unknown;
  /** True if `message` was handled; else it is sent to the host unchanged. */
  fromPage(message: unknown): boolean;
}

/**
 * A property of the real parent.
 *
 * A foreign parent's document throws, from which mcp-b's libraries conclude that no tools may be registered here; that
 * is up to our `modelContext`. Unknown properties are undefined, as with a parent of the same origin: Vue looks for its
 * own marks.
 */
function read(parent: Window, key: string | symbol): unknown {
  try {
    return Reflect.get(parent, key);
  } catch (error) {
    if (key === "document" || !(key in window)) return undefined;
    throw error;
  }
}

/**
 * Replaces `window.parent`, which is `[Replaceable]`. Only messages of the real parent, or of a host's replacement, are
 * accepted; they reach the page from the replaced one, so that `event.source === window.parent` holds there.
 */
export function openWire(scope: Window, natives: Natives, receivers: (wire: Wire) => Receivers): void {
  const own = new WeakSet<Event>();
  let hostOrigin = "";

  function dispatch(data: unknown, ports: MessagePort[] = []): void {
    const event = new natives.MessageEvent("message", { data, origin: hostOrigin, ports });
    Object.defineProperty(event, "source", { value: parent });
    own.add(event);
    natives.dispatch(scope, event);
  }

  function sourceOf(event: MessageEvent): unknown {
    // A wrapper that creates its own events can set their source only in this way.
    const given = natives.ownProperty(event, "source");
    return given ? given.value : natives.eventSource(event);
  }

  // Our own host answers at this port, past its sandbox proxy. It is transferred with the first message.
  const { port1, port2 } = new MessageChannel();
  const transferred = [port2];
  const wire: Wire = {
    // An opaque host has no usable origin; before its first message it is unknown.
    toHost: (message) => natives.postToParent(message, hostOrigin && hostOrigin !== "null" ? hostOrigin : "*", transferred.splice(0)),
    toPage: (message) => dispatch(message), // callers pass further arguments, such as an index
  };
  const { fromHost, fromPage } = receivers(wire);

  function receive(message: unknown, ports: MessagePort[] = []): void {
    const seen = fromHost(message, ...ports);
    if (seen !== HANDLED) dispatch(seen, ports);
  }
  port1.onmessage = ({ data }) => receive(data);

  natives.listen((event) => {
    if (natives.isMember(own, event)) return;
    const source = sourceOf(event);
    if (source !== natives.parent && source !== parent) return;
    natives.stop(event);
    hostOrigin = natives.eventOrigin(event);
    receive(natives.eventMessage(event), natives.eventPorts(event) as MessagePort[]);
  });

  const parent = new Proxy(Object.create(null) as Window, {
    get(_, key) {
      if (key === "postMessage") return post;
      if (key === REAL) return natives.parent;
      const value = read(natives.parent, key);
      return typeof value === "function" ? value.bind(natives.parent) : value;
    },
    set: (_, key, value) => Reflect.set(natives.parent, key, value),
    has: (_, key) => Reflect.has(natives.parent, key),
  });
  function post(message: unknown, ...rest: unknown[]): void {
    if (!fromPage(message)) natives.postToParent(message, ...rest);
  }
  Object.defineProperty(scope, "parent", { value: parent, configurable: true, enumerable: true, writable: true });
}
