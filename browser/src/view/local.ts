/** `data:` and `blob:` URLs, read without the network: a view's content security policy lets `fetch` read neither. */

import { readDataUrl } from "./data-urls";

/** What a local URL stands for, and its type. */
export type Local = [body: Uint8Array<ArrayBuffer> | Blob, type: string];
type Read = (url: string) => Local | undefined;

const known = globalThis as { webmcpGatewayLocal?: Read };

/** Undefined where `url`, which has no fragment, is not local. Throws where it stands for nothing. */
export function readLocal(url: string): Local | undefined {
  if (!/^(data|blob):/.test(url)) return undefined;
  // A part of the runtime reads those of blobs, for pages that make any.
  const found = readDataUrl(url) ?? known.webmcpGatewayLocal?.(url);
  if (!found) throw "nothing there";
  return found;
}

/** Lets `read` read the URLs of blobs. */
export function readsLocal(read: Read): void {
  known.webmcpGatewayLocal = read;
}
