/** Reads `data:` and `blob:` URLs without the network: a view's content security policy forbids `fetch` to read them. */

import { readDataUrl } from "./data-urls";

/** The content of a local URL, and its type. */
export type Local = [body: Uint8Array<ArrayBuffer> | Blob, type: string];
type Read = (url: string) => Local | undefined;

const known = globalThis as { webmcpGatewayLocal?: Read };

/** Undefined if `url`, which has no fragment, is not local. Throws if it has no content. */
export function readLocal(url: string): Local | undefined {
  if (!/^(data|blob):/.test(url)) return undefined;
  // A part of the runtime reads blobs, for pages that create any.
  const found = readDataUrl(url) ?? known.webmcpGatewayLocal?.(url);
  if (!found) throw "nothing there";
  return found;
}

/** Registers the reader of blob URLs. */
export function readsLocal(read: Read): void {
  known.webmcpGatewayLocal = read;
}
