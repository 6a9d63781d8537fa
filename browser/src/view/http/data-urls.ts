/** `data:` URLs for the runtime's `fetch`. */

import { fromBase64 } from "../base64";
import type { LocalContent } from "./local";

function bytesOf(text: string): Uint8Array<ArrayBuffer> {
  // It makes one character of each `%xx`.
  return Uint8Array.from(unescape(text), (character) => character.charCodeAt(0));
}

/** RFC 2397, as in the Fetch standard's "data: URL processor"; undefined for other URLs. Throws for a broken `url`. */
export function readDataUrl(url: string): LocalContent | undefined {
  const [, head, base64, rest = ""] = /^data:\s*([^,]*?)\s*(; *base64\s*)?,(.*)/is.exec(url) ?? [];
  if (head === undefined) return undefined;
  const raw = bytesOf(rest);
  const type = (head.startsWith(";") ? `text/plain${head}` : head).replace(/\s*;\s*/g, ";");
  return [base64 ? fromBase64(new TextDecoder().decode(raw)) : raw, /^[^\s/;]+\/[^\s/;]+/.test(type) ? type : "text/plain;charset=US-ASCII"];
}
