/** Reads `data:` and `blob:` URLs without the network: a view's content security policy forbids `fetch` to read them. */

import { readDataUrl } from "./data-urls";

/** The content of a local URL, and its type. */
export type LocalContent = [body: Uint8Array<ArrayBuffer> | Blob, type: string];
type LocalReader = (url: string) => LocalContent | undefined;

const scope = globalThis as { webmcpGatewayLocal?: LocalReader };

/** Undefined if `url`, which has no fragment, is not local. Throws if it has no content. */
export function readLocal(url: string): LocalContent | undefined {
  if (!/^(data|blob):/.test(url)) return undefined;
  // A part of the runtime reads blobs, for pages that create any.
  const found = readDataUrl(url) ?? scope.webmcpGatewayLocal?.(url);
  if (!found) throw "nothing there";
  return found;
}

/** Registers the reader of blob URLs. */
export function setBlobReader(read: LocalReader): void {
  scope.webmcpGatewayLocal = read;
}
