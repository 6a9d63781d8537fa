/** `fetch` and `XMLHttpRequest` over the tool calls of an app's own `App`: the published names, options and handles. */

import { createAddresses } from "../view/page/addresses";
import { NoHostError, type Calls } from "../view/http/calls";
import { withJoinedBuffers } from "../view/http/buffers";
import { createFetch } from "../view/http/fetch";
import { watchBlobs } from "../view/http/blobs";
import { installIntegrityCheck } from "../view/http/integrity";
import { createNotice } from "../view/page/notice";
import { awaitFinalResult, type PendingDependencies as PendingEnds } from "../view/http/pending";
import { NO_HOST_DETAIL, problemResult } from "../view/http/problem";
import { withResolvedRequests } from "../view/http/request";
import { createXhrOf } from "./xhr";

type Values = { [name: string]: unknown };

/** The part of ext-apps' `App` that is used. */
export interface McpApp {
  callServerTool(params: { name: string; arguments?: Values }, options?: { signal?: AbortSignal; timeout?: number }): Promise<unknown>;
  getHostCapabilities?(): object | undefined;
  openLink?(params: { url: string }): Promise<unknown>;
}

export interface McpHttpBaseOptions {
  /** Paths that are intercepted, with all below them; `["/"]` by default. */
  interceptPaths?: string[];
  /** Whether URLs of other origins are intercepted too; false by default. */
  allowAbsoluteUrls?: boolean;
  /** Whether other requests, or all without a host, use the browser's own functions; true by default. */
  fallbackToNative?: boolean;
  /** Whether requests are intercepted at all, at present; true by default. */
  interceptEnabled?: boolean | (() => boolean);
  /** Whether there is a host that carries calls; by default, whether the `App` found one with `serverTools`. */
  isMcpApp?: () => boolean;
  /** Whether `window.fetch` and `window.XMLHttpRequest` are replaced; true by default. */
  installGlobal?: boolean;
  /** `http_request` by default. */
  toolName?: string;
  /** The server's time limit for an answer, in milliseconds. */
  timeoutMs?: number;
  /** Logs a line for each request, on the console or by your function; false by default. */
  debug?: boolean | ((line: string) => void);
}

export interface McpFetchOptions extends McpHttpBaseOptions {
  /** Decides whether a request is intercepted, in place of `interceptPaths` and `allowAbsoluteUrls`. */
  shouldIntercept?: (url: URL, request: Request) => boolean;
  /** Replaces the browser's own `fetch`. */
  fetch?: typeof fetch;
}

export interface McpXhrOptions extends McpHttpBaseOptions {
  /** The same for a method and a URL: path and query for the app's own site. */
  shouldIntercept?: (method: string, url: string) => boolean;
}

/** `shouldIntercept` decides on both. */
export interface McpHttpOptions extends McpFetchOptions {
  /** Whether `window.fetch` is replaced; true by default. */
  patchFetch?: boolean;
  /** Whether `window.XMLHttpRequest` is replaced; true by default. */
  patchXhr?: boolean;
}

export interface McpHandle {
  /** Intercepts nothing until `start`. */
  stop(): void;
  start(): void;
  isActive(): boolean;
  /** Ends, and restores the replaced functions. */
  restore(): void;
}

export interface McpFetchHandle extends McpHandle {
  fetch: typeof fetch;
}

export interface McpXhrHandle extends McpHandle {
  XMLHttpRequest: typeof XMLHttpRequest;
}

export type McpHttpHandle = McpFetchHandle & McpXhrHandle;

/** The tool's error in place of an answer: the published adapter rejects with its text. */
class ToolError extends TypeError {}

function unwrapResult(result: Values): Values {
  if (!result["isError"]) return result;
  const [first] = (result["content"] ?? []) as { text?: string }[];
  throw new ToolError(first?.text || "The tool gave an error");
}

/** The client's timeout must not end a long answer before the gateway's. */
const CALL_TIMEOUT = 300000;

/** The milliseconds as an argument of the tool; undefined for no limit. */
const toTimeout = (given = 0): number | undefined => (given > 0 && given < Infinity ? Math.min(Math.ceil(given), Number.MAX_SAFE_INTEGER) : undefined);

function createCalls(app: McpApp, { toolName = "http_request", timeoutMs: given }: McpHttpBaseOptions): Calls {
  const timeoutMs = toTimeout(given);
  const later = (run: () => void, milliseconds: number): number => window.setTimeout(run, milliseconds);
  const call = async (name: string, args: Values, signal?: AbortSignal): Promise<Values> => {
    const options = { timeout: CALL_TIMEOUT, ...(signal && { signal }) };
    return (await app.callServerTool({ name, arguments: args }, options)) as Values;
  };
  const notice = createNotice(async (url) => {
    const result = await app.openLink?.({ url });
    return result !== undefined && !(result as { isError?: boolean }).isError;
  });
  const ends: PendingEnds = { stream: (args, signal) => call("http_stream", args, signal), notice, later };
  return {
    http: async (read, signal) => unwrapResult(await awaitFinalResult(await call(toolName, { ...(await read()), ...(timeoutMs && { timeoutMs }) }, signal), ends, signal)),
    stream: ends.stream,
    acceptsBlobs: async () => false,
  } as Partial<Calls> as Calls;
}

function matches(path: string, prefix: string): boolean {
  return path === prefix || path.startsWith(prefix.endsWith("/") ? prefix : `${prefix}/`);
}

export interface Interceptor {
  fetch: typeof fetch;
  native: typeof fetch;
  /** Sends a request in any case, whatever `intercepts` returns for it. */
  send: typeof fetch;
  /** Whether other requests use the browser's own functions. */
  usesNative(): boolean;
  /** Logs how a request is sent. */
  log(method: string, url: string, mine: boolean): void;
  /** Whether `request` is intercepted. */
  intercepts(request: Request): boolean;
  resolve(url: string): string;
  active: boolean;
}

export const notInterceptedError = (): TypeError => new TypeError("Failed to fetch", { cause: "this request is not carried, and fallbackToNative is false" });

/** `decides` receives the absolute URL of a request, and path and query if it is of the app's own site. */
function createInterceptor(app: McpApp, options: Omit<McpFetchOptions, "shouldIntercept">, decides?: (request: Request, url: string, address: string) => boolean): Interceptor {
  const { interceptPaths = ["/"], allowAbsoluteUrls = false, fallbackToNative = true, interceptEnabled = true, debug } = options;
  const native = options.fetch ?? window.fetch.bind(window);
  const served = /^https?:$/.test(location.protocol);
  const addresses = createAddresses("app", served ? location.href : "/", served ? "" : document.baseURI, location);
  const NativeRequest = window.Request;
  const Rebased = withResolvedRequests(NativeRequest, addresses.resolve);
  // The page keeps its own class.
  Object.defineProperty(NativeRequest.prototype, "constructor", { value: NativeRequest, configurable: true, writable: true });
  const writeLine = typeof debug === "function" ? debug : debug ? (line: string) => console.debug(line) : undefined;
  const hasHost = options.isMcpApp ?? (() => !!(app.getHostCapabilities?.() as Values | undefined)?.["serverTools"]);
  const calls = createCalls(app, options);

  watchBlobs(URL);
  installIntegrityCheck();
  const intercepted = withJoinedBuffers(createFetch({
    addresses,
    calls: {
      ...calls,
      http: (read, signal) => (hasHost() ? calls.http(read, signal) : Promise.reject(new NoHostError("no host carries tool calls (serverTools)"))),
    },
    offline: async () => problemResult(503, "no-host", NO_HOST_DETAIL),
    Request: Rebased,
    warn: (line) => console.warn(`webmcp-gateway: ${line}`),
  }));

  const interceptor: Interceptor = {
    active: true,
    native,
    resolve: addresses.resolve,
    send: (...given) => {
      const request = new Rebased(...given);
      interceptor.log(request.method, request.url, true);
      return intercepted(request);
    },
    usesNative: () => fallbackToNative || !interceptor.active,
    log: (method, url, mine) => writeLine?.(`webmcp-gateway-view: ${method} ${url}: ${mine ? "carried" : "the browser's own"}`),
    intercepts(request) {
      const enabled = typeof interceptEnabled === "function" ? interceptEnabled() : interceptEnabled;
      if (!interceptor.active || !enabled) return false;
      const url = addresses.resolve(request.url);
      const address = addresses.toWire(url.replace(/#.*/s, ""));
      const own = address.startsWith("/");
      const { pathname, protocol } = new URL(address, "http://app.invalid");
      if (!/^https?:$/.test(protocol)) return false;
      const listed = own ? interceptPaths.some((prefix) => matches(pathname, prefix)) : allowAbsoluteUrls;
      if (!(decides ? decides(request, url, address) : listed)) return false;
      // Without a host the answer is the browser's, or an error.
      return hasHost() || !fallbackToNative;
    },
    fetch: Object.defineProperty(
      async (input: RequestInfo | URL, ...rest: [RequestInit?]): Promise<Response> => {
        const request = new Rebased(input, ...rest);
        const mine = interceptor.intercepts(request);
        interceptor.log(request.method, request.url, mine);
        if (mine) {
          return intercepted(request).catch((error: Error) => {
            throw error.cause instanceof ToolError ? error.cause : error;
          });
        }
        if (!interceptor.usesNative()) throw notInterceptedError();
        // A `Request` was consumed by the new one with its body.
        return input instanceof NativeRequest ? native(request) : native(input, ...rest);
      },
      "name",
      { value: "fetch" },
    ),
  };
  return interceptor;
}

function handle(interceptor: Interceptor, restoreGlobal: () => void): McpHandle {
  let over = false;
  return {
    stop: () => void (interceptor.active = false),
    start: () => void (interceptor.active = !over),
    isActive: () => interceptor.active,
    restore() {
      if (over) return;
      over = true;
      interceptor.active = false;
      restoreGlobal();
    },
  };
}

/** Replaces a global by `value` if `wanted`; returns a function that restores it, unless it was replaced again. */
function install<Name extends "fetch" | "XMLHttpRequest">(name: Name, value: (typeof window)[Name], wanted: boolean | undefined): () => void {
  if (wanted === false) return () => undefined;
  const before = window[name];
  window[name] = value;
  return () => {
    if (window[name] === value) window[name] = before;
  };
}

/** Adapts a `shouldIntercept` by URL and request to an interceptor's `decides`. */
function decideByUrl({ shouldIntercept }: McpFetchOptions): Parameters<typeof createInterceptor>[2] {
  return shouldIntercept && ((request, url) => shouldIntercept(new URL(url), request));
}

/** Intercepts `fetch` of the page by `app`. Call it before or after `app.connect()`. */
export function initMcpFetch(app: McpApp, options: McpFetchOptions = {}): McpFetchHandle {
  const interceptor = createInterceptor(app, options, decideByUrl(options));
  const putBack = install("fetch", interceptor.fetch, options.installGlobal);
  return { fetch: interceptor.fetch, ...handle(interceptor, putBack) };
}

/** Intercepts `XMLHttpRequest` of the page by `app`. */
export function initMcpXhr(app: McpApp, options: McpXhrOptions = {}): McpXhrHandle {
  const { shouldIntercept } = options;
  const interceptor = createInterceptor(app, options, shouldIntercept && (({ method }, _, address) => shouldIntercept(method, address)));
  const made = createXhrOf(interceptor);
  return { XMLHttpRequest: made, ...handle(interceptor, install("XMLHttpRequest", made, options.installGlobal)) };
}

/** Intercepts both. */
export function initMcpHttp(app: McpApp, options: McpHttpOptions = {}): McpHttpHandle {
  const { installGlobal = true, patchFetch = true, patchXhr = true } = options;
  const interceptor = createInterceptor(app, options, decideByUrl(options));
  const made = createXhrOf(interceptor);
  const putBack = [
    install("fetch", interceptor.fetch, installGlobal && patchFetch),
    install("XMLHttpRequest", made, installGlobal && patchXhr),
  ];
  return { fetch: interceptor.fetch, XMLHttpRequest: made, ...handle(interceptor, () => putBack.forEach((undo) => undo())) };
}
