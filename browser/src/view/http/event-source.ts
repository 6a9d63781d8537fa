/** `EventSource` over `fetch`: connects, reconnects, and ends permanently (HTML, 9.2). */

import { createEventParser, RETRY, type StreamState } from "./event-stream";
import { defineClass, defineConstants, defineHandler } from "./handlers";
import { setLongTimer } from "./long-timer";
import { mimeTypeOf } from "./mime";
import { endOnStop } from "./page-stop";

interface EventSourceDependencies {
  fetch: typeof fetch;
  /** The browser's own, for the addresses that our gateway gives streams. */
  native: typeof fetch | undefined;
  resolve(url: string): string;
  later(run: () => void, milliseconds: number): number;
  cancelTimer(timer: number | undefined): void;
  /** Resolves in a later task: each event has a separate one. */
  turn(): Promise<unknown>;
}

/** The header with the address at which this page may read a stream itself, once, past the page around it. */
const ADDRESS = "webmcp-gateway-stream";

/** Addresses in a row that are not reached before no further one is tried. */
const TRIES = 3;

/** Like browsers: another charset than UTF-8 is refused. */
function isEventStream({ status, headers }: Response): boolean {
  const { essence, parameters } = mimeTypeOf(headers.get("content-type")) ?? {};
  return status === 200 && essence === "text/event-stream" && /^(utf-8)?$/i.test(parameters?.get("charset") ?? "");
}

export function createEventSource({ fetch, native, resolve, turn, ...timers }: EventSourceDependencies): typeof EventSource {
  /** The number of addresses in a row that could not be reached: the policy of a frame that another server serves may block all. */
  let unreached = 0;

  class EventSource extends EventTarget {
    #url: string;
    #credentials: boolean;
    #state = 0;
    #stream: StreamState = { id: "", retry: RETRY };
    #control: AbortController | undefined;
    #cancelReconnect: (() => void) | undefined;

    constructor(url: string | URL, init: EventSourceInit | null = {}) {
      if (!arguments.length) throw new TypeError("Failed to construct 'EventSource': 1 argument required, but only 0 present.");
      super();
      // Not the origin of an opaque frame, whose text is also "null".
      const text = `${(url as string | null) ?? `./${url}`}`;
      try {
        this.#url = resolve(text);
      } catch {
        throw new DOMException(`Failed to construct 'EventSource': Cannot open an EventSource to '${text}'. The URL is invalid.`, "SyntaxError");
      }
      if (init !== null && Object(init) !== init) throw new TypeError("Failed to construct 'EventSource': The provided value is not of type 'EventSourceInit'.");
      this.#credentials = !!init?.withCredentials;
      this.#reconnect();
    }

    get url() { return this.#url; }
    get withCredentials() { return this.#credentials; }
    get readyState() { return this.#state; }

    close() {
      this.#state = 2;
      this.#cancelReconnect?.();
      this.#control?.abort();
    }

    /** The page stopped loading: do not reconnect. */
    #fail() {
      if (this.#state === 2) return;
      this.close();
      this.dispatchEvent(new Event("error"));
    }

    async #connect() {
      // Other schemes cannot recover.
      let final = !/^(https?|data|blob):/.test(this.#url);
      const { id } = this.#stream;
      this.#control = new AbortController();
      try {
        const response = await fetch(this.#url, {
          // In UTF-8 (9.2.2), of which a header has one character for each byte.
          headers: { accept: "text/event-stream", ...(id && { "last-event-id": unescape(encodeURIComponent(id)) }) },
          cache: "no-store",
          credentials: this.#credentials ? "include" : "same-origin",
          signal: this.#control.signal,
        });
        // The gateway's own errors about the backend are what the browser would call a network error; at the limit of
        // open streams, it would wait.
        if ((response.status > 500 || response.status === 429) && response.headers.has("gateway-reason")) throw response;
        final = !isEventStream(response);
        if (final) void response.body?.cancel();
        else await this.#read(response);
      } catch {
        // Lost or unreachable: reconnect.
      }
      if (this.#state === 2) return;
      this.#state = final ? 2 : 0;
      if (!final) this.#cancelReconnect = setLongTimer(timers, () => this.#reconnect(), this.#stream.retry);
      this.dispatchEvent(new Event("error"));
    }

    #reconnect() {
      this.#cancelReconnect = undefined;
      endOnStop(this.#connect(), () => this.#fail());
    }

    /** The body of `response`, from its own address if that can be reached: its stream is not read then. */
    async #body({ body, headers }: Response) {
      const address = headers.get(ADDRESS);
      if (!address || !native || unreached >= TRIES || this.#state === 2) return body;
      const control = new AbortController();
      const own = await native(address, { credentials: "omit", cache: "no-store", signal: control.signal }).catch(() => undefined);
      unreached = own ? 0 : unreached + 1;
      if (!own?.ok) return body;
      // The page closed the source meanwhile.
      if (this.readyState === 2) control.abort();
      this.#control = control;
      return own.body;
    }

    async #read(response: Response) {
      this.#state = 1;
      this.dispatchEvent(new Event("open"));
      const { url } = response;
      const body = await this.#body(response);
      const reader = body?.getReader();
      const decoder = new TextDecoder();
      const { origin } = new URL(url);
      const parse = createEventParser(this.#stream);
      for (;;) {
        const { value, done } = (await reader?.read()) ?? { done: true };
        if (done) return;
        for (const { type, data, id } of parse(decoder.decode(value, { stream: true }))) {
          if (this.readyState === 2) return;
          this.dispatchEvent(new MessageEvent(type, { data, origin, lastEventId: id }));
          await turn();
        }
        if (this.readyState === 2) return;
      }
    }
  }
  for (const type of ["open", "message", "error"]) defineHandler(EventSource.prototype, type);
  // Like those of browsers.
  for (const name of Object.getOwnPropertyNames(EventSource.prototype).slice(1)) Object.defineProperty(EventSource.prototype, name, { enumerable: true });
  defineClass(EventSource, "EventSource");
  defineConstants(EventSource, "CONNECTING", "OPEN", "CLOSED");
  return EventSource as unknown as typeof globalThis.EventSource;
}
