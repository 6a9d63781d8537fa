/** Converts a `Request` of the page to the arguments of `http_request`. */

import { attempt } from "../attempt";
import { toBase64 } from "../base64";
import type { Params } from "../host/json-rpc";

interface EncodedBody {
  bodyType: string;
  body?: unknown;
}

const JSON_TYPE = /^application\/json$|\+json$/;
const TEXT_TYPE = /^(text|multipart)\/|^application\/(xml|javascript|.+\+xml)$/;
const OTHER_CHARSET = /charset\s*=\s*"?(?!utf-?8\b)/i;

function decodeUtf8(bytes: Uint8Array): string | undefined {
  return attempt(() => new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes));
}

function isJson(text: string): boolean {
  return attempt(() => JSON.parse(text)) !== undefined;
}

/** The body in the form that decodes to exactly `bytes`. */
function encodeBody(bytes: Uint8Array<ArrayBuffer>, type: string): EncodedBody {
  const essence = type.toLowerCase().replace(/\s*;.*/s, "");
  const text = OTHER_CHARSET.test(type) ? undefined : decodeUtf8(bytes);
  if (text !== undefined) {
    if (JSON_TYPE.test(essence)) return { bodyType: isJson(text) ? "json" : "text", body: text };
    if (essence === "application/x-www-form-urlencoded") return { bodyType: "urlEncoded", body: text };
    if (TEXT_TYPE.test(essence)) return { bodyType: "text", body: text };
  }
  return { bodyType: "base64", body: toBase64(bytes) };
}

/** Informs a gateway at the end of a bridge: the bytes of an answer may be sent beside it, and parts of a stream before it. */
export const ACCEPTS_BYTES = "_bytes";

/** Bytes above which a body is sent as a `Blob`, if the host supports that. */
const BLOB_THRESHOLD = 256 * 1024;

/** Reads the body of `request` once. `url` is in the gateway's form; `acceptsBlobs` returns whether the host takes a `Blob`. */
export async function readArguments(request: Request, url: string, bulk: () => Promise<boolean>): Promise<Params> {
  const { method, redirect, cache, credentials, body } = request;
  const languages = navigator.languages.map((one, at) => (at ? `${one};q=${Math.max(1, 10 - at) / 10}` : one));
  const unstored = /^(no-store|reload)$/.test(cache) && { pragma: "no-cache", "cache-control": "no-cache" };
  const anew = cache === "no-cache" ? { "cache-control": "max-age=0" } : unstored;
  // Browsers add these (Fetch, 4.1 and 4.5).
  const headers = { accept: "*/*", "accept-language": `${languages}`, ...anew, ...Object.fromEntries(request.headers) };
  const args: Params = { url, method, headers, stream: true, [ACCEPTS_BYTES]: true };
  // Firefox has no `body`: an empty one there means none.
  const blob = body !== null && (await request.blob());
  if (blob && (body || blob.size)) {
    const whole = blob.size > BLOB_THRESHOLD && (await bulk());
    Object.assign(args, whole ? { bodyType: "base64", body: blob } : encodeBody(new Uint8Array(await blob.arrayBuffer()), request.headers.get("content-type") ?? ""));
  }
  if (redirect !== "follow") args["redirect"] = redirect;
  if (cache !== "default") args["cache"] = cache;
  if (credentials !== "same-origin") args["credentials"] = credentials;
  return args;
}
