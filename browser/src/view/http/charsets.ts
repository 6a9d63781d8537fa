/** Decodes bytes whose encoding a label, a byte order mark or the text itself declares (XMLHttpRequest, 3.7; HTML, 13.2.3; XML, F). */

import { attempt } from "../attempt";

type Bytes = Uint8Array<ArrayBuffer>;

/** Bytes in which HTML declares its encoding. */
const PRESCAN_BYTES = 1024;

const UTF_16 = /^utf-16/;

/** The labels of encodings that no script may decode (Encoding, 4.2 "replacement"); `TextDecoder` takes none of them. */
const REPLACED = /^\s*(csiso2022kr|hz-gb-2312|iso-2022-(cn(-ext)?|kr)|replacement)\s*$/i;

/** Decodes any text to a single U+FFFD (Encoding, 14.1). */
class ReplacementDecoder extends TextDecoder {
  #started = false;

  override get encoding(): string {
    return "replacement";
  }

  override decode(bytes?: AllowSharedBufferSource): string {
    if (this.#started || !bytes?.byteLength) return "";
    this.#started = true;
    return "\ufffd";
  }
}

/** The decoder of an encoding by its label; undefined for an unknown label. */
export const decoderOf = (label: string | undefined): TextDecoder | undefined =>
  label ? attempt(() => (REPLACED.test(label) ? new ReplacementDecoder() : new TextDecoder(label))) : undefined;

const toLatin1 = (bytes: Bytes): string => String.fromCharCode(...bytes.subarray(0, PRESCAN_BYTES));

/** By the first bytes (Encoding, 6 "BOM sniff"), which decoders then omit. */
function bomEncoding([first, second, third]: Bytes): string | undefined {
  if (first === 0xef && second === 0xbb && third === 0xbf) return "utf-8";
  if (first === 0xfe && second === 0xff) return "utf-16be";
  return first === 0xff && second === 0xfe ? "utf-16le" : undefined;
}

/** The encoding in the declaration of an XML document, or the one of its first bytes. */
function xmlEncoding(text: string): string | undefined {
  if (text.startsWith("<\0?\0")) return "utf-16le";
  if (text.startsWith("\0<\0?")) return "utf-16be";
  const label = /^<\?xml(?=[\s])[^>]*?\sencoding\s*=\s*(?:"([^"]*)"|'([^']*)')[^>]*>/.exec(text);
  return labelEncoding(label?.[1] ?? label?.[2]);
}

/** The encoding of a label in a single-byte text, which cannot be UTF-16. */
function labelEncoding(label: string | undefined): string | undefined {
  const { encoding } = decoderOf(label) ?? {};
  return encoding && UTF_16.test(encoding) ? "utf-8" : encoding;
}

/** The encoding in a `<meta>` (HTML, 13.2.3.2 "prescan a byte stream"). */
function metaEncoding(text: string): string | undefined {
  const tags = /<!--.*?-->|<!-->|<(meta(?=[\s/])|\/?[a-z][^\s/>]*)((?:"[^"]*"|'[^']*'|[^>"'])*)>?|<[!/?][^>]*>?/gis;
  for (const [, name = "", attributes = ""] of text.matchAll(tags)) {
    if (name.toLowerCase() !== "meta") continue;
    const found = new Map<string, string>();
    for (const [, key = "", double, single, bare = ""] of attributes.matchAll(/([^\s/=][^\s/=]*)\s*(?:=\s*(?:"([^"]*)"|'([^']*)'|([^\s>]*)))?/g)) {
      const known = key.toLowerCase();
      if (!found.has(known)) found.set(known, double ?? single ?? bare);
    }
    const content = /content-type/i.test(found.get("http-equiv") ?? "") ? /charset\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s;"']+))/i.exec(found.get("content") ?? "") : undefined;
    const encoding = labelEncoding(found.get("charset") ?? content?.[1] ?? content?.[2] ?? content?.[3]);
    if (encoding) return encoding === "x-user-defined" ? "windows-1252" : encoding;
  }
  return xmlEncoding(text);
}

/** The kind of text, by which it may declare its own encoding. */
export type DeclarationPlace = "xml" | "html" | "nowhere";

/** The decoder of a body that begins with `bytes`: by byte order mark, then `label`, then declaration. */
export function decoderFor(bytes: Bytes, label: string | undefined, declares: DeclarationPlace): TextDecoder {
  const mark = bomEncoding(bytes);
  const given = mark ? undefined : decoderOf(label);
  if (given) return given;
  const declared = declares === "xml" ? xmlEncoding : declares === "html" ? metaEncoding : undefined;
  return decoderOf(mark ?? declared?.(toLatin1(bytes))) ?? new TextDecoder();
}
