/** The bridge's HTTP calls: a ticket before it opens, and bodies too large for a frame, as JSON or as bytes. */
import { byteLength } from "../mux";
import { toBase64Url } from "../view/base64";
import { createGate } from "../view/http/gate";

/** Concurrent uploads of pages: browsers have six connections per origin, and a model's call may need one, too. */
const MAX_UPLOADS = 2;
/** Bytes of the largest JSON body. */
const MAX_BODY = 16 * 1024 * 1024;

/** Bytes above which a body is faster as a `Blob`, whose bytes do not pass this page. */
const MAX_BUFFER = 512 * 1024;

export type OnUploadProgress = (bytes: number) => void;

/** The gateway answered with an error. */
export class GatewayRefusal extends Error {
  readonly status: number;

  constructor(status: number, detail: string) {
    super(`the gateway answered ${status}: ${detail}`);
    this.name = "GatewayRefusal";
    this.status = status;
  }
}

type Send = (url: URL, init: RequestInit) => Promise<Response>;

export interface GatewayHttp {
  /** A ticket for one connection that may open views of `apps`; `sent` is called once the request is on its way. */
  ticket(apps: readonly string[], sent?: () => void): Promise<string>;
  /** Upload the text of a body that a message will refer to. */
  putBody(id: string, text: string, signal?: AbortSignal): Promise<void>;
  /** Download the text of a body that a message refers to; it is available once. */
  takeBody(id: string): Promise<string>;
  /** Upload the bytes of a request's body; `sent` receives the progress in bytes. */
  putBytes(id: string, bytes: Blob, signal?: AbortSignal, sent?: OnUploadProgress): Promise<void>;
  /** Download the bytes of an answer's body; they are available once. */
  takeBytes(id: string): Promise<ArrayBuffer | Blob>;
}

/** The headers that identify the page: with the console's CSRF token, or with a token of its own. */
export type Authorize = () => Record<string, string> | Promise<Record<string, string>>;

/** A request to the gateway at `base`. Rejects with GatewayRefusal for any status but success. */
export async function callGateway(base: URL, authorize: Authorize, path: string, init: RequestInit, send: Send = fetch): Promise<Response> {
  const headers = { "content-type": "application/json", ...(await authorize()), ...init.headers };
  const response = await send(new URL(path, base), { ...init, headers, cache: "no-store", redirect: "error" });
  if (!response.ok) throw new GatewayRefusal(response.status, await detailOf(response));
  return response;
}

/** `fetch`, which calls `sent` as well. */
export function notifying(sent?: () => void): Send {
  return (url, init) => {
    sent?.();
    return fetch(url, init);
  };
}

/** The calls to the gateway at `base`, with the console's CSRF token, or other headers. */
export function gatewayHttp(base: URL, csrf: string | Authorize): GatewayHttp {
  const authorize = typeof csrf === "string" ? () => ({ "webmcp-gateway-csrf": csrf }) : csrf;
  const call = (path: string, init: RequestInit, send?: Send): Promise<Response> => callGateway(base, authorize, path, init, send);
  return {
    async ticket(apps, sent) {
      const response = await call("bridge/tickets", { method: "POST", body: JSON.stringify({ apps }) }, notifying(sent));
      const { ticket } = (await response.json()) as { ticket: string };
      return ticket;
    },
    async putBody(id, text, signal) {
      const size = byteLength(text);
      // The gateway would end the connection before it has read that much, and its answer would be lost.
      if (size > MAX_BODY) throw new Error(`it is too large: it has ${size} bytes, and ${MAX_BODY} are the most`);
      await call(`bridge/bodies/${id}`, { method: "PUT", body: text, ...(signal && { signal }) });
    },
    async takeBody(id) {
      return (await call(`bridge/bodies/${id}`, { method: "GET" })).text();
    },
    async putBytes(id, bytes, signal, sent) {
      const type = { "content-type": "application/octet-stream" };
      await call(`bridge/bodies/${id}`, { method: "PUT", body: bytes, headers: type, ...(signal && { signal }) }, sent && fetchWithProgress(sent));
    },
    async takeBytes(id) {
      const response = await call(`bridge/bodies/${id}`, { method: "GET" });
      const length = Number(response.headers.get("content-length") ?? Infinity);
      return length > MAX_BUFFER ? response.blob() : response.arrayBuffer();
    },
  };
}

/** `fetch` with upload progress, which the browser's own does not report. */
function fetchWithProgress(sent: OnUploadProgress): Send {
  return (url, { method, headers, body, signal }) =>
    new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      const request = new XMLHttpRequest();
      request.open(String(method), url);
      new Headers(headers).forEach((value, name) => request.setRequestHeader(name, value));
      request.upload.onprogress = ({ loaded }) => sent(loaded);
      request.onload = () => resolve(new Response(request.responseText || null, { status: request.status }));
      request.onerror = () => reject(new TypeError("Failed to fetch"));
      signal?.addEventListener("abort", () => {
        request.abort();
        reject(signal.reason as Error);
      });
      request.send(body as Blob);
    });
}

async function detailOf(response: Response): Promise<string> {
  const problem: unknown = await response.json().catch(() => null);
  return String((problem as { detail?: unknown } | null)?.detail ?? response.statusText);
}

/** `http` with fewer concurrent uploads, for requests of pages. */
export function limitUploads(http: GatewayHttp): GatewayHttp {
  const gate = createGate(MAX_UPLOADS);
  return {
    ...http,
    putBody: (...given) => gate(() => http.putBody(...given)),
    putBytes: (...given) => gate(() => http.putBytes(...given)),
  };
}

/** 22 characters of base64url, unguessable. */
export function randomId(): string {
  return toBase64Url(crypto.getRandomValues(new Uint8Array(16)));
}
