/** `WebSocket` over a streamed `fetch` and a tool that sends messages (WHATWG WebSockets). */

import { fromBase64, toBase64 } from "../base64";
import { defineClass, defineConstants, defineHandler } from "./handlers";

interface Ends {
  /** The absolute URL of a URL of the page. */
  resolve(url: string): string;
  /** Opens a WebSocket: the body of the answer has an event in each line. */
  open(url: string, headers: Record<string, string>, signal: AbortSignal): Promise<Response>;
  /** Sends messages; rejects if the WebSocket is not open any more. */
  send(args: { id: string; number: number; messages: Message[] }): Promise<void>;
  /** Resolves in a later task: each event has a separate one. */
  turn(): Promise<unknown>;
}

export type Message = { text: string } | { bytes: string } | { close: { code?: number; reason?: string } };
type Line = { open: string; id: string } | { text: string } | { bytes: string } | { close: [number, string, boolean] };

/** Names the subprotocols: pages cannot set headers that begin with `sec-`. */
const PROTOCOLS = "webmcp-gateway-protocols";
/** Messages in one call, and their length, unless one alone is longer. */
const TOGETHER = 256;
const LENGTH = 192 * 1024;

const CONNECTING = 0;
const OPEN = 1;
const CLOSING = 2;
const CLOSED = 3;

const TOKEN = /^[!#$%&'*+\-.^_`|~\w]+$/;

const lengthOf = (text: string): number => new TextEncoder().encode(text).length;
/** WebIDL, USVString. */
const wellFormed = (value: unknown): string => new TextDecoder().decode(new TextEncoder().encode(`${value}`));

/** The events of an answer, each from one line. */
async function* linesOf(body: ReadableStream<Uint8Array>): AsyncGenerator<Line> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
    rest = lines.pop()!;
    for (const line of lines) yield JSON.parse(line) as Line;
  }
}

export function createWebSocket({ resolve, open, send, turn }: Ends): typeof WebSocket {
  const failure = (what: string, message: string, name: string): DOMException =>
    new DOMException(`Failed to ${what} 'WebSocket': ${message}`, name);
  const invalid = (message: string): DOMException => failure("construct", message, "SyntaxError");

  /** The URL of a WebSocket with the scheme of HTTP, as the runtime requests it. */
  function addressOf(given: string): string {
    let url: URL;
    try {
      url = new URL(resolve(given.trim().replace(/^ws(?=s?:)/i, "http")));
    } catch {
      throw invalid(`The URL '${given}' is invalid.`);
    }
    if (!/^https?:$/.test(url.protocol)) {
      throw invalid(`The URL's scheme must be either 'http', 'https', 'ws', or 'wss'. '${url.protocol.slice(0, -1)}' is not allowed.`);
    }
    if (url.hash || given.endsWith("#")) {
      throw invalid(`The URL contains a fragment identifier ('${url.hash.slice(1)}'). Fragment identifiers are not allowed in WebSocket URLs.`);
    }
    return url.href;
  }

  function protocolsOf(given: unknown): string[] {
    const several = typeof given === "object" && given !== null && Symbol.iterator in given;
    const protocols = several ? Array.from(given as Iterable<unknown>, String) : [String(given)];
    for (const protocol of protocols) if (!TOKEN.test(protocol)) throw invalid(`The subprotocol '${protocol}' is invalid.`);
    const seen = new Set<string>();
    for (const protocol of protocols) {
      if (seen.has(protocol)) throw invalid(`The subprotocol '${protocol}' is duplicated.`);
      seen.add(protocol);
    }
    return protocols;
  }

  class WebSocket extends EventTarget {
    #url: string;
    #state = CONNECTING;
    #protocol = "";
    #binaryType: BinaryType = "blob";
    #buffered = 0;
    #id = "";
    #number = 0;
    #waiting: { message: Message | Promise<Message>; size: number }[] = [];
    #sending = false;
    #control = new AbortController();

    constructor(url: string | URL, protocols: string | string[] = []) {
      if (!arguments.length) throw new TypeError("Failed to construct 'WebSocket': 1 argument required, but only 0 present.");
      super();
      const address = addressOf(wellFormed(url));
      const asked = protocolsOf(protocols);
      this.#url = address.replace(/^http/, "ws");
      void this.#run(address, asked).catch(() => undefined).then(() => this.#over(1006, "", false));
    }

    get url() { return this.#url; }
    get readyState() { return this.#state; }
    get bufferedAmount() { return this.#buffered; }
    get extensions() { return this.#state, ""; }
    get protocol() { return this.#protocol; }
    get binaryType() { return this.#binaryType; }
    set binaryType(type) {
      if (this.#state >= 0 && /^(blob|arraybuffer)$/.test(`${type}`)) this.#binaryType = `${type}` as BinaryType;
    }

    send(data: string | ArrayBufferLike | Blob | ArrayBufferView): void {
      if (!arguments.length) throw new TypeError("Failed to execute 'send' on 'WebSocket': 1 argument required, but only 0 present.");
      if (this.#state === CONNECTING) throw failure("execute 'send' on", "Still in CONNECTING state.", "InvalidStateError");
      let size: number;
      let message: Message | Promise<Message> | undefined;
      if (data instanceof Blob) {
        size = data.size;
        message = this.#state === OPEN ? data.arrayBuffer().then((bytes) => ({ bytes: toBase64(new Uint8Array(bytes)) })) : undefined;
      } else if (ArrayBuffer.isView(data) || data instanceof ArrayBuffer) {
        const view = ArrayBuffer.isView(data) ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength) : new Uint8Array(data);
        size = view.length;
        message = this.#state === OPEN ? { bytes: toBase64(view) } : undefined;
      } else {
        const text = wellFormed(data);
        size = lengthOf(text);
        message = { text };
      }
      this.#buffered += size;
      if (this.#state === OPEN && message) this.#post(message, size);
    }

    close(given?: number, why?: string): void {
      const code = given === undefined ? undefined : Math.round(Math.min(65535, Math.max(0, Number(given) || 0)));
      const reason = why === undefined ? "" : wellFormed(why);
      if (code !== undefined && code !== 1000 && !(code >= 3000 && code <= 4999)) {
        throw failure("execute 'close' on", `The close code must be either 1000, or between 3000 and 4999. ${code} is neither.`, "InvalidAccessError");
      }
      if (lengthOf(reason) > 123) {
        throw failure("execute 'close' on", "The close reason must not be greater than 123 UTF-8 bytes.", "SyntaxError");
      }
      if (this.#state >= CLOSING) return;
      const connecting = this.#state === CONNECTING;
      this.#state = CLOSING;
      if (connecting) this.#control.abort();
      else this.#post({ close: { ...(code !== undefined && { code }), reason } }, 0);
    }

    /** Reads until the end. Rejects if the connection fails. */
    async #run(address: string, protocols: string[]): Promise<void> {
      // Not before the caller has added its listeners.
      await turn();
      const named: Record<string, string> = protocols.length ? { [PROTOCOLS]: protocols.join(", ") } : {};
      const { status, headers, body } = await open(address, named, this.#control.signal);
      if (status !== 200 || !body || !/^application\/x-ndjson\b/.test(headers.get("content-type") ?? "")) return void body?.cancel();
      for await (const line of linesOf(body)) {
        if ("open" in line) {
          this.#id = line.id;
          this.#protocol = line.open;
          this.#state = OPEN;
          this.dispatchEvent(new Event("open"));
        } else if ("close" in line) return this.#over(...line.close);
        else if (this.#state === OPEN) this.#tell("text" in line ? line.text : fromBase64(line.bytes));
        await turn();
      }
    }

    #tell(message: string | Uint8Array<ArrayBuffer>): void {
      const data = typeof message === "string" ? message : this.#binaryType === "blob" ? new Blob([message]) : message.buffer;
      this.dispatchEvent(new MessageEvent("message", { data, origin: new URL(this.#url).origin }));
    }

    #post(message: Message | Promise<Message>, size: number): void {
      this.#waiting.push({ message, size });
      if (this.#sending) return;
      this.#sending = true;
      this.#drain().then(
        () => (this.#sending = false),
        // The stream of events says how it ended, if it still can.
        () => this.#control.abort(),
      );
    }

    /** Sends the messages that wait, in order, in as few calls as possible. */
    async #drain(): Promise<void> {
      await null; // with what the page sends in the same task
      while (this.#waiting.length && this.#state !== CLOSED) {
        const messages: Message[] = [];
        let sizes = 0;
        let length = 0;
        while (this.#waiting.length && messages.length < TOGETHER) {
          const { message, size } = this.#waiting[0]!;
          if (messages.length && length + size > LENGTH) break;
          messages.push(await message);
          this.#waiting.shift();
          sizes += size;
          length += size;
        }
        const number = this.#number;
        this.#number += messages.length;
        await send({ id: this.#id, number, messages });
        this.#buffered -= sizes;
      }
    }

    #over(code: number, reason: string, wasClean: boolean): void {
      if (this.#state === CLOSED) return;
      this.#state = CLOSED;
      // Like Chromium: a connection that breaks off later is no error.
      if (!wasClean && !this.#id) this.dispatchEvent(new Event("error"));
      this.dispatchEvent(new CloseEvent("close", { code, reason, wasClean }));
    }
  }
  for (const type of ["open", "error", "close", "message"]) defineHandler(WebSocket.prototype, type);
  // Like those of browsers.
  for (const name of Object.getOwnPropertyNames(WebSocket.prototype).slice(1)) Object.defineProperty(WebSocket.prototype, name, { enumerable: true });
  defineClass(WebSocket, "WebSocket");
  defineConstants(WebSocket, "CONNECTING", "OPEN", "CLOSING", "CLOSED");
  return WebSocket as unknown as typeof globalThis.WebSocket;
}
