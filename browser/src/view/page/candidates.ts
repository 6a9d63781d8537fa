/** Reads image attributes: the page's original value, and the candidate of a `srcset` to load. */

/** Each candidate of a `srcset`: its URL, and its width or density. */
export const CANDIDATE = /(?<=(?:^|,)\s*)([^\s,]\S*[^\s,])(\s+[\d.]+[wx][\s\dh]*)?(?=,|\s*$)/g;

/** The page's original value for `value`; undefined if the attribute is ours only. */
export function originalValue(value: string | null): string | null | undefined {
  const [, ours] = /#webmcp-gateway:(\S*)/.exec(value ?? "") ?? [];
  return ours === undefined ? value : ours ? decodeURI(ours) : undefined;
}

/**
 * The candidate of a `srcset` for the screen; all if that depends on widths.
 *
 * Browsers take the densest `data:` URL, whatever the screen.
 */
export function chooseCandidates(found: RegExpMatchArray[]): RegExpMatchArray[] {
  const density = ([, , size = "1"]: RegExpMatchArray): number => parseFloat(size);
  if (found.some(([, , size]) => size?.endsWith("w"))) return found;
  found.sort((one, other) => density(one) - density(other));
  return [found.find((one) => density(one) >= devicePixelRatio) ?? found.at(-1)!];
}
