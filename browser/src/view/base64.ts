/** Bytes as base64 text and back, in the standard and the URL alphabet. */

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const VALUES: { [digit: string]: number } = Object.create(null);
for (let value = 0; value < 64; value++) VALUES[ALPHABET.charAt(value)] = value;
VALUES["-"] = 62;
VALUES["_"] = 63;

const CHUNK = 0x8000;
const Bytes = Uint8Array;

export function toBase64(bytes: Uint8Array): string {
  let text = "";
  // fromCharCode takes its characters as arguments, of which a call has only so many.
  for (let start = 0; start < bytes.length; start += CHUNK) {
    text += String.fromCharCode.apply(null, bytes.subarray(start, start + CHUNK) as unknown as number[]);
  }
  return btoa(text);
}

export function toBase64Url(bytes: Uint8Array): string {
  return toBase64(bytes).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

/**
 * Takes both alphabets, with or without padding. Throws a TypeError where `text` is neither.
 * Calls nothing that a page can replace: the view key comes through here.
 */
export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  let length = text.length;
  while (length && text[length - 1] === "=") length--;
  const bytes = new Bytes((length * 3) >> 2);
  let bits = 0;
  let count = 0;
  let at = 0;
  for (let index = 0; index < length; index++) {
    const value = VALUES[text[index] as string];
    if (value === undefined) throw new TypeError("this is not base64");
    bits = (bits << 6) | value;
    count += 6;
    if (count >= 8) bytes[at++] = (bits >> (count -= 8)) & 255;
  }
  return bytes;
}

/** A `data:` URL of it, made by the browser beside the page's thread. */
export async function dataUrlOf(blob: Blob): Promise<string> {
  const reader = new FileReader();
  reader.readAsDataURL(blob);
  await new Promise((done) => (reader.onloadend = done));
  return String(reader.result);
}
