/** `data:` and `blob:` URLs, read without the network: a view's content security policy lets `fetch` read neither. */

/** What a local URL stands for, and its type. */
export type Local = [body: Uint8Array<ArrayBuffer> | Blob, type: string];
type Read = (url: string) => Local | undefined;

const known = globalThis as { webmcpGatewayLocal?: Read };

/** Undefined where `url`, which has no fragment, is not local. Throws where it stands for nothing. */
export function readLocal(url: string): Local | undefined {
  if (!/^(data|blob):/.test(url)) return undefined;
  // Parts of the runtime read them, for pages that have any.
  const found = known.webmcpGatewayLocal?.(url);
  if (!found) throw "nothing there";
  return found;
}

/** Lets `read`, which gives undefined for URLs of another kind, read those of one kind. */
export function readsLocal(read: Read): void {
  const { webmcpGatewayLocal: other } = known;
  known.webmcpGatewayLocal = (url) => read(url) ?? other?.(url);
}
