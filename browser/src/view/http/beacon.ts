/** `navigator.sendBeacon` over `fetch` (Beacon, 3.1), and the size limit of `keepalive`. */

import { wrapFetch } from "./wrap-fetch";

const MAX_BYTES = 64 * 1024;

/** The approximate bytes of a body. */
export function bodySize(body: unknown): number {
  if (body instanceof Blob) return body.size;
  if (body instanceof ArrayBuffer || ArrayBuffer.isView(body)) return body.byteLength;
  if (body instanceof FormData) return [...body].reduce((sum, [name, value]) => sum + name.length + bodySize(value), 0);
  return new TextEncoder().encode(String(body ?? "")).length;
}

export function createBeacon(fetch: typeof globalThis.fetch, resolve: (url: string) => string): Navigator["sendBeacon"] {
  return function sendBeacon(given, body = null) {
    const url = arguments.length ? resolve(String(given)) : "";
    if (!/^https?:/.test(url)) throw new TypeError(`not HTTP: ${url}`);
    if (body instanceof ReadableStream) throw new TypeError("a stream is never whole");
    if (bodySize(body) > MAX_BYTES) return false;
    // The result is discarded.
    fetch(url, { method: "POST", body: body as BodyInit, credentials: "include" }).catch(() => undefined);
    return true;
  };
}

/** Rejects like browsers: bodies of `keepalive` requests in flight may have 64 KiB together (Fetch, 4.7). */
export function withKeepalive(fetch: typeof globalThis.fetch): typeof globalThis.fetch {
  let flying = 0;
  return wrapFetch(fetch, async (...given) => {
    const [input, init] = given;
    const of = input instanceof Request ? input : undefined;
    if (!(init?.keepalive ?? of?.keepalive)) return fetch(...given);
    const { body } = init ?? {};
    const size = body instanceof ReadableStream ? Infinity : of && !body ? (await of.clone().blob()).size : bodySize(body);
    if (flying + size > MAX_BYTES) throw new TypeError("Failed to fetch", { cause: "keepalive" });
    flying += size;
    try {
      return await fetch(...given);
    } finally {
      flying -= size;
    }
  });
}
