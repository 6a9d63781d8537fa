/** Converts an answer to the `Response` that `fetch` would have returned. */

import { attempt } from "../attempt";
import { fromBase64 } from "../base64";
import { isObject, objectOf, type Params } from "../host/json-rpc";

/** The content of an `http_request` result, after `answerOf`. */
export interface Answer {
  status: number;
  statusText: string;
  headers: [string, string][];
  body: Uint8Array<ArrayBuffer> | null;
  url: string;
  redirected: boolean;
  /** The id for the next part of the body by `http_stream`; undefined if this is the last. */
  stream?: string | undefined;
  /** Additional information for a developer. */
  why?: string;
}

/** Reads the following part of a body, or cancels it. */
export interface BodyParts {
  readNext(id: string, signal: AbortSignal, pushed: (bytes: Answer["body"]) => void): Promise<Answer>;
  cancel(id: string): void;
}

const NULL_BODY = [204, 205, 304];
const REASON = /^[\t\x20-\x7e\x80-\xff]*$/;

function bytesOf(type: unknown, body: unknown): Uint8Array<ArrayBuffer> {
  const text = (value: unknown): Uint8Array<ArrayBuffer> => new TextEncoder().encode(value as string); // converts it
  if (type === "none" || body === undefined) return new Uint8Array();
  // Our own host passes received bytes.
  if (body instanceof ArrayBuffer) return new Uint8Array(body);
  if (type === "base64") return fromBase64(String(isObject(body) ? body["data"] : body));
  if (type === "json") return text(JSON.stringify(body));
  if (type === "urlEncoded" && isObject(body)) return text(new URLSearchParams(body as Record<string, string>));
  return text(body);
}

/** Throws if `given` is no answer that a `Response` could carry, which converts the values to strings. */
export function readAnswer(given: Params | undefined): Answer {
  const status = given?.["status"];
  if (!given || typeof status !== "number" || !(status >= 200 && status <= 599)) throw new Error("no HTTP answer");
  const { statusText = "", url = "", redirected, bodyType, body, stream } = given as { [key: string]: unknown; statusText?: string; url?: string };
  return {
    status,
    statusText: REASON.test(statusText) ? statusText : "",
    headers: Object.entries(objectOf(given["headers"]) as Record<string, string>).filter(([name]) => !/^(set-cookie2?|gateway-calls)$/i.test(name)),
    body: NULL_BODY.includes(status) ? null : bytesOf(bodyType, body),
    url,
    redirected: !!redirected,
    stream: typeof stream === "string" && !NULL_BODY.includes(status) ? stream : undefined,
  };
}

/** `first` and the parts that follow it, each requested when it is read; fails with the signal's reason at an abort. */
function streamBody(first: Answer, parts: BodyParts | undefined, signal: AbortSignal | undefined): ReadableStream<Uint8Array<ArrayBuffer>> {
  const asking = new AbortController();
  let { body: bytes, stream: id } = first;
  /** Not by a separate signal: zone.js would run other work within `pull`, which Chromium then never ends. */
  let fail: () => void;
  const unwatchAbort = (): void => signal?.removeEventListener("abort", fail);
  const cancel = (): void => {
    unwatchAbort();
    asking.abort();
    if (id !== undefined) parts?.cancel(id);
    id = undefined;
  };
  return new ReadableStream({
    // Pages modify `Object.prototype`.
    __proto__: null,
    // WebKit has no byte streams.
    type: globalThis.ReadableByteStreamController && "bytes",
    start(controller) {
      fail = () => {
        cancel();
        controller.error(signal?.reason);
      };
      signal?.addEventListener("abort", fail);
    },
    async pull(controller) {
      let came = false;
      const put = (more: Answer["body"]): void => {
        if (!more?.length) return;
        controller.enqueue(more);
        came = true;
      };
      put(bytes);
      while (!came && parts && id !== undefined) {
        const part = await parts.readNext(id, asking.signal, put);
        id = part.stream;
        put(part.body);
      }
      bytes = null;
      if (id !== undefined) return;
      unwatchAbort();
      controller.close();
      controller.byobRequest?.respond(0);
    },
    cancel,
    // Another value would request a part that is not read yet.
  } as UnderlyingByteSource, { __proto__: null, highWaterMark: 0 } as object);
}

interface ResponseFacts {
  url: string;
  redirected?: boolean;
  type: ResponseType;
  signal?: AbortSignal | undefined;
}

const READERS = ["arrayBuffer", "blob", "bytes", "formData", "json", "text"] as const;

/** Adds properties to `response` that its constructor cannot set; `clone()` keeps them. */
export function withFacts(response: Response, { signal, ...facts }: ResponseFacts): Response {
  const put = (name: string, value: unknown, owner: object = response): unknown =>
    Object.defineProperty(owner, name, { value, configurable: true, writable: true });
  for (const [name, value] of Object.entries(facts)) put(name, value);
  // Its guard is "immutable" (Fetch, 5.1).
  for (const name of ["append", "delete", "set"]) {
    put(name, () => {
      throw new TypeError("immutable");
    }, response.headers);
  }
  put("clone", () => withFacts(Response.prototype.clone.call(response), { signal, ...facts }));
  for (const name of READERS) {
    const read = response[name] as (() => Promise<unknown>) | undefined;
    if (!read) continue;
    put(name, () => {
      const { bodyUsed, body } = response;
      const reason = (error?: unknown): Promise<never> => Promise.reject(signal?.aborted && !bodyUsed ? signal.reason : error);
      // An aborted body rejects at once. Chromium turns the stream's reason into a TypeError.
      return signal?.aborted && body && !bodyUsed ? reason() : read.call(response).catch(reason);
    });
  }
  return response;
}

/** `url` is absolute, without fragment. */
export function createResponse(answer: Answer, url: string, signal?: AbortSignal, parts?: BodyParts): Response {
  const { status, statusText, headers, body, redirected } = answer;
  const whole = answer.stream === undefined;
  const response = new Response(body || !whole ? streamBody(answer, parts, signal) : null, { status, statusText });
  // Invalid headers are omitted: the rest of the answer is usable.
  for (const [name, value] of headers) attempt(() => response.headers.append(name, value));
  // Many servers do not send it, or of the compressed body; of a whole body it is known.
  if (body?.length && whole) response.headers.set("content-length", body.length as unknown as string);
  return withFacts(response, { url, redirected, type: "basic", signal });
}

/** The response of `redirect: "manual"` to a redirect: nothing but the fact. */
export function opaqueRedirect(url: string): Response {
  return withFacts(Response.error(), { url, type: "opaqueredirect" });
}
