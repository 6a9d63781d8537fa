/** What stands in the attributes of a picture: what the page wrote there, and of several the one that is meant. */

/** Each of a `srcset`: its URL, and its width or density. */
export const CANDIDATE = /(?<=(?:^|,)\s*)([^\s,]\S*[^\s,])(\s+[\d.]+[wx][\s\dh]*)?(?=,|\s*$)/g;

/** What the page wrote where `value` stands; undefined where that attribute is ours alone. */
export function seen(value: string | null): string | null | undefined {
  const [, ours] = /#webmcp-gateway:(\S*)/.exec(value ?? "") ?? [];
  return ours === undefined ? value : ours ? decodeURI(ours) : undefined;
}

/**
 * The one of a `srcset` that the screen asks for; all where that depends on widths. Browsers take the densest of those
 * that are `data:` URLs, whatever the screen.
 */
export function chosen(found: RegExpMatchArray[]): RegExpMatchArray[] {
  const density = ([, , size = "1"]: RegExpMatchArray): number => parseFloat(size);
  if (found.some(([, , size]) => size?.endsWith("w"))) return found;
  found.sort((one, other) => density(one) - density(other));
  return [found.find((one) => density(one) >= devicePixelRatio) ?? found.at(-1)!];
}
