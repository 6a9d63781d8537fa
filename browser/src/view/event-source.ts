/** `EventSource` over `fetch`: the lines of the stream, and connecting again (HTML, 9.2). */

import { defineClass, defineConstants, defineHandler } from "./handlers";

const RETRY = 3000;

interface Ends {
  fetch: typeof fetch;
  resolve(url: string): string;
  later(run: () => void, milliseconds: number): number;
}

export function createEventSource({ fetch, resolve, later }: Ends): typeof EventSource {
  class EventSource extends EventTarget {
    #url: string;
    #credentials: boolean;
    #state = 0;
    #last = "";
    #retry = RETRY;
    #control = new AbortController();

    constructor(url: string | URL, init: EventSourceInit = {}) {
      super();
      if (!arguments.length) throw new TypeError("1 argument required");
      try {
        this.#url = resolve(String(url));
      } catch {
        throw new DOMException(`Cannot open an EventSource to '${url}'. The URL is invalid.`, "SyntaxError");
      }
      this.#credentials = !!init.withCredentials;
      void this.#connect();
    }

    get url() { return this.#url; }
    get withCredentials() { return this.#credentials; }
    get readyState() { return this.#state; }

    close() {
      this.#state = 2;
      this.#control.abort();
    }

    async #connect() {
      // No other scheme has anything that could come back.
      let final = !/^(https?|data|blob):/.test(this.#url);
      try {
        const response = await fetch(this.#url, {
          headers: { accept: "text/event-stream", ...(this.#last && { "last-event-id": this.#last }) },
          cache: "no-store",
          credentials: this.#credentials ? "include" : "same-origin",
          signal: this.#control.signal,
        });
        // What the gateway says of the way to the backend is what the browser would call a network error; for a place among
        // the streams that are open it would wait.
        if ((response.status > 500 || response.status === 429) && response.headers.has("gateway-reason")) throw response;
        final = response.status !== 200 || !/^text\/event-stream\s*(;|$)/i.test(response.headers.get("content-type") ?? "");
        if (final) void response.body?.cancel();
        else await this.#read(response);
      } catch {
        // Lost, or not there: asked again.
      }
      if (this.#state === 2) return;
      this.#state = final ? 2 : 0;
      if (!final) later(() => this.#state === 2 || this.#connect(), this.#retry);
      this.dispatchEvent(new Event("error"));
    }

    async #read({ body, url }: Response) {
      this.#state = 1;
      this.dispatchEvent(new Event("open"));
      const reader = body?.pipeThrough(new TextDecoderStream() as unknown as ReadableWritablePair<string, BufferSource>).getReader();
      const { origin } = new URL(url);
      let rest = "";
      let half = false;
      let type = "";
      let data: string[] = [];
      let id = this.#last;
      for (;;) {
        const { value, done } = (await reader?.read()) ?? { done: true };
        if (done || this.#state === 2) return;
        // The CR at the end of the part before may have been half of a CRLF.
        const lines = (rest + (half ? value.replace(/^\n/, "") : value)).split(/\r\n?|\n/);
        half = value.endsWith("\r");
        rest = lines.pop() ?? "";
        for (const line of lines) {
          if (!line) {
            this.#last = id;
            const event = new MessageEvent(type || "message", { data: data.join("\n"), origin, lastEventId: id });
            if (data.length) this.dispatchEvent(event);
            type = "";
            data = [];
            if (this.readyState === 2) return;
            continue;
          }
          const [, field, text = ""] = /^([^:]*)(?:: ?(.*))?$/s.exec(line) ?? [];
          if (field === "data") data.push(text);
          else if (field === "event") type = text;
          else if (field === "id" && !text.includes("\0")) id = text;
          else if (field === "retry" && /^\d+$/.test(text)) this.#retry = Number(text);
        }
      }
    }
  }
  for (const type of ["open", "message", "error"]) defineHandler(EventSource.prototype, type);
  // As those of browsers are.
  for (const name of Object.getOwnPropertyNames(EventSource.prototype).slice(1)) Object.defineProperty(EventSource.prototype, name, { enumerable: true });
  defineClass(EventSource, "EventSource");
  defineConstants(EventSource, "CONNECTING", "OPEN", "CLOSED");
  return EventSource as unknown as typeof globalThis.EventSource;
}
