/** Subresource integrity: whether bytes are what `fetch(…, {integrity})` says. */

import { inUrl, toBase64Url } from "./base64";

type Digest = (algorithm: string, bytes: BufferSource) => Promise<ArrayBuffer>;

/** True without known metadata, as SRI demands; of several algorithms only the strongest counts. */
export async function intact(bytes: Uint8Array<ArrayBuffer>, metadata: string, digest: Digest | undefined): Promise<boolean> {
  const known = [...metadata.matchAll(/(?:^|\s)sha(256|384|512)-([A-Za-z0-9+/_-]+=*)/g)];
  const strongest = Math.max(...known.map(([, size]) => Number(size)));
  if (!known.length) return true;
  if (!digest) return false;
  const actual = toBase64Url(new Uint8Array(await digest(`SHA-${strongest}`, bytes)));
  return known.some(([, size, expected = ""]) => Number(size) === strongest && inUrl(expected) === actual);
}
