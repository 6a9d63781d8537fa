/** MIME types (MIME Sniffing Standard, 4.4 and 4.5), for the parts of the runtime that need their parameters. */

export interface MimeType {
  /** Type and subtype, in lower case. */
  essence: string;
  parameters: Map<string, string>;
}

const TOKEN = /^[!#$%&'*+\-.^_`|~\w]+$/;
const QUOTED_TEXT = /^[\t\x20-\x7e\x80-\xff]*$/;
const AROUND = /^[\t\n\r ]+|[\t\n\r ]+$/g;

/** Undefined if `text` is invalid. */
export function parseMimeType(text: string): MimeType | undefined {
  const [, type = "", subtype = "", rest = ""] = /^([^/]*)\/([^;]*)(.*)$/s.exec(text.replace(AROUND, "")) ?? [];
  const name = subtype.replace(/[\t\n\r ]+$/, "");
  if (!TOKEN.test(type) || !TOKEN.test(name)) return undefined;
  const parameters = new Map<string, string>();
  for (const [, key = "", quoted, plain = ""] of rest.matchAll(/;[\t\n\r ]*([^;=]*)(?:=(?:"((?:[^"\\]|\\.|\\$)*)"?[^;]*|([^;]*)))?/gs)) {
    const value = quoted === undefined ? plain.replace(AROUND, "") : quoted.replace(/\\(.)/gs, "$1");
    const known = key.toLowerCase();
    if (TOKEN.test(known) && QUOTED_TEXT.test(value) && (value || quoted !== undefined) && !parameters.has(known)) parameters.set(known, value);
  }
  return { essence: `${type}/${name}`.toLowerCase(), parameters };
}

/** The type in the header of a response: the last valid one (Fetch, 3.2 "extract a MIME type"). */
export function mimeTypeOf(header: string | null): MimeType | undefined {
  let found: MimeType | undefined;
  let charset: string | undefined;
  for (const [text] of (header ?? "").matchAll(/(?:[^,"]|"(?:[^"\\]|\\.)*"?)+/gs)) {
    const read = parseMimeType(text);
    if (!read || read.essence === "*/*") continue;
    if (read.essence !== found?.essence) charset = read.parameters.get("charset");
    else if (!read.parameters.has("charset") && charset !== undefined) read.parameters.set("charset", charset);
    found = read;
  }
  return found;
}
