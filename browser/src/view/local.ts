/** `data:` and `blob:` URLs, read without the network: a view's content security policy lets `fetch` read neither. */

import { fromBase64 } from "./base64";

type Blobs = (url: string) => Blob | undefined;

function bytesOf(text: string): Uint8Array<ArrayBuffer> {
  // Of each `%xx` it makes one character.
  return Uint8Array.from(unescape(text), (character) => character.charCodeAt(0));
}

/** RFC 2397, as the Fetch standard's "data: URL processor" reads it. Throws where `url` is broken. */
export function readDataUrl(url: string): Blob {
  const comma = url.indexOf(",");
  if (comma < 0) throw "no comma";
  const head = url.slice("data:".length, comma).trim();
  const raw = bytesOf(url.slice(comma + 1).replace(/#.*/s, ""));
  const base64 = /; *base64$/i.exec(head);
  const type = (base64 ? head.slice(0, base64.index) : head) || "text/plain;charset=US-ASCII";
  const bytes = base64 ? fromBase64(new TextDecoder().decode(raw)) : raw;
  return new Blob([bytes], { type: type.startsWith(";") ? `text/plain${type}` : type });
}

/** Remembers the blob behind each `blob:` URL that the page makes, until it revokes it. */
export function watchBlobs(url: typeof URL): Blobs {
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
  return (made) => blobs.get(made.replace(/#.*/s, ""));
}

/** The blob that a local `url` stands for; undefined where it is not local. Throws where it stands for nothing. */
export function readLocal(url: string, blobs: Blobs): Blob | undefined {
  if (url.startsWith("data:")) return readDataUrl(url);
  if (!url.startsWith("blob:")) return undefined;
  const blob = blobs(url);
  if (!blob) throw "no blob";
  return blob;
}
