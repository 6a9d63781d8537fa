/** Loads files of the backend for elements of the page: the content policy of hosts permits only `data:` URLs. */

import { attempt } from "../attempt";
import { readAsDataUrl } from "../base64";

/** Files that are cached for further elements with the same URL, as in browsers. */
const MAX_CACHED = 64;
/**
 * A `url(…)` of a style, or a string in an `image-set()`; the URL of a failed file begins with `#` from then on.
 *
 * Matches in comments and other strings have no URL.
 */
const URL_TOKEN = /(?<!@import\s*)url\(\s*(?:"([^"]+)"|'([^']+)'|([^)"']+?))\s*\)|(?<=image-set\((?:[^;{}]*[\s,])?)(?:"([^"]+)"|'([^']+)')|\/\*.*?\*\/|"(?:\\.|[^\\])*?"|'(?:\\.|[^\\])*?'/gis;

/** The start of a text with a byte order mark (Encoding, 6 "BOM sniff"). */
const BOM_ENCODINGS: Record<string, string> = { "\xff\xfe": "utf-16le", "\xfe\xff": "utf-16be", "\xef\xbb": "utf-8" };

/** An element that refers to a file; only a script has `noModule`. */
interface FileUse {
  integrity: string;
  type?: string;
  noModule?: boolean;
  charset?: string;
}

/** A part of the runtime tells which files of other sites the browser loads by itself. */
export interface Outside {
  webmcpGatewayOut?: (url: string) => boolean;
}

export interface Files {
  /** Whether an element with `url` needs a file of the backend; with `inline`, also one that content policies permit only inline. */
  needsBackend(url: string, inline?: boolean): boolean;
  /** The file as a `data:` URL. Rejects if there is none. */
  data(url: string): Promise<string>;
  /** The file as text, verified by `integrity`; `ahead` caches it for the next request. */
  text(url: string, wanted: FileUse & { as?: string }, ahead?: boolean): Promise<string>;
  /** `css` with its files embedded, relative to `base`; undefined if it has none. */
  embedFiles(css: string, base?: string): Promise<string> | undefined;
}

/** The file at `url`. Rejects if there is none, or it fails `integrity`. */
export async function fetchFile(fetch: typeof globalThis.fetch, url: string, integrity: string): Promise<Blob> {
  const response = await fetch(url, { integrity });
  if (!response.ok) throw `${url}: ${response.status}`;
  return response.blob();
}

/** The text of `file`; `local` for a `data:` or `blob:` URL. Rejects a script of a wrong type (Fetch, 2.9; HTML, 8.1.4.2). */
export async function readText(file: Blob, { noModule, type, charset }: FileUse, local?: boolean): Promise<string> {
  const refused = noModule !== undefined && (/module/i.test(type!) ? !/^\w+\/(x-)?(java|ecma)script\b/.test(file.type) : !local && /^(audio|image|video)\/|^text\/csv/.test(file.type));
  if (refused) throw file.type;
  const bytes = await file.arrayBuffer();
  let decoder: TextDecoder | undefined;
  // `fetch` decodes text always as UTF-8; here the mark, the charset of the type, of the sheet or of the element applies.
  const start = String.fromCharCode(...new Uint8Array(bytes.slice(0, 99)));
  const declared = /^@charset "(?!utf-16)([^"]*)";/i.exec(start)?.[1];
  for (const label of [BOM_ENCODINGS[start.slice(0, 2)], /charset\s*=\s*"?([^\s;"]+)/.exec(file.type)?.[1], declared, charset]) decoder ??= attempt(() => new TextDecoder(label || "-"));
  return (decoder ?? new TextDecoder()).decode(bytes);
}

export function createFiles(fetch: typeof globalThis.fetch, resolve: (url: string) => string): Files {
  const kept = new Map<string, Promise<string>>();
  /** Preloaded files, until they are requested. */
  const early = new Map<string, Promise<Blob>>();

  function load(url: string, integrity = "", ahead = false): Promise<Blob> {
    const key = integrity + resolve(url);
    const file = early.get(key) ?? fetchFile(fetch, url, integrity);
    if (!ahead) early.delete(key);
    else early.set(key, file);
    file.catch(() => early.delete(key));
    return file;
  }

  function data(given: string): Promise<string> {
    const url = resolve(given);
    // In a `srcset` a space would end the URL, also the one of `image/svg+xml; charset=utf-8`.
    const file = kept.get(url) ?? load(url).then((blob) => readAsDataUrl(blob.slice(0, blob.size, blob.type.replace(/\s/g, ""))));
    kept.delete(url);
    kept.set(url, file);
    file.catch(() => kept.delete(url));
    if (kept.size > MAX_CACHED) kept.delete([...kept.keys()][0]!);
    return file;
  }

  const needsBackend = (url: string, inline?: boolean): boolean => !(/^\s*($|about:|#|javascript:)/i.test(url) || (!inline && /^\s*(data|blob):/i.test(url)) || (window as Outside).webmcpGatewayOut?.(url));

  return {
    needsBackend,
    data,
    // Preloads for `fetch` are left to `fetch`.
    text: async (url, wanted, ahead) => (ahead && wanted.as === "fetch" ? "" : readText(await load(url, wanted.integrity, ahead), wanted, !needsBackend(url))),
    embedFiles(css, base = "") {
      let named: true | undefined;
      const files = [...css.matchAll(URL_TOKEN)].map(async ([token, ...found]) => {
        const url = found.join("");
        if (!needsBackend(url)) return token;
        named = true;
        const file = (async () => data(base ? new URL(url, base).href : url))();
        return `url("${await file.catch(() => `#${url}`)}")`;
      });
      return named && Promise.all(files).then((all) => css.replace(URL_TOKEN, () => all.shift()!));
    },
  };
}
