/** Bytes as base64 text and back, in the standard and the URL alphabet. */

import { uncurryThis } from "./uncurry-this";

// Captured now: the view key is decoded here, and a page may replace these functions.
const decode = atob;
const codeAt = uncurryThis(String.prototype.charCodeAt);
const CHUNK = 0x8000;
const Bytes = Uint8Array;

export function toBase64(bytes: Uint8Array): string {
  let text = "";
  // fromCharCode takes its characters as arguments, whose number is limited.
  for (let start = 0; start < bytes.length; start += CHUNK) {
    text += String.fromCharCode.apply(null, bytes.subarray(start, start + CHUNK) as unknown as number[]);
  }
  return btoa(text);
}

/** Base64 text in the URL alphabet, without padding. */
export const toUrlAlphabet = (text: string): string => text.replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");

export const toBase64Url = (bytes: Uint8Array): string => toUrlAlphabet(toBase64(bytes));

/** Takes both alphabets, with or without padding. Throws a `DOMException` for invalid `text`. */
export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  let binary = "";
  try {
    binary = decode(text);
  } catch {
    let standard = "";
    for (let index = 0; index < text.length; index++) standard += text[index] === "-" ? "+" : text[index] === "_" ? "/" : text[index];
    binary = decode(standard);
  }
  const bytes = new Bytes(binary.length);
  for (let index = 0; index < binary.length; index++) bytes[index] = codeAt(binary, index);
  return bytes;
}

/** A `data:` URL of it, made by the browser outside of the page's thread. */
export async function readAsDataUrl(blob: Blob): Promise<string> {
  const reader = new FileReader();
  reader.readAsDataURL(blob);
  await new Promise((done) => (reader.onloadend = done));
  return String(reader.result);
}
