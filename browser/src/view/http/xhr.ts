/** `XMLHttpRequest` over `fetch`: its states, its events and their order (XMLHttpRequest Standard, 3). */

import { attempt } from "../attempt";
import { sizeOf } from "./beacon";
import { defineClass, defineConstants, defineHandler } from "./handlers";
import { afterLong } from "./long-timer";
import { mimeTypeOf, parseMimeType, type MimeType } from "./mime";
import { untilStopped } from "./stopping";
import { ReceivedBody } from "./xhr-body";

/** The key for constructors that pages must not call (Web IDL, 3.7.1). */
export const OWN = Symbol("own");

/** `XMLHttpRequestEventTarget` */
export class Progressing extends EventTarget {
  constructor(...[made]: unknown[]) {
    if (made !== OWN) throw new TypeError("Illegal constructor");
    super();
  }
}
for (const type of ["loadstart", "progress", "abort", "error", "load", "timeout", "loadend"]) defineHandler(Progressing.prototype, type);
defineClass(Progressing, "XMLHttpRequestEventTarget");
/** Uploads with listeners: only if there are any when it is sent, upload events are fired (3.5.6, "upload listener flag"). */
const heard = new WeakSet<EventTarget>();
/** `XMLHttpRequestUpload` */
export class Upload extends Progressing {
  override addEventListener(...given: Parameters<EventTarget["addEventListener"]>) {
    heard.add(this);
    super.addEventListener(...given);
  }
}
defineClass(Upload, "XMLHttpRequestUpload");
/** Whether an upload has listeners. */
export const hears = (upload: Upload): boolean => heard.has(upload);

const FORBIDDEN = /^(connect|trac[ek])$/i;
const TOKEN = /^[!#$%&'*+\-.^_`|~\w]+$/;
const TYPES = ["", "arraybuffer", "blob", "document", "json", "text"];
/** The limit of a long task, in milliseconds (Long Tasks, 1). */
const LONG_TASK = 50;
const TEXT_ONLY = "The value is only accessible if the object's 'responseType' is ''";

/** Throws the browser's error for an invalid use of `member`. */
function refuse(name: string, member: string, why: string): never {
  throw new DOMException(`Failed to ${member} 'XMLHttpRequest': ${why}`, name);
}

const executing = (method: string): string => `execute '${method}' on`;
const setting = (property: string): string => `set the '${property}' property on`;
const reading = (property: string): string => `read the '${property}' property from`;

/** `value` as a text whose characters are bytes (Web IDL, `ByteString`). */
function byteString(value: unknown, method: string): string {
  const text = `${value as string}`;
  if (/[^\0-\xff]/.test(text)) throw new TypeError(`Failed to ${executing(method)} 'XMLHttpRequest': String contains non ISO-8859-1 code point.`);
  return text;
}

function need(count: number, given: number, method: string): void {
  if (given < count) throw new TypeError(`Failed to ${executing(method)} 'XMLHttpRequest': ${count} argument${count > 1 ? "s" : ""} required, but only ${given} present.`);
}

/** Serializes a document that is sent, or a part of it. */
const written = (node: Node): string => (node instanceof HTMLElement ? node.outerHTML : new XMLSerializer().serializeToString(node));

/** The body of `given`, which is no document: values of other types become text (Web IDL, `XMLHttpRequestBodyInit`). */
function bodyOf(given: Exclude<XMLHttpRequestBodyInit, Document> | null): BodyInit | null {
  const buffer = ArrayBuffer.isView(given) ? given.buffer : given;
  if (/SharedArrayBuffer/.test(Object.prototype.toString.call(buffer))) throw new TypeError(`Failed to ${executing("send")} 'XMLHttpRequest': The provided value is shared memory (SharedArrayBuffer): send a copy.`);
  const known = given === null || ArrayBuffer.isView(given) || [Blob, ArrayBuffer, FormData, URLSearchParams].some((type) => given instanceof type);
  return known ? given : `${given as unknown as string}`;
}

/** The type that is sent with a text, which is UTF-8 (XMLHttpRequest, 3.5.6), as Chromium writes it. */
const asUtf8 = (type: string): string => type.replace(/(charset\s*=\s*"?)[^\s;"]*/i, "$1UTF-8");

function tell(target: EventTarget, types: string, loaded = 0, total = 0): void {
  for (const type of types.split(" ")) target.dispatchEvent(new ProgressEvent(type, { lengthComputable: total > 0, loaded, total }));
}

interface Ends {
  /** `progress` receives upload progress, if the runtime reports it. */
  fetch(url: string | Request, init: RequestInit, progress?: (told: { progress?: number; total?: number }) => void): Promise<Response>;
  resolve(url: string): string;
  later(run: () => void, milliseconds: number): number;
  cancel(timer: number | undefined): void;
}

export function createXhr({ fetch, resolve, ...timers }: Ends): typeof globalThis.XMLHttpRequest {
  const { Request } = globalThis;
  class XMLHttpRequest extends Progressing {
    readonly #upload = new Upload(OWN);
    #credentials = false;
    #state = 0;
    #sent = false;
    #async = true;
    #method = "";
    #url = "";
    #mime: MimeType | undefined;
    #type = "";
    #timeout = 0;
    #started = 0;
    #unwatch: (() => void) | undefined;
    /** A `Request` of a `blob:` URL keeps the blob, even after the URL is revoked (URL, "blob URL entry"). */
    #target: string | Request = "";
    #headers = new Headers();
    #control: AbortController | undefined;
    /** Whether upload events are fired, until it is over; as in Chromium, also for a failing request without a body. */
    #heard = false;
    #uploading = 0;
    #uploaded = 0;
    #response: Response | undefined;
    #body: ReceivedBody | undefined;
    #made: unknown;

    constructor() {
      super(OWN);
    }

    get upload() { return this.#upload; }
    get readyState() { return this.#state; }
    get status() { return this.#response?.status ?? 0; }
    get statusText() { return this.#response?.statusText ?? ""; }
    get responseURL() { return this.#response?.url.replace(/#.*/s, "") ?? ""; }
    get responseType() { return this.#type; }
    set responseType(given) {
      const state = this.#state;
      const type = `${given}`;
      if (!TYPES.includes(type)) return;
      if (state > 2) refuse("InvalidStateError", setting("responseType"), "The response type cannot be set if the object's state is LOADING or DONE.");
      if (!this.#async) refuse("InvalidAccessError", setting("responseType"), "The response type cannot be changed for synchronous requests made from a document.");
      this.#type = type;
    }
    get timeout() { return this.#timeout; }
    set timeout(milliseconds) {
      if (!this.#async) refuse("InvalidAccessError", setting("timeout"), "Timeouts cannot be set for synchronous requests made from a document.");
      this.#timeout = Number(milliseconds) >>> 0;
      if (this.#sent) this.#watch();
    }
    get withCredentials() { return this.#credentials; }
    set withCredentials(wanted) {
      if (this.#state > 1 || this.#sent) refuse("InvalidStateError", setting("withCredentials"), "The value may only be set if the object's state is UNSENT or OPENED.");
      this.#credentials = !!wanted;
    }
    get responseText() {
      if (this.#type && this.#type !== "text") refuse("InvalidStateError", reading("responseText"), `${TEXT_ONLY} or 'text' (was '${this.#type}').`);
      return (this.#state > 2 && this.#body?.text(this.#type ? "nowhere" : "xml")) || "";
    }
    get responseXML() {
      if (this.#type && this.#type !== "document") refuse("InvalidStateError", reading("responseXML"), `${TEXT_ONLY} or 'document' (was '${this.#type}').`);
      return this.#whole((body) => this.#document(body));
    }
    get response() {
      if (!this.#type || this.#type === "text") return this.responseText;
      return this.#whole((body) => this.#object(body));
    }

    open(method: string, url: string | URL, ...given: unknown[]) {
      need(2, arguments.length, "open");
      const async = !given.length || !!given[0];
      const wanted = byteString(method, "open");
      const address = `${url}`;
      // User name and password are converted, and ignored: only the gateway adds credentials.
      given.slice(1, 3).join();
      if (!TOKEN.test(wanted)) refuse("SyntaxError", executing("open"), `'${wanted}' is not a valid HTTP method.`);
      if (FORBIDDEN.test(wanted)) refuse("SecurityError", executing("open"), `'${wanted}' HTTP method is unsupported.`);
      const at = attempt(() => resolve(address));
      if (at === undefined) refuse("SyntaxError", executing("open"), "Invalid URL");
      if (!async && (this.#timeout || this.#type)) {
        this.#end();
        // As in Chromium.
        this.#state = 0;
        refuse("InvalidAccessError", executing("open"), this.#timeout ? "Synchronous requests must not set a timeout." : "Synchronous requests from a document must not set a response type.");
      }
      this.#end();
      this.#target = at.startsWith("blob:") ? new Request(at) : at;
      this.#url = at;
      // The browser's own request normalizes the method.
      this.#method = new Request("data:,", { method: wanted }).method;
      this.#async = async;
      this.#headers = new Headers();
      if (this.#state !== 1) this.#enter(1);
    }

    setRequestHeader(name: string, value: string) {
      const method = "setRequestHeader";
      need(2, arguments.length, method);
      const [field, text] = [byteString(name, method), byteString(value, method).replace(/^[\t\n\r ]+|[\t\n\r ]+$/g, "")];
      this.#mustBeOpen(method);
      if (!TOKEN.test(field)) refuse("SyntaxError", executing(method), `'${field}' is not a valid HTTP header field name.`);
      if (/[\0\n\r]/.test(text)) refuse("SyntaxError", executing(method), `'${text}' is not a valid HTTP header field value.`);
      this.#headers.append(field, text);
    }

    overrideMimeType(mime: string) {
      need(1, arguments.length, "overrideMimeType");
      const text = `${mime}`;
      if (this.#state > 2) refuse("InvalidStateError", executing("overrideMimeType"), "MimeType cannot be overridden when the state is LOADING or DONE.");
      this.#mime = parseMimeType(text) ?? parseMimeType("application/octet-stream");
    }

    getResponseHeader(name: string) {
      const headers = this.#response?.headers;
      need(1, arguments.length, "getResponseHeader");
      const field = byteString(name, "getResponseHeader");
      return attempt(() => headers?.get(field)) ?? null;
    }

    getAllResponseHeaders() {
      const fields = [...(this.#response?.headers ?? [])].map(([name, value]) => [name.toUpperCase(), `${name}: ${value}\r\n`] as const);
      return fields.sort(([one], [other]) => (one < other ? -1 : 1)).map(([, line]) => line).join("");
    }

    send(given: Document | XMLHttpRequestBodyInit | null = null) {
      let body: Document | BodyInit | null = given instanceof Document ? given : bodyOf(given);
      this.#mustBeOpen("send");
      if (!this.#async) {
        this.#state = 4;
        refuse("NetworkError", executing("send"), `Failed to load '${this.#url}': a view has no synchronous requests.`);
      }
      if (/^(GET|HEAD)$/.test(this.#method)) body = null;
      if (body instanceof Document) {
        const html = body.contentType === "text/html";
        if (!this.#headers.has("content-type")) this.#headers.set("content-type", `${html ? "text/html" : "application/xml"};charset=UTF-8`);
        body = html ? [...body.childNodes].map(written).join("") : written(body);
      }
      const type = this.#headers.get("content-type");
      if (type && typeof body === "string") this.#headers.set("content-type", asUtf8(type));
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
      // The request is sent when the script ends, however long that takes.
      timers.later(() => this.#control === control && this.#sent && ((this.#started = Date.now()), this.#watch()), 0);
      const init: RequestInit = {
        method: this.#method, headers: this.#headers, body, signal: control.signal,
        credentials: this.#credentials ? "include" : "same-origin",
      };
      const request = total ? fetch(this.#target, init, (told) => this.#control === control && this.#went(told)) : fetch(this.#target, init);
      untilStopped(this.#receive(request, control), () => this.#control === control && this.#sent && this.#stop(control));
    }

    abort() {
      const running = this.#sent;
      this.#end();
      if (running) this.#fail("abort");
      if (this.#state === 4) this.#state = 0;
    }

    /** A stop of the page is reported in a separate task; the page may open another request before. */
    #stop(running: AbortController) {
      const stopped = (this.#control = new AbortController());
      running.abort();
      timers.later(() => {
        if (this.#control !== stopped) return;
        this.#end();
        this.#fail("abort");
      }, 0);
    }

    #mustBeOpen(method: string) {
      if (this.#state !== 1) refuse("InvalidStateError", executing(method), "The object's state must be OPENED.");
      if (this.#sent) refuse("InvalidStateError", executing(method), "The object's state must be OPENED: send() has already been called.");
    }

    #enter(state: number) {
      this.#state = state;
      this.dispatchEvent(new Event("readystatechange"));
    }

    /** Ends the running request without events. */
    #end() {
      this.#control?.abort();
      this.#control = this.#response = this.#body = this.#made = undefined;
      this.#sent = false;
      this.#unwatch?.();
    }

    #watch() {
      this.#unwatch?.();
      if (!this.#timeout) return;
      const due = this.#started + this.#timeout;
      const end = (): void => {
        const late = Date.now() - due;
        this.#started += late;
        // A busy page could not receive an answer: that time does not count.
        if (late > LONG_TASK) return this.#watch();
        this.#end();
        this.#fail("timeout");
      };
      this.#unwatch = afterLong(timers, end, Math.max(0, due - Date.now()));
    }

    #fail(type: string) {
      this.#enter(4);
      const types = `${type} loadend`;
      if (this.#heard) tell(this.#upload, types, this.#uploaded, this.#uploaded && this.#uploading);
      this.#heard = false;
      this.#uploading = 0;
      tell(this, types);
    }

    /** Upload progress, as the host reports it; else complete when the answer begins. */
    #went({ progress = 0, total: whole = Infinity }) {
      const total = this.#uploading;
      const loaded = Math.floor((total * progress) / whole);
      if (loaded >= total) {
        const control = this.#control;
        this.#uploaded = total;
        if (total) tell(this.#upload, "progress", total, total);
        // A listener may have aborted it, which others then receive instead; after a new open they receive its end.
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
        const body = (this.#body = new ReceivedBody(mimeTypeOf(response.headers.get("content-type")), () => this.#mime));
        this.#enter(2);
        // With several lengths or none, the total is unknown.
        const size = Number(/^\d{1,15}$/.exec(response.headers.get("content-length") ?? ""));
        const reader = response.body?.getReader();
        let loaded = 0;
        // Also after a listener has ended it, since the next listeners receive no other event.
        const say = (type: string): void => (over() ? tell(this, type) : tell(this, type, loaded, size));
        for (;;) {
          const { value } = over() || !reader ? {} : await reader.read();
          if (over()) return;
          if (!value) break;
          body.add(value);
          loaded = body.size;
          this.#enter(3);
          say("progress");
        }
        body.end();
        this.#sent = false;
        this.#unwatch?.();
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

    #document(body: ReceivedBody) {
      return body.document(!!this.#type, this.responseURL);
    }

    #object(body: ReceivedBody) {
      if (this.#type === "document") return this.#document(body);
      if (this.#type === "blob") return body.blob();
      return this.#type === "json" ? body.json() : body.buffer();
    }

    /** Created once, from a complete response. */
    #whole<Value>(make: (body: ReceivedBody) => Value): Value | null {
      if (this.#state !== 4 || !this.#body) return null;
      return (this.#made ??= make(this.#body)) as Value;
    }
  }
  defineHandler(XMLHttpRequest.prototype, "readystatechange");
  // Like those of browsers: wrappers (ajax-hook) enumerate them.
  for (const name of Object.getOwnPropertyNames(XMLHttpRequest.prototype).slice(1)) Object.defineProperty(XMLHttpRequest.prototype, name, { enumerable: true });
  defineClass(XMLHttpRequest, "XMLHttpRequest");
  defineConstants(XMLHttpRequest, "UNSENT", "OPENED", "HEADERS_RECEIVED", "LOADING", "DONE");
  return XMLHttpRequest as unknown as typeof globalThis.XMLHttpRequest;
}
