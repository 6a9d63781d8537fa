/** `data:` and `blob:` URLs, read without the network: a view's content security policy lets `fetch` read neither. */

import { fromBase64 } from "./base64";

function bytesOf(text: string): Uint8Array<ArrayBuffer> {
  // Of each `%xx` it makes one character.
  return Uint8Array.from(unescape(text), (character) => character.charCodeAt(0));
}

/** What a local URL stands for, and its type. */
export type Local = [body: Uint8Array<ArrayBuffer> | Blob, type: string];

/** RFC 2397, as the Fetch standard's "data: URL processor" reads it. Throws where `url` is broken. */
function readDataUrl(url: string): Local {
  const [, head = "", base64, rest = ""] = /^data:\s*([^,]*?)\s*(; *base64\s*)?,(.*)/is.exec(url)!;
  const raw = bytesOf(rest);
  const type = (head.startsWith(";") ? `text/plain${head}` : head).replace(/\s*;\s*/g, ";");
  return [base64 ? fromBase64(new TextDecoder().decode(raw)) : raw, /^[^\s/;]+\/[^\s/;]+/.test(type) ? type : "text/plain;charset=US-ASCII"];
}

/** Undefined where `url`, which has no fragment, is not local. Throws where it stands for nothing. */
export function readLocal(url: string): Local | undefined {
  if (url.startsWith("data:")) return readDataUrl(url);
  if (!url.startsWith("blob:")) return undefined;
  // A part of the runtime knows them, for pages that make any.
  const blob = (globalThis as { webmcpGatewayBlob?: (url: string) => Blob | undefined }).webmcpGatewayBlob?.(url);
  if (!blob) throw "no blob";
  return [blob, blob.type];
}
