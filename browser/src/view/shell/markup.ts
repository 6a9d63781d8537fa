/** Reads the tags of a page of the backend, and prepares it for its frame; all else stays as the backend wrote it. */

import { rewriteLocation } from "../page/location-rewriter";

interface Attribute {
  name: string;
  value: string;
  /** Positions of the name, and of the whole text. */
  start: number;
  end: number;
}

export interface Tag {
  name: string;
  start: number;
  end: number;
  closes: boolean;
  /** By name; of two with one name the first counts (HTML, 13.2.5.33). */
  attributes: Map<string, Attribute>;
}

/** The facts of a page that the frame needs. */
export interface PreparedPage {
  html: string;
  /** The `<base href>` of the page, if it has one. */
  base: string | undefined;
  /** The content security policies that the page itself declares. */
  policies: string[];
}

const NAME = /<(\/?)([a-z][^\t\n\f\r />]*)/iy;
const ATTRIBUTE = /[\t\n\f\r /]*(?:(>)|(=?[^\t\n\f\r />=]*)(?:[\t\n\f\r ]*=[\t\n\f\r ]*(?:"([^"]*)"|'([^']*)'|(?!["'])([^\t\n\f\r >]*)))?)/y;
/** Elements whose content has no tags, in a browser that runs scripts. */
const TEXT = /^(script|style|textarea|title|xmp|iframe|noembed|noframes|noscript)$/;
/** HTML, 13.2.5.4 and 13.2.5.15 to 31: behind `<!--`, a `<script>` takes one end tag for itself. */
const SCRIPT_STATES = {
  data: /<!--|<\/script(?=[\t\n\f\r />])/gi,
  escaped: /-->|<\/?script(?=[\t\n\f\r />])/gi,
  nested: /-->|<\/script(?=[\t\n\f\r />])/gi,
};

const decoder = document.createElement("textarea");
/** The value of an attribute, with its character references. */
function decode(text: string): string {
  if (!text.includes("&")) return text;
  decoder.innerHTML = text.replace(/</g, "&lt;");
  return decoder.value;
}

const encode = (text: string): string => text.replace(/&/g, "&amp;").replace(/"/g, "&quot;");

function scriptEnd(html: string, start: number): number {
  let state: keyof typeof SCRIPT_STATES = "data";
  for (let at = start; ; ) {
    const pattern = SCRIPT_STATES[state];
    pattern.lastIndex = at;
    const found = pattern.exec(html);
    if (!found) return html.length;
    at = pattern.lastIndex;
    const word = found[0].toLowerCase();
    if (word === "<!--") {
      state = "escaped";
      at -= 2; // its dashes may be those of the `-->`
    } else if (word === "-->") state = "data";
    else if (word === "<script") state = "nested";
    else if (state === "nested") state = "escaped";
    else return found.index;
  }
}

function textEnd(html: string, start: number, name: string): number {
  if (name === "script") return scriptEnd(html, start);
  const end = new RegExp(`</${name}(?=[\\t\\n\\f\\r />])`, "gi");
  end.lastIndex = start;
  return end.exec(html)?.index ?? html.length;
}

function readTag(html: string, start: number): Tag | undefined {
  NAME.lastIndex = start;
  const named = NAME.exec(html);
  if (!named) return undefined;
  const attributes = new Map<string, Attribute>();
  for (let at = NAME.lastIndex; ; at = ATTRIBUTE.lastIndex) {
    ATTRIBUTE.lastIndex = at;
    const found = ATTRIBUTE.exec(html);
    if (!found || (ATTRIBUTE.lastIndex === at && !found[1])) return undefined;
    const [whole, ends, given = "", ...values] = found;
    if (ends) return { name: named[2]!.toLowerCase(), start, end: ATTRIBUTE.lastIndex, closes: !!named[1], attributes };
    const name = given.toLowerCase();
    const begin = at + whole.length - whole.trimStart().replace(/^\/[/\s]*/, "").length;
    if (name && !attributes.has(name)) attributes.set(name, { name, value: decode(values.find((one) => one !== undefined) ?? ""), start: begin, end: ATTRIBUTE.lastIndex });
  }
}

/** Calls `see` for each start tag and end tag in turn, also those in templates, which are `inert`. */
export function eachTag(html: string, see: (tag: Tag, inert: boolean) => void): void {
  let inert = 0;
  let foreign = 0;
  for (let at = html.indexOf("<"); at >= 0; at = html.indexOf("<", at)) {
    if (html.startsWith("<!--", at)) {
      const comment = /<!--(?:-?>|[^]*?--!?>)/y;
      comment.lastIndex = at;
      if (!comment.test(html)) return;
      at = comment.lastIndex;
      continue;
    }
    const tag = readTag(html, at);
    if (!tag) {
      if (!/^<[!?/]/.test(html.slice(at, at + 2))) {
        at++;
        continue;
      }
      const end = html.indexOf(">", at);
      if (end < 0) return;
      at = end + 1;
      continue;
    }
    see(tag, inert > 0);
    at = tag.end;
    const step = tag.closes ? -1 : 1;
    const closed = html[tag.end - 2] === "/";
    if (/^(svg|math)$/.test(tag.name) && !(closed && !tag.closes)) foreign = Math.max(0, foreign + step);
    if (tag.name === "template" && !tag.attributes.has("shadowrootmode")) inert = Math.max(0, inert + step);
    if (tag.name === "plaintext" && !tag.closes) return;
    if (!tag.closes && TEXT.test(tag.name) && !(foreign && (closed || tag.name === "title"))) at = textEnd(html, at, tag.name);
  }
}

/** The types of classic scripts, and that of modules. */
const RUN = /^(|module|text\/javascript|application\/javascript|application\/x-javascript|text\/ecmascript)$/;
const WAITS = "webmcp-gateway-waits";
const OURS = "#webmcp-gateway:";
const NO_PICTURE = `data:image/svg+xml,<svg%20xmlns='http://www.w3.org/2000/svg'%20width='0'/>${OURS}`;
const NO_FILE = `data:,x${OURS}`;
const HAS_FILE: { [place: string]: string } = { "img src": NO_PICTURE, "input src": NO_PICTURE, "audio src": NO_FILE, "video src": NO_FILE, "video poster": NO_PICTURE };
/** Links that browsers load as part of the page. */
const LOADED = /stylesheet|preload/i;

const isOfBackend = (url: string): boolean => !!url.trim() && !/^\s*([a-z][a-z0-9+.-]*:|\/\/)/i.test(url);

/** The preparation of the page: its head, and what its content security policy forbids. */
export interface Preparation {
  /** Put first into the page. */
  head: (page: Omit<PreparedPage, "html">) => string;
  /** Whether a script may run: its URL as written, or none; its nonce; its type. */
  admits(script: { src: string | undefined; nonce: string; start: number; end: number }): boolean;
}

export function preparePage(html: string, { head, admits }: Preparation): PreparedPage {
  const changes: [start: number, end: number, text: string][] = [];
  const policies: string[] = [];
  let base: string | undefined;
  let place: number | undefined;
  let after = 0;
  const doctype = /^(?:\s|<!--[^]*?-->)*<!doctype[^>]*>/i.exec(html);
  if (doctype) after = doctype[0].length;

  const rename = ({ start }: Attribute): void => void changes.push([start, start, "webmcp-gateway-"]);
  const write = ({ name, start, end }: Attribute, value: string): void => void changes.push([start, end, `${name}="${encode(value)}"`]);

  eachTag(html, (tag, inert) => {
    const { name, attributes, closes } = tag;
    if (place === undefined) {
      if (name === "html" && !closes) after = tag.end;
      else place = name === "head" && !closes ? tag.end : after;
    }
    if (closes) return;
    for (const one of attributes.values()) {
      if (/^on/.test(one.name) || (one.name === "href" && /^\s*javascript:/i.test(one.value))) {
        const own = rewriteLocation(one.value);
        if (own !== one.value) write(one, own);
      }
      if (name === "link" && one.name === "href" && LOADED.test(attributes.get("rel")?.value ?? "") && isOfBackend(one.value)) {
        // Of an unknown type, or for an unknown purpose, browsers load nothing.
        const deciding = /modulepreload/i.test(attributes.get("rel")!.value) ? "as" : "type";
        const decides = attributes.get(deciding);
        const held = OURS + encodeURI(decides?.value ?? "");
        if (decides) write(decides, held);
        else changes.push([one.start, one.start, `${deciding}="${encode(held)}" `]);
      }
      const placeholder = HAS_FILE[`${name} ${one.name}`];
      if (placeholder && isOfBackend(one.value)) write(one, placeholder + encodeURI(one.value));
    }
    if (inert) return;
    if (name === "script" && RUN.test((attributes.get("type")?.value ?? "").trim().toLowerCase())) {
      const source = attributes.get("src");
      const type = attributes.get("type")?.value.trim().toLowerCase();
      if (!admits({ src: source?.value, nonce: attributes.get("nonce")?.value ?? "", start: tag.end, end: scriptEnd(html, tag.end) })) {
        changes.push([tag.start + 7, tag.start + 7, ' type="webmcp-gateway-refused"']);
        if (source) rename(source);
        return;
      }
      const kind = type === "module" ? type : source && (attributes.has("defer") || attributes.has("async")) ? "defer" : "";
      changes.push([tag.start + 7, tag.start + 7, ` type="${WAITS}" ${WAITS}="${kind}"`]);
      // Of two attributes of one name the second is lost.
      for (const one of [source, attributes.get("type")]) if (one) rename(one);
    } else if (name === "base" && attributes.has("href")) {
      base ??= attributes.get("href")!.value;
      rename(attributes.get("href")!);
    } else if (name === "meta" && /^content-security-policy$/i.test(attributes.get("http-equiv")?.value ?? "")) {
      policies.push(attributes.get("content")?.value ?? "");
      rename(attributes.get("http-equiv")!);
    } else if (/^i?frame$/.test(name) && attributes.has("src")) {
      // The page asks for what is its own site's; of another, nothing loads here.
      const source = attributes.get("src")!;
      if (/^\s*(about|data|blob|javascript):/i.test(source.value)) return;
      rename(source);
    } else if (/^(object|embed)$/.test(name)) {
      const source = attributes.get(name === "object" ? "data" : "src");
      if (source && isOfBackend(source.value)) rename(source);
    }
  });
  place ??= after;
  changes.push([place, place, head({ base, policies })]);
  changes.sort(([one], [other]) => one - other);
  let text = "";
  let at = 0;
  for (const [start, end, put] of changes) {
    text += html.slice(at, start) + put;
    at = Math.max(at, end);
  }
  return { html: text + html.slice(at), base, policies };
}
