/** `blob:` URLs for the runtime's `fetch`, and ranges of them, which it returns whole (Fetch, 4.3 "scheme fetch"). */

import { setBlobReader } from "./local";
import { wrapFetch } from "./wrap-fetch";
import { withFacts } from "./response";
import { wrap } from "../wrap";

/**
 * Stores the blob behind each URL that the page creates, until it is revoked; returns the lookup function.
 *
 * A `Request` keeps the blob of its URL (URL, "blob URL entry"): `blobInFetch` is the blob of the request that is being fetched.
 */
export function watchBlobs(url: typeof URL): (made: string) => Blob | undefined {
  const blobs = new Map<string, Blob>();
  wrap(url, "createObjectURL", (native, _, [object]) => {
    const made = native() as string;
    if (object instanceof Blob) blobs.set(made, object);
    return made;
  });
  wrap(url, "revokeObjectURL", (native, _, [made]) => {
    native();
    blobs.delete(`${made}`);
  });
  const blobOf = (made: string): Blob | undefined => blobs.get(made);
  setBlobReader((made) => {
    const blob = blobInFetch?.url === made ? blobInFetch.blob : blobOf(made);
    return blob && [blob, blob.type];
  });
  return blobOf;
}

/** The blob of the `Request` that is about to be fetched. */
let blobInFetch: { url: string; blob: Blob } | undefined;

/** Wraps `Request` and `fetch` so that a request keeps the blob of its URL after that is revoked. */
export function keepBlobs(scope: { Request: typeof globalThis.Request; fetch: typeof globalThis.fetch }, blobOf: (made: string) => Blob | undefined): void {
  const kept = new WeakMap<Request, Blob>();
  const { Request: Native, fetch } = scope;
  const rememberBlob = (made: Request, from: unknown): Request => {
    const blob = kept.get(from as Request) ?? blobOf(made.url.replace(/#.*/s, ""));
    if (blob) kept.set(made, blob);
    return made;
  };
  scope.Request = new Proxy(Native, {
    construct: (target, given, made) => rememberBlob(Reflect.construct(target, given, made) as Request, given[0]),
  });
  Native.prototype.constructor = scope.Request;
  wrap<Request>(Native.prototype, "clone", (native, request) => rememberBlob(native() as Request, request));
  scope.fetch = wrapFetch(fetch, (...given) => {
    const input = given[0] as Request;
    const blob = kept.get(input);
    blobInFetch = blob && { url: input.url.replace(/#.*/s, ""), blob };
    try {
      return fetch(...given);
    } finally {
      blobInFetch = undefined;
    }
  });
}

/** The start and end of the single `range` in so many bytes (Fetch, 2.2.2, "single range"). Throws for an invalid one. */
function parseRange(range: string, size: number): [start: number, end: number] {
  const [, first, last] = /^bytes[\t ]*=[\t ]*(\d*)[\t ]*-[\t ]*(\d*)$/.exec(range) ?? [];
  const start = first ? Number(first) : Math.max(0, size - Number(last || NaN));
  const end = first && last ? Math.min(size, Number(last) + 1) : size;
  if (!(start < end)) throw new TypeError("Failed to fetch", { cause: "range" });
  return [start, end];
}

export function withRanges(fetch: typeof globalThis.fetch): typeof globalThis.fetch {
  return wrapFetch(fetch, async (...given) => {
    const whole = await fetch(...given);
    const [input, init] = given;
    const { url } = whole;
    const range = url.startsWith("blob:") ? new Headers(init?.headers ?? (input as Request).headers).get("range") : null;
    if (range === null) return whole;
    const blob = await whole.blob();
    const [start, end] = parseRange(range, blob.size);
    const headers = { "content-type": blob.type, "content-length": `${end - start}`, "content-range": `bytes ${start}-${end - 1}/${blob.size}` };
    const part = new Response(blob.slice(start, end), { status: 206, statusText: "OK", headers });
    return withFacts(part, { url, type: "basic" });
  });
}
