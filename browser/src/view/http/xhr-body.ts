/** The response body of an `XMLHttpRequest`: text, a document, or another object (XMLHttpRequest, 3.7). */

import { attempt } from "../attempt";
import { decoderFor, decoderOf, type DeclarationPlace } from "./charsets";
import { parseMimeType, type MimeType } from "./mime";

type Bytes = Uint8Array<ArrayBuffer>;

/** The default without a type. */
const DEFAULT_TYPE = parseMimeType("text/xml")!;
const XML = /^(text|application)\/xml$|\+xml$/;
/** XML types that a parser accepts by their own names. */
const DOCUMENT_TYPES = /^(text\/xml|image\/svg\+xml|application\/xhtml\+xml)$/;
/** Bytes that are needed to determine the encoding of a text. */
const SNIFF_BYTES = 1024;

/** Whether these bytes may begin an incomplete XML declaration. */
function beginsXml(bytes: Bytes): boolean {
  const text = String.fromCharCode(...bytes).replaceAll("\0", "");
  return ("<?xml".startsWith(text) || text.startsWith("<?xml")) && !text.includes(">");
}

/** The encoding's name in a document (Encoding, 4.2); decoders have it in lower case. */
const documentEncoding = ({ encoding }: TextDecoder): string => encoding.replace(/^(utf|iso|ibm|koi8|gbk|gb|big5|euc)|(?<=-)(jp|kr|r|u|i|e)$/g, (part) => part.toUpperCase());

export class ReceivedBody {
  readonly #own: MimeType;
  readonly #chosen: () => MimeType | undefined;
  readonly #chunks: Bytes[] = [];
  #decoder: TextDecoder | undefined;
  #text = "";
  #decoded = 0;
  #ended = false;
  /** The number of received bytes. */
  size = 0;

  /** `own` is the type of the response, `chosen` returns the one that the page set instead. */
  constructor(own: MimeType | undefined, chosen: () => MimeType | undefined) {
    this.#own = own ?? DEFAULT_TYPE;
    this.#chosen = chosen;
  }

  add(chunk: Bytes): void {
    this.#chunks.push(chunk);
    this.size += chunk.length;
  }

  /** The body is complete. */
  end(): void {
    this.#ended = true;
  }

  /** The text so far; `declares` tells where it may declare its own encoding. */
  text(declares: "xml" | "nowhere"): string {
    this.#decoder ??= this.#decoderFor(this.#type().essence.match(XML) ? declares : "nowhere");
    if (!this.#decoder) return "";
    while (this.#decoded < this.#chunks.length) this.#text += this.#decoder.decode(this.#chunks[this.#decoded++], { stream: true });
    if (this.#ended && this.#decoded === this.#chunks.length) {
      this.#text += this.#decoder.decode();
      this.#decoded++; // once
    }
    return this.#text;
  }

  /** Always UTF-8. Null for invalid JSON. */
  json(): unknown {
    return attempt(() => JSON.parse(new TextDecoder().decode(this.buffer()))) ?? null;
  }

  blob(): Blob {
    return new Blob(this.#chunks, { type: this.#type().essence });
  }

  buffer(): ArrayBuffer {
    const bytes = new Uint8Array(this.size);
    let at = 0;
    for (const chunk of this.#chunks) bytes.set(chunk, (at += chunk.length) - chunk.length);
    return bytes.buffer;
  }

  /** Null for other types; HTML only if the page requested a document. */
  document(asked: boolean, url: string): Document | null {
    const { essence } = this.#type();
    const html = essence === "text/html";
    if (!this.size || (html ? !asked : !XML.test(essence))) return null;
    const decoder = this.#decoderFor(html ? "html" : "xml")!;
    const type = html || DOCUMENT_TYPES.test(essence) ? essence : "application/xml";
    const parsed = new DOMParser().parseFromString(decoder.decode(this.buffer()), type as DOMParserSupportedType);
    if (!html && parsed.querySelector("parsererror")) return null;
    for (const name of ["URL", "documentURI", "baseURI"]) Object.defineProperty(parsed, name, { value: url });
    if (html) for (const name of ["characterSet", "charset", "inputEncoding"]) Object.defineProperty(parsed, name, { value: documentEncoding(decoder) });
    return parsed;
  }

  /** The final MIME type. */
  #type(): MimeType {
    return this.#chosen() ?? this.#own;
  }

  /** The first bytes. */
  #start(): Bytes {
    const start = new Uint8Array(Math.min(SNIFF_BYTES, this.size));
    let at = 0;
    for (const chunk of this.#chunks) {
      if (at >= start.length) break;
      start.set(chunk.subarray(0, start.length - at), at);
      at += chunk.length;
    }
    return start;
  }

  /** Undefined while the first bytes may be missing. */
  #decoderFor(declares: DeclarationPlace): TextDecoder | undefined {
    // The charset of the chosen type applies even if it is unknown ("get a final encoding").
    const label = this.#chosen()?.parameters.get("charset") ?? this.#own.parameters.get("charset");
    const start = this.#start();
    const mayDeclare = declares !== "nowhere" && !decoderOf(label);
    const needed = !mayDeclare ? 3 : declares === "xml" && !beginsXml(start) ? "<?xml".length : SNIFF_BYTES;
    if (!this.#ended && start.length < needed) return undefined;
    return decoderFor(start, label, declares);
  }
}
