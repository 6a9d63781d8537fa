/** An `XMLHttpRequest` that is intercepted, or the browser's own, as decided at `open()`. */

import { attempt } from "../view/attempt";
import { defineClass, defineConstants, defineHandler } from "../view/http/handlers";
import { createXhr, hasListeners, CONSTRUCT, XhrEventTarget, Upload } from "../view/http/xhr";
import { notInterceptedError, type Interceptor } from "./http";

type Xhr = XMLHttpRequest;

const READ_ONLY = ["readyState", "status", "statusText", "responseURL", "response", "responseText", "responseXML"] as const;
const READ_WRITE = ["responseType", "timeout", "withCredentials"] as const;
const METHODS = ["setRequestHeader", "abort", "getResponseHeader", "getAllResponseHeaders"] as const;
const TYPES = ["loadstart", "progress", "abort", "error", "load", "timeout", "loadend"];

/** Dispatches each event of `from` at `to`. */
function forward(from: EventTarget, to: EventTarget, types: string[], wanted: () => boolean): void {
  for (const type of types) {
    from.addEventListener(type, (event) => {
      if (!wanted()) return;
      const { lengthComputable, loaded, total } = event as ProgressEvent;
      to.dispatchEvent(event instanceof ProgressEvent ? new ProgressEvent(type, { lengthComputable, loaded, total }) : new Event(type));
    });
  }
}

export function createXhrOf(interceptor: Interceptor): typeof XMLHttpRequest {
  const NativeXhr = window.XMLHttpRequest;
  const ends = {
    resolve: interceptor.resolve,
    later: (run: () => void, milliseconds: number) => window.setTimeout(run, milliseconds),
    cancelTimer: (timer: number | undefined) => window.clearTimeout(timer),
  };
  const InterceptedXhr = createXhr({ ...ends, fetch: interceptor.send });
  const RefusedXhr = createXhr({ ...ends, fetch: () => Promise.reject(notInterceptedError()) });

  class McpXhr extends XhrEventTarget {
    readonly #upload = new Upload(CONSTRUCT);
    #inner!: Xhr;
    #mime: string | undefined;

    constructor() {
      super(CONSTRUCT);
      this.#useInner(interceptor.active || !NativeXhr ? InterceptedXhr : NativeXhr);
    }

    /** The inner request to which this one delegates. */
    static of(one: McpXhr): Xhr {
      return one.#inner;
    }

    get upload() { return this.#upload; }

    open(...given: Parameters<Xhr["open"]>) {
      const [method, url, ...rest] = given as [string, string | URL, ...unknown[]];
      const request = attempt(() => new Request(interceptor.resolve(`${url}`), { method: `${method}` }));
      // An invalid request is refused by ours.
      const mine = !request || interceptor.intercepts(request);
      if (mine && rest.length && !rest[0]) {
        throw new DOMException("Failed to execute 'open' on 'XMLHttpRequest': Synchronous XMLHttpRequest is not supported in MCP Apps.", "InvalidAccessError");
      }
      const wanted = mine ? InterceptedXhr : interceptor.usesNative() ? NativeXhr : RefusedXhr;
      if (!(this.#inner instanceof wanted)) this.#useInner(wanted);
      if (wanted === NativeXhr && request) interceptor.log(request.method, request.url, false);
      this.#inner.open(...given);
    }

    overrideMimeType(mime: string) {
      this.#inner.overrideMimeType(...(arguments as unknown as [string]));
      this.#mime = mime;
    }

    send(body?: Document | XMLHttpRequestBodyInit | null) {
      const inner = this.#inner;
      // With upload listeners, other sites receive a preflight request (Fetch, "CORS-preflight").
      if (hasListeners(this.#upload)) forward(inner.upload, this.#upload, TYPES, () => this.#inner === inner);
      inner.send(body);
    }

    #useInner(wanted: typeof XMLHttpRequest) {
      const former = this.#inner as Xhr | undefined;
      const inner = (this.#inner = new wanted());
      forward(inner, this, ["readystatechange", ...TYPES], () => this.#inner === inner);
      if (!former) return;
      for (const name of READ_WRITE) if (former[name]) Object.assign(inner, { [name]: former[name] });
      if (this.#mime !== undefined) inner.overrideMimeType(this.#mime);
      former.abort();
    }
  }

  const { prototype } = McpXhr;
  const define = (name: string, descriptor: PropertyDescriptor): unknown => Object.defineProperty(prototype, name, { configurable: true, enumerable: true, ...descriptor });
  for (const name of [...READ_ONLY, ...READ_WRITE]) {
    const set = READ_WRITE.includes(name as never) && { set(this: McpXhr, value: unknown) { Object.assign(McpXhr.of(this), { [name]: value }); } };
    define(name, { get(this: McpXhr) { return McpXhr.of(this)[name]; }, ...set });
  }
  for (const name of METHODS) {
    define(name, {
      writable: true,
      value(this: McpXhr, ...given: unknown[]) { return (McpXhr.of(this)[name] as Function).apply(McpXhr.of(this), given); },
    });
  }
  for (const name of ["upload", "open", "overrideMimeType", "send"]) Object.defineProperty(prototype, name, { enumerable: true });
  defineHandler(prototype, "readystatechange");
  defineClass(McpXhr, "XMLHttpRequest");
  defineConstants(McpXhr, "UNSENT", "OPENED", "HEADERS_RECEIVED", "LOADING", "DONE");
  Object.defineProperties(McpXhr, { length: { value: 0 }, of: { enumerable: false } });
  return McpXhr as unknown as typeof XMLHttpRequest;
}
