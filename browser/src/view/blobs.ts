/** `blob:` URLs for the runtime's `fetch`, and parts of them, which that gives whole (Fetch, 4.3 "scheme fetch"). */

import { shown } from "./response";

/** Remembers the blob behind each URL that the page makes, until it revokes it, tells it to the runtime, and gives who knows it. */
export function watchBlobs(url: typeof URL): (made: string) => Blob | undefined {
  const blobs = new Map<string, Blob>();
  const { createObjectURL, revokeObjectURL } = url;
  url.createObjectURL = (object) => {
    const made = createObjectURL.call(url, object);
    if (object instanceof Blob) blobs.set(made, object);
    return made;
  };
  url.revokeObjectURL = (made) => {
    blobs.delete(made);
    revokeObjectURL.call(url, made);
  };
  const blobOf = (made: string): Blob | undefined => blobs.get(made);
  Object.assign(globalThis, { webmcpGatewayBlob: blobOf });
  return blobOf;
}

/** Where the bytes begin that `range` names of so many, and where they end (Fetch, 2.2.2, "single range"). Throws where it names none. */
function partOf(range: string, size: number): [start: number, end: number] {
  const [, first, last] = /^bytes=[\t ]*(\d*)[\t ]*-[\t ]*(\d*)$/.exec(range) ?? [];
  const start = first ? Number(first) : Math.max(0, size - Number(last || NaN));
  const end = first && last ? Math.min(size, Number(last) + 1) : size;
  if (!(start < end)) throw new TypeError("Failed to fetch", { cause: "range" });
  return [start, end];
}

export function withRanges(fetch: typeof globalThis.fetch): typeof globalThis.fetch {
  const replacement = async (...given: [RequestInfo | URL, RequestInit?]): Promise<Response> => {
    const whole = await fetch(...given);
    const [input, init] = given;
    const { url } = whole;
    const range = url.startsWith("blob:") ? new Headers(init?.headers ?? (input as Request).headers).get("range") : null;
    if (range === null) return whole;
    const blob = await whole.blob();
    const [start, end] = partOf(range, blob.size);
    const headers = { "content-type": blob.type, "content-length": `${end - start}`, "content-range": `bytes ${start}-${end - 1}/${blob.size}` };
    const part = new Response(blob.slice(start, end), { status: 206, statusText: "OK", headers });
    return shown(part, { url, type: "basic" });
  };
  return Object.defineProperties(replacement, { name: { value: "fetch" }, length: { value: 1 } });
}
