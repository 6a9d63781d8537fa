/** `navigator.sendBeacon` over `fetch` (Beacon, 3.1), and how much `keepalive` may send. */

import { likeFetch } from "./like-fetch";

const LARGEST = 64 * 1024;

/** Bytes of a body, about. */
export function sizeOf(body: unknown): number {
  if (body instanceof Blob) return body.size;
  if (body instanceof ArrayBuffer || ArrayBuffer.isView(body)) return body.byteLength;
  if (body instanceof FormData) return [...body].reduce((sum, [name, value]) => sum + name.length + sizeOf(value), 0);
  return new TextEncoder().encode(String(body ?? "")).length;
}

export function createBeacon(fetch: typeof globalThis.fetch, resolve: (url: string) => string): Navigator["sendBeacon"] {
  return function sendBeacon(given, body = null) {
    const url = arguments.length ? resolve(String(given)) : "";
    if (!/^https?:/.test(url)) throw new TypeError(`not HTTP: ${url}`);
    if (body instanceof ReadableStream) throw new TypeError("a stream is never whole");
    if (sizeOf(body) > LARGEST) return false;
    // Nobody hears of its end.
    fetch(url, { method: "POST", body: body as BodyInit, credentials: "include" }).catch(() => undefined);
    return true;
  };
}

/** Refuses what browsers do of requests with `keepalive`: bodies of more than 64 KiB, of all that are under way together (Fetch, 4.7). */
export function withKeepalive(fetch: typeof globalThis.fetch): typeof globalThis.fetch {
  let flying = 0;
  return likeFetch(fetch, async (...given) => {
    const [input, init] = given;
    const of = input instanceof Request ? input : undefined;
    if (!(init?.keepalive ?? of?.keepalive)) return fetch(...given);
    const { body } = init ?? {};
    const size = body instanceof ReadableStream ? Infinity : of && !body ? (await of.clone().blob()).size : sizeOf(body);
    if (flying + size > LARGEST) throw new TypeError("Failed to fetch", { cause: "keepalive" });
    flying += size;
    try {
      return await fetch(...given);
    } finally {
      flying -= size;
    }
  });
}
