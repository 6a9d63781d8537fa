/** `XMLHttpRequest` over `fetch`: its states, its events and their order (XMLHttpRequest Standard, 3). */

import { attempt } from "../attempt";
import { bodySize } from "./beacon";
import { serializeForm } from "./form-data";
import { defineClass, defineConstants, defineHandler } from "./handlers";
import { setLongTimer } from "./long-timer";
import { mimeTypeOf, parseMimeType, type MimeType } from "./mime";
import { endOnStop } from "./page-stop";
import { ReceivedBody } from "./xhr-body";

/** The key for constructors that pages must not call (Web IDL, 3.7.1). */
export const CONSTRUCT = Symbol("own");

/** `XMLHttpRequestEventTarget` */
export class XhrEventTarget extends EventTarget {
  constructor(...[made]: unknown[]) {
    if (made !== CONSTRUCT) throw new TypeError("Illegal constructor");
    super();
  }
}
for (const type of ["loadstart", "progress", "abort", "error", "load", "timeout", "loadend"]) defineHandler(XhrEventTarget.prototype, type);
defineClass(XhrEventTarget, "XMLHttpRequestEventTarget");
/** Uploads with listeners: only if there are any when it is sent, upload events are fired (3.5.6, "upload listener flag"). */
const uploadsWithListeners = new WeakSet<EventTarget>();
/** `XMLHttpRequestUpload` */
export class Upload extends XhrEventTarget {
  override addEventListener(...given: Parameters<EventTarget["addEventListener"]>) {
    uploadsWithListeners.add(this);
    super.addEventListener(...given);
  }
}
defineClass(Upload, "XMLHttpRequestUpload");
/** Whether an upload has listeners. */
export const hasListeners = (upload: Upload): boolean => uploadsWithListeners.has(upload);

const FORBIDDEN = /^(connect|trac[ek])$/i;
const TOKEN = /^[!#$%&'*+\-.^_`|~\w]+$/;
const TYPES = ["", "arraybuffer", "blob", "document", "json", "text"];
/** The limit of a long task, in milliseconds (Long Tasks, 1). */
const LONG_TASK = 50;
const TEXT_ONLY = "The value is only accessible if the object's 'responseType' is ''";

/** Throws the browser's error for an invalid use of `member`. */
function throwInvalidUse(name: string, member: string, why: string): never {
  throw new DOMException(`Failed to ${member} 'XMLHttpRequest': ${why}`, name);
}

const executeOn = (method: string): string => `execute '${method}' on`;
const setOn = (property: string): string => `set the '${property}' property on`;
const readFrom = (property: string): string => `read the '${property}' property from`;

/** `value` as a text (Web IDL, `DOMString`). */
function toText(value: unknown, method: string): string {
  if (typeof value === "symbol") throw new TypeError(`Failed to ${executeOn(method)} 'XMLHttpRequest': Cannot convert a Symbol value to a string`);
  return String(value);
}

/** `value` as a text whose characters are bytes (Web IDL, `ByteString`). */
function byteString(value: unknown, method: string): string {
  const text = toText(value, method);
  if (/[^\0-\xff]/.test(text)) throw new TypeError(`Failed to ${executeOn(method)} 'XMLHttpRequest': String contains non ISO-8859-1 code point.`);
  return text;
}

function requireArguments(count: number, given: number, method: string): void {
  if (given < count) throw new TypeError(`Failed to ${executeOn(method)} 'XMLHttpRequest': ${count} argument${count > 1 ? "s" : ""} required, but only ${given} present.`);
}

/** Serializes a document that is sent, or a part of it. */
const serialize = (node: Node): string => (node instanceof HTMLElement ? node.outerHTML : new XMLSerializer().serializeToString(node));

/** The body of `given`, which is no document: values of other types become text (Web IDL, `XMLHttpRequestBodyInit`). */
function toBody(given: Exclude<XMLHttpRequestBodyInit, Document> | null): BodyInit | null {
  const isView = ArrayBuffer.isView(given);
  const buffer = isView ? given.buffer : given;
  const kind = isView ? "ArrayBufferView" : "ArrayBuffer";
  const refuse = (why: string): never => {
    throw new TypeError(`Failed to ${executeOn("send")} 'XMLHttpRequest': ${why}`);
  };
  if (/SharedArrayBuffer/.test(Object.prototype.toString.call(buffer))) refuse(isView ? `The provided ${kind} value must not be shared.` : `Failed to convert value to '${kind}'.`);
  if (buffer instanceof ArrayBuffer && (buffer as { resizable?: boolean }).resizable) refuse(`The provided ${kind} value must not be resizable.`);
  const known = given === null || isView || [Blob, ArrayBuffer, FormData, URLSearchParams].some((type) => given instanceof type);
  return known ? given : toText(given, "send");
}

/** The type that is sent with a text, which is UTF-8 (XMLHttpRequest, 3.5.6), as Chromium writes it. */
const withUtf8Charset = (type: string): string => type.replace(/(charset\s*=\s*"?)[^\s;"]*/i, "$1UTF-8");

function fireProgress(target: EventTarget, types: string, loaded = 0, total = 0, lengthComputable = total > 0): void {
  for (const type of types.split(" ")) target.dispatchEvent(new ProgressEvent(type, { lengthComputable, loaded, total }));
}

interface XhrDependencies {
  /** `progress` receives upload progress, if the runtime reports it. */
  fetch(url: string | Request, init: RequestInit, progress?: (told: { progress?: number; total?: number }) => void): Promise<Response>;
  resolve(url: string): string;
  later(run: () => void, milliseconds: number): number;
  cancelTimer(timer: number | undefined): void;
}

export function createXhr({ fetch, resolve, ...timers }: XhrDependencies): typeof globalThis.XMLHttpRequest {
  const { Request } = globalThis;
  class XMLHttpRequest extends XhrEventTarget {
    readonly #upload = new Upload(CONSTRUCT);
    #credentials = false;
    #state = 0;
    #sent = false;
    #async = true;
    #method = "";
    #url = "";
    #mime: MimeType | undefined;
    #type = "";
    #timeout = 0;
    #startTime = 0;
    #cancelTimeout: (() => void) | undefined;
    /** A `Request` of a `blob:` URL keeps the blob, even after the URL is revoked (URL, "blob URL entry"). */
    #target: string | Request = "";
    #headers = new Headers();
    #control: AbortController | undefined;
    /** Whether upload events are fired, until it is over; as in Chromium, also for a failing request without a body. */
    #firesUploadEvents = false;
    #uploading = 0;
    #uploaded = 0;
    #response: Response | undefined;
    #body: ReceivedBody | undefined;
    #cachedResponse: unknown;

    constructor() {
      super(CONSTRUCT);
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
      if (state > 2) throwInvalidUse("InvalidStateError", setOn("responseType"), "The response type cannot be set if the object's state is LOADING or DONE.");
      if (!this.#async) throwInvalidUse("InvalidAccessError", setOn("responseType"), "The response type cannot be changed for synchronous requests made from a document.");
      this.#type = type;
    }
    get timeout() { return this.#timeout; }
    set timeout(milliseconds) {
      if (!this.#async) throwInvalidUse("InvalidAccessError", setOn("timeout"), "Timeouts cannot be set for synchronous requests made from a document.");
      this.#timeout = Number(milliseconds) >>> 0;
      if (this.#sent) this.#startTimeout();
    }
    get withCredentials() { return this.#credentials; }
    set withCredentials(wanted) {
      if (this.#state > 1 || this.#sent) throwInvalidUse("InvalidStateError", setOn("withCredentials"), "The value may only be set if the object's state is UNSENT or OPENED.");
      this.#credentials = !!wanted;
    }
    get responseText() {
      if (this.#type && this.#type !== "text") throwInvalidUse("InvalidStateError", readFrom("responseText"), `${TEXT_ONLY} or 'text' (was '${this.#type}').`);
      return (this.#state > 2 && this.#body?.text(this.#type ? "nowhere" : "xml")) || "";
    }
    get responseXML() {
      if (this.#type && this.#type !== "document") throwInvalidUse("InvalidStateError", readFrom("responseXML"), `${TEXT_ONLY} or 'document' (was '${this.#type}').`);
      return this.#readWhenDone((body) => this.#createDocument(body));
    }
    get response() {
      if (!this.#type || this.#type === "text") return this.responseText;
      return this.#readWhenDone((body) => this.#createResponse(body));
    }

    open(method: string, url: string | URL, ...given: unknown[]) {
      requireArguments(2, arguments.length, "open");
      const async = !given.length || !!given[0];
      const wanted = byteString(method, "open");
      const address = `${url}`;
      // User name and password are converted, and ignored: only the gateway adds credentials.
      given.slice(1, 3).join();
      if (!TOKEN.test(wanted)) throwInvalidUse("SyntaxError", executeOn("open"), `'${wanted}' is not a valid HTTP method.`);
      if (FORBIDDEN.test(wanted)) throwInvalidUse("SecurityError", executeOn("open"), `'${wanted}' HTTP method is unsupported.`);
      const at = attempt(() => resolve(address));
      if (at === undefined) throwInvalidUse("SyntaxError", executeOn("open"), "Invalid URL");
      if (!async && (this.#timeout || this.#type)) {
        this.#end();
        // As in Chromium.
        this.#state = 0;
        throwInvalidUse("InvalidAccessError", executeOn("open"), this.#timeout ? "Synchronous requests must not set a timeout." : "Synchronous requests from a document must not set a response type.");
      }
      this.#end();
      this.#target = at.startsWith("blob:") ? new Request(at) : at;
      this.#url = at;
      // The browser's own request normalizes the method.
      this.#method = new Request("data:,", { method: wanted }).method;
      this.#async = async;
      this.#headers = new Headers();
      if (this.#state !== 1) this.#setState(1);
    }

    setRequestHeader(name: string, value: string) {
      const method = "setRequestHeader";
      requireArguments(2, arguments.length, method);
      const [field, text] = [byteString(name, method), byteString(value, method).replace(/^[\t\n\r ]+|[\t\n\r ]+$/g, "")];
      this.#mustBeOpen(method);
      if (!TOKEN.test(field)) throwInvalidUse("SyntaxError", executeOn(method), `'${field}' is not a valid HTTP header field name.`);
      if (/[\0\n\r]/.test(text)) throwInvalidUse("SyntaxError", executeOn(method), `'${text}' is not a valid HTTP header field value.`);
      this.#headers.append(field, text);
    }

    overrideMimeType(mime: string) {
      requireArguments(1, arguments.length, "overrideMimeType");
      const text = `${mime}`;
      if (this.#state > 2) throwInvalidUse("InvalidStateError", executeOn("overrideMimeType"), "MimeType cannot be overridden when the state is LOADING or DONE.");
      this.#mime = parseMimeType(text) ?? parseMimeType("application/octet-stream");
    }

    getResponseHeader(name: string) {
      const headers = this.#response?.headers;
      requireArguments(1, arguments.length, "getResponseHeader");
      const field = byteString(name, "getResponseHeader");
      return attempt(() => headers?.get(field)) ?? null;
    }

    getAllResponseHeaders() {
      const fields = [...(this.#response?.headers ?? [])].map(([name, value]) => [name.toUpperCase(), `${name}: ${value}\r\n`] as const);
      return fields.sort(([one], [other]) => (one < other ? -1 : 1)).map(([, line]) => line).join("");
    }

    send(given: Document | XMLHttpRequestBodyInit | null = null) {
      let body: Document | BodyInit | null = given instanceof Document ? given : toBody(given);
      this.#mustBeOpen("send");
      if (!this.#async) {
        this.#state = 4;
        throwInvalidUse("NetworkError", executeOn("send"), `Failed to load '${this.#url}': a view has no synchronous requests.`);
      }
      if (/^(GET|HEAD)$/.test(this.#method)) body = null;
      if (body instanceof Document) {
        const html = body.contentType === "text/html";
        if (!this.#headers.has("content-type")) this.#headers.set("content-type", `${html ? "text/html" : "application/xml"};charset=UTF-8`);
        body = html ? [...body.childNodes].map(serialize).join("") : serialize(body);
      }
      const type = this.#headers.get("content-type");
      if (type && typeof body === "string") this.#headers.set("content-type", withUtf8Charset(type));
      const control = (this.#control = new AbortController());
      this.#firesUploadEvents = uploadsWithListeners.has(this.#upload) && /^(http|blob)/.test(this.#url);
      // Its total is that of the bytes that are sent.
      if (this.#firesUploadEvents && body instanceof FormData) body = serializeForm(body);
      const total = this.#firesUploadEvents ? bodySize(body) : 0;
      this.#sent = true;
      this.#startTime = Date.now();
      this.#uploading = total;
      this.#uploaded = 0;
      fireProgress(this, "loadstart");
      // A listener may have aborted it, or opened it anew.
      if (this.#firesUploadEvents && body !== null && this.#control === control) fireProgress(this.#upload, "loadstart", 0, total, true);
      if (this.#control !== control) return;
      // The request is sent when the script ends, however long that takes.
      timers.later(() => this.#control === control && this.#sent && ((this.#startTime = Date.now()), this.#startTimeout()), 0);
      const init: RequestInit = {
        method: this.#method, headers: this.#headers, body, signal: control.signal,
        credentials: this.#credentials ? "include" : "same-origin",
      };
      const request = total ? fetch(this.#target, init, (told) => this.#control === control && this.#onUploadProgress(told)) : fetch(this.#target, init);
      endOnStop(this.#receive(request, control), () => this.#control === control && this.#sent && this.#stop(control));
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
      if (this.#state !== 1 || this.#sent) throwInvalidUse("InvalidStateError", executeOn(method), "The object's state must be OPENED.");
    }

    #setState(state: number) {
      this.#state = state;
      this.dispatchEvent(new Event("readystatechange"));
    }

    /** Ends the running request without events. */
    #end() {
      this.#control?.abort();
      this.#control = this.#response = this.#body = this.#cachedResponse = undefined;
      this.#sent = false;
      this.#cancelTimeout?.();
    }

    #startTimeout() {
      this.#cancelTimeout?.();
      if (!this.#timeout) return;
      const due = this.#startTime + this.#timeout;
      const end = (): void => {
        const late = Date.now() - due;
        this.#startTime += late;
        // A busy page could not receive an answer: that time does not count.
        if (late > LONG_TASK) return this.#startTimeout();
        this.#end();
        this.#fail("timeout");
      };
      this.#cancelTimeout = setLongTimer(timers, end, Math.max(0, due - Date.now()));
    }

    #fail(type: string) {
      this.#setState(4);
      const types = `${type} loadend`;
      if (this.#firesUploadEvents) fireProgress(this.#upload, types, this.#uploaded, this.#uploaded && this.#uploading);
      this.#firesUploadEvents = false;
      this.#uploading = 0;
      fireProgress(this, types);
    }

    /** Upload progress, as the host reports it; else complete when the answer begins. */
    #onUploadProgress({ progress = 0, total: whole = Infinity }) {
      const total = this.#uploading;
      const loaded = Math.floor((total * progress) / whole);
      if (loaded >= total) {
        const control = this.#control;
        this.#uploaded = total;
        if (total) fireProgress(this.#upload, "progress", total, total);
        // A listener may have aborted it, which others then receive instead; after a new open they receive its end.
        if (!this.#control && !this.#uploading) return;
        if (this.#control === control) {
          this.#uploading = 0;
          this.#firesUploadEvents &&= !total;
        }
        if (total) fireProgress(this.#upload, "load loadend", total, total);
      } else if (loaded > this.#uploaded) {
        this.#uploaded = loaded;
        fireProgress(this.#upload, "progress", loaded, total);
      }
    }

    async #receive(request: Promise<Response>, control: AbortController) {
      const isReplaced = () => this.#control !== control;
      try {
        const response = await request;
        if (isReplaced()) return;
        this.#onUploadProgress({ progress: 1, total: 1 });
        if (isReplaced()) return;
        this.#response = response;
        const body = (this.#body = new ReceivedBody(mimeTypeOf(response.headers.get("content-type")), () => this.#mime));
        this.#setState(2);
        // With several lengths or none, the total is unknown.
        const size = Number(/^\d{1,15}$/.exec(response.headers.get("content-length") ?? ""));
        const reader = response.body?.getReader();
        let loaded = 0;
        // Also after a listener has ended it, since the next listeners receive no other event.
        // The body of such a URL arrives at once.
        const isData = this.#url.startsWith("data:");
        const fireDownload = (type: string): void => (isReplaced() ? fireProgress(this, type) : fireProgress(this, type, loaded, isData ? loaded : size));
        for (;;) {
          const { value } = isReplaced() || !reader ? {} : await reader.read();
          if (isReplaced()) return;
          if (!value) break;
          body.add(value);
          loaded = body.size;
          this.#setState(3);
          fireDownload("progress");
        }
        body.end();
        this.#sent = false;
        this.#cancelTimeout?.();
        this.#setState(4);
        if (isReplaced()) return;
        fireDownload("load");
        fireDownload("loadend");
      } catch {
        if (isReplaced()) return;
        this.#end();
        this.#fail("error");
      }
    }

    #createDocument(body: ReceivedBody) {
      return body.document(!!this.#type, this.responseURL);
    }

    #createResponse(body: ReceivedBody) {
      if (this.#type === "document") return this.#createDocument(body);
      if (this.#type === "blob") return body.blob();
      return this.#type === "json" ? body.json() : body.buffer();
    }

    /** Created once, from a complete response. */
    #readWhenDone<Value>(make: (body: ReceivedBody) => Value): Value | null {
      if (this.#state !== 4 || !this.#body) return null;
      return (this.#cachedResponse ??= make(this.#body)) as Value;
    }
  }
  defineHandler(XMLHttpRequest.prototype, "readystatechange");
  // Like those of browsers: wrappers (ajax-hook) enumerate them.
  for (const name of Object.getOwnPropertyNames(XMLHttpRequest.prototype).slice(1)) Object.defineProperty(XMLHttpRequest.prototype, name, { enumerable: true });
  defineClass(XMLHttpRequest, "XMLHttpRequest");
  defineConstants(XMLHttpRequest, "UNSENT", "OPENED", "HEADERS_RECEIVED", "LOADING", "DONE");
  return XMLHttpRequest as unknown as typeof globalThis.XMLHttpRequest;
}
