/** `XMLHttpRequest` over `fetch`: its states, its events and their order (XMLHttpRequest Standard, 3). */

import { attempt } from "./attempt";
import { sizeOf } from "./beacon";
import { defineClass, defineConstants, defineHandler } from "./handlers";

/** `XMLHttpRequestEventTarget` */
export class Progressing extends EventTarget {}
for (const type of ["loadstart", "progress", "abort", "error", "load", "timeout", "loadend"]) defineHandler(Progressing.prototype, type);
defineClass(Progressing, "XMLHttpRequestEventTarget");
/** Whether anybody listened when it was sent says whether there are events of an upload (3.5.6, "upload listener flag"). */
const heard = new WeakSet<EventTarget>();
/** `XMLHttpRequestUpload` */
export class Upload extends Progressing {
  override addEventListener(...given: Parameters<EventTarget["addEventListener"]>) {
    heard.add(this);
    super.addEventListener(...given);
  }
}
defineClass(Upload, "XMLHttpRequestUpload");

const FORBIDDEN = /^(connect|trac[ek])$/i;
const MIME = /^\s*[^\s/;]+\/[^\s/;]+\s*(;|$)/;
/** Of XML, those that a parser knows by their own names. */
const PARSED = /^(text\/xml|image\/svg\+xml|application\/xhtml\+xml)$/;
const TYPES = ["", "arraybuffer", "blob", "document", "json", "text"];

function refuse(name: string, why?: string): never {
  throw new DOMException(why, name);
}

/** As Chromium tells the type of a blob. */
const essenceOf = (type: string): string => type.replace(/\s*;.*/s, "");

/** A document that is sent, or a part of it. */
const written = (node: Node): string => (node instanceof HTMLElement ? node.outerHTML : new XMLSerializer().serializeToString(node));

function tell(target: EventTarget, types: string, loaded = 0, total = 0): void {
  for (const type of types.split(" ")) target.dispatchEvent(new ProgressEvent(type, { lengthComputable: total > 0, loaded, total }));
}

interface Ends {
  /** `progress` hears how far the body is, of a runtime that can tell. */
  fetch(url: string, init: RequestInit, progress?: (told: { progress?: number; total?: number }) => void): Promise<Response>;
  resolve(url: string): string;
  later(run: () => void, milliseconds: number): number;
  cancel(timer: number | undefined): void;
}

export function createXhr({ fetch, resolve, later, cancel }: Ends): typeof globalThis.XMLHttpRequest {
  class XMLHttpRequest extends Progressing {
    readonly #upload = new Upload();
    #credentials = false;
    #state = 0;
    #sent = false;
    #async = true;
    #method = "";
    #url = "";
    #mime = "";
    #type = "";
    #timeout = 0;
    #started = 0;
    #timer: number | undefined;
    #headers = new Headers();
    #control: AbortController | undefined;
    /** Whether the upload is told of, until it is over; as Chromium has it, also of a request without a body that fails. */
    #heard = false;
    #uploading = 0;
    #uploaded = 0;
    #response: Response | undefined;
    #chunks: Uint8Array<ArrayBuffer>[] = [];
    #made: unknown;

    get upload() { return this.#upload; }
    get readyState() { return this.#state; }
    get status() { return this.#response?.status ?? 0; }
    get statusText() { return this.#response?.statusText ?? ""; }
    get responseURL() { return this.#response?.url.replace(/#.*/s, "") ?? ""; }
    get responseType() { return this.#type; }
    set responseType(type) {
      if (!TYPES.includes(type)) return;
      if (this.#state > 2) refuse("InvalidStateError");
      if (!this.#async) refuse("InvalidAccessError");
      this.#type = type;
    }
    get timeout() { return this.#timeout; }
    set timeout(milliseconds) {
      if (!this.#async) refuse("InvalidAccessError");
      this.#timeout = Number(milliseconds) >>> 0;
      if (this.#sent) this.#watch();
    }
    get withCredentials() { return this.#credentials; }
    set withCredentials(wanted) {
      if (this.#state > 1 || this.#sent) refuse("InvalidStateError");
      this.#credentials = !!wanted;
    }
    get responseText() {
      if (this.#type && this.#type !== "text") refuse("InvalidStateError");
      return this.#state < 3 ? "" : this.#text();
    }
    get responseXML() {
      if (this.#type && this.#type !== "document") refuse("InvalidStateError");
      return this.#whole(() => this.#document());
    }
    get response() {
      if (!this.#type || this.#type === "text") return this.responseText;
      return this.#whole(() => this.#object());
    }

    open(method: string, url: string | URL, ...given: unknown[]) {
      const async = !given.length || !!given[0];
      if (arguments.length < 2) throw new TypeError("2 arguments");
      if (FORBIDDEN.test(method)) refuse("SecurityError", method);
      // The browser's own request says what a method is, and how it is written.
      const known = attempt(() => ({ at: resolve(String(url)), by: new Request("data:,", { method }).method }));
      if (!known) refuse("SyntaxError", `${method} ${url}`);
      this.#end();
      if (!async && (this.#timeout || this.#type)) {
        // As Chromium has it.
        this.#state = 0;
        refuse("InvalidAccessError");
      }
      this.#url = known.at;
      this.#method = known.by;
      this.#async = async;
      this.#headers = new Headers();
      if (this.#state !== 1) this.#enter(1);
    }

    setRequestHeader(name: string, value: string) {
      if (arguments.length < 2) throw new TypeError("2 arguments");
      this.#mustBeOpen();
      if (!attempt(() => (this.#headers.append(name, value), true))) refuse("SyntaxError", name);
    }

    overrideMimeType(mime: string) {
      if (!arguments.length) throw new TypeError("1 argument");
      if (this.#state > 2) refuse("InvalidStateError");
      this.#mime = MIME.test(mime) ? mime : "application/octet-stream";
    }

    getResponseHeader(name: string) {
      if (!arguments.length) throw new TypeError("1 argument");
      return attempt(() => this.#response?.headers.get(name)) ?? null;
    }

    getAllResponseHeaders() {
      return [...(this.#response?.headers ?? [])].map(([name, value]) => `${name}: ${value}\r\n`).join("");
    }

    send(given: Document | XMLHttpRequestBodyInit | null = null) {
      this.#mustBeOpen();
      if (!this.#async) refuse("NetworkError", "synchronous");
      let body = /^(GET|HEAD)$/.test(this.#method) ? null : given;
      if (body instanceof Document) {
        const html = body.contentType === "text/html";
        if (!this.#headers.has("content-type")) this.#headers.set("content-type", `${html ? "text/html" : "application/xml"};charset=UTF-8`);
        body = html ? [...body.childNodes].map(written).join("") : written(body);
      }
      const type = this.#headers.get("content-type");
      // As it is sent (XMLHttpRequest, 3.5.6).
      if (type && typeof body === "string") this.#headers.set("content-type", type.replace(/(charset\s*=\s*"?)[^\s;"]*/i, "$1UTF-8"));
      const control = (this.#control = new AbortController());
      this.#heard = heard.has(this.#upload) && /^(http|blob)/.test(this.#url);
      const total = this.#heard ? sizeOf(body) : 0;
      this.#sent = true;
      this.#started = Date.now();
      this.#uploading = total;
      this.#uploaded = 0;
      tell(this, "loadstart");
      // A listener may have aborted it, or opened it anew.
      if (this.#heard && body !== null && this.#control === control) tell(this.#upload, "loadstart", 0, total);
      if (this.#control !== control) return;
      this.#watch();
      const init: RequestInit = {
        method: this.#method, headers: this.#headers, body, signal: control.signal,
        credentials: this.#credentials ? "include" : "same-origin",
      };
      const request = total ? fetch(this.#url, init, (told) => this.#control === control && this.#went(told)) : fetch(this.#url, init);
      void this.#receive(request, control);
    }

    abort() {
      const running = this.#sent;
      this.#end();
      if (running) this.#fail("abort");
      if (this.#state === 4) this.#state = 0;
    }

    #mustBeOpen() {
      if (this.#state !== 1 || this.#sent) refuse("InvalidStateError");
    }

    #enter(state: number) {
      this.#state = state;
      this.dispatchEvent(new Event("readystatechange"));
    }

    /** Nothing of the request that runs counts any more. */
    #end() {
      this.#control?.abort();
      this.#control = this.#response = undefined;
      this.#chunks = [];
      this.#made = undefined;
      this.#sent = false;
      cancel(this.#timer);
    }

    #watch() {
      cancel(this.#timer);
      if (!this.#timeout) return;
      this.#timer = later(() => (this.#end(), this.#fail("timeout")), Math.max(0, this.#started + this.#timeout - Date.now()));
    }

    #fail(type: string) {
      this.#enter(4);
      const types = `${type} loadend`;
      if (this.#heard) tell(this.#upload, types, this.#uploaded, this.#uploaded && this.#uploading);
      this.#heard = false;
      this.#uploading = 0;
      tell(this, types);
    }

    /** So much of the body is sent, as the host tells; where none does, it is when the answer begins. */
    #went({ progress = 0, total: whole = Infinity }) {
      const total = this.#uploading;
      const loaded = Math.floor((total * progress) / whole);
      if (loaded >= total) {
        const control = this.#control;
        this.#uploaded = total;
        if (total) tell(this.#upload, "progress", total, total);
        // A listener may have aborted it, and others then heard of that instead; of one that was opened anew they hear its end.
        if (!this.#control && !this.#uploading) return;
        if (this.#control === control) {
          this.#uploading = 0;
          this.#heard &&= !total;
        }
        if (total) tell(this.#upload, "load loadend", total, total);
      } else if (loaded > this.#uploaded) {
        this.#uploaded = loaded;
        tell(this.#upload, "progress", loaded, total);
      }
    }

    async #receive(request: Promise<Response>, control: AbortController) {
      const over = () => this.#control !== control;
      try {
        const response = await request;
        if (over()) return;
        this.#went({ progress: 1, total: 1 });
        if (over()) return;
        this.#response = response;
        this.#enter(2);
        const size = Number(response.headers.get("content-length") ?? 0);
        const reader = response.body?.getReader();
        let loaded = 0;
        // Also after a listener has ended it, of which the next is told nothing else.
        const say = (type: string): void => (over() ? tell(this, type) : tell(this, type, loaded, size));
        for (;;) {
          const { value } = over() || !reader ? {} : await reader.read();
          if (over()) return;
          if (!value) break;
          this.#chunks.push(value);
          loaded += value.length;
          this.#enter(3);
          say("progress");
        }
        this.#sent = false;
        cancel(this.#timer);
        this.#enter(4);
        if (over()) return;
        say("load");
        say("loadend");
      } catch {
        if (over()) return;
        this.#end();
        this.#fail("error");
      }
    }

    #blob() {
      return new Blob(this.#chunks, { type: essenceOf(this.#mime || this.getResponseHeader("content-type") || "text/xml") });
    }

    #text() {
      const charset = /charset\s*=\s*"?([^\s;"]+)/i.exec(`${this.#mime};${this.getResponseHeader("content-type")}`)?.[1];
      const decoder = attempt(() => new TextDecoder(charset)) ?? new TextDecoder();
      return this.#chunks.map((chunk) => decoder.decode(chunk, { stream: true })).join("") + decoder.decode();
    }

    #document() {
      const type = this.#blob().type as DOMParserSupportedType;
      const html = type === "text/html";
      if (!this.#chunks.length || (html ? !this.#type : !/^(text|application)\/xml$|\+xml$/.test(type))) return null;
      const parsed = new DOMParser().parseFromString(this.#text(), html || PARSED.test(type) ? type : "application/xml");
      if (!html && parsed.querySelector("parsererror")) return null;
      for (const name of ["URL", "documentURI", "baseURI"]) Object.defineProperty(parsed, name, { value: this.responseURL });
      return parsed;
    }

    #object() {
      if (this.#type === "document") return this.#document();
      if (this.#type === "blob") return this.#blob();
      if (this.#type === "json") {
        return attempt(() => JSON.parse(this.#text())) ?? null;
      }
      const bytes = new Uint8Array(this.#chunks.reduce((sum, { length }) => sum + length, 0));
      let at = 0;
      for (const chunk of this.#chunks) bytes.set(chunk, (at += chunk.length) - chunk.length);
      return bytes.buffer;
    }

    /** Made once, of a whole response. */
    #whole<Value>(make: () => Value): Value | null {
      if (this.#state !== 4 || !this.#response) return null;
      return (this.#made ??= make()) as Value;
    }
  }
  defineHandler(XMLHttpRequest.prototype, "readystatechange");
  // As those of browsers are: what stands before others (ajax-hook) looks for them so.
  for (const name of Object.getOwnPropertyNames(XMLHttpRequest.prototype).slice(1)) Object.defineProperty(XMLHttpRequest.prototype, name, { enumerable: true });
  defineClass(XMLHttpRequest, "XMLHttpRequest");
  defineConstants(XMLHttpRequest, "UNSENT", "OPENED", "HEADERS_RECEIVED", "LOADING", "DONE");
  return XMLHttpRequest as unknown as typeof globalThis.XMLHttpRequest;
}
