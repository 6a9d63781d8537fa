/** Subresource integrity: verifies the bytes of `fetch(…, {integrity})`. */

import { toUrlAlphabet, toBase64Url } from "../base64";

/** True without known metadata, as SRI demands; of several algorithms only the strongest counts. */
async function isIntact(bytes: ArrayBuffer, metadata: string, digest: SubtleCrypto["digest"] | undefined): Promise<boolean> {
  const known = [...metadata.matchAll(/(?:^|\s)sha(256|384|512)-([A-Za-z0-9+/_-]+=*)/g)];
  const strongest = Math.max(...known.map(([, size]) => Number(size)));
  if (!known.length) return true;
  if (!digest) return false;
  const actual = toBase64Url(new Uint8Array(await digest(`SHA-${strongest}`, bytes)));
  return known.some(([, size, expected = ""]) => Number(size) === strongest && toUrlAlphabet(expected) === actual);
}

/** The runtime calls it for fetches with `integrity`. */
export function installIntegrityCheck(): void {
  const { subtle } = crypto as Partial<Crypto>;
  // Insecure contexts have none.
  const digest = subtle?.digest.bind(subtle);
  Object.assign(globalThis, { webmcpGatewayIntact: (bytes: ArrayBuffer, metadata: string) => isIntact(bytes, metadata, digest) });
}
