/** Files of the backend for elements of the page: the content policy of hosts lets them load `data:` URLs alone. */

import { attempt } from "./attempt";
import { dataUrlOf } from "./base64";

/** How many files are kept for elements that name them again, as browsers do. */
const KEPT = 64;
/**
 * What a style names with `url(…)`, or alone in an `image-set()`; a name that could not be loaded begins with `#` from then on.
 * In comments and other strings nothing is named.
 */
const NAMED = /(?<!@import\s*)url\(\s*(?:"([^"]+)"|'([^']+)'|([^)"']+?))\s*\)|(?<=image-set\((?:[^;{}]*[\s,])?)(?:"([^"]+)"|'([^']+)')|\/\*.*?\*\/|"(?:\\.|[^\\])*?"|'(?:\\.|[^\\])*?'/gis;

/** An element that names a file; only one of a script says `noModule`. */
interface Wanted {
  integrity: string;
  type?: string;
  noModule?: boolean;
}

export interface Files {
  /** Whether an element that names `url` needs a file of the backend, or as `inline` one that content policies admit inline alone. */
  remote(url: string, inline?: boolean): boolean;
  /** The file as a `data:` URL. Rejects where there is none. */
  data(url: string): Promise<string>;
  /** The file as text, where it is what `integrity` says; `ahead` keeps it for who asks next. */
  text(url: string, wanted: Wanted & { as?: string }, ahead?: boolean): Promise<string>;
  /** `css` with the files that it names, relative to `base`; undefined where it names none. */
  styled(css: string, base?: string): Promise<string> | undefined;
}

/** The file at `url`. Rejects where there is none, or not the one that `integrity` says. */
export async function fileOf(fetch: typeof globalThis.fetch, url: string, integrity: string): Promise<Blob> {
  const response = await fetch(url, { integrity });
  if (!response.ok) throw `${url}: ${response.status}`;
  return response.blob();
}

/** The text of `file`, as `local` of a `data:` or `blob:` URL. Rejects where it is no script by its type (Fetch, 2.9; HTML, 8.1.4.2), and is to be one. */
export async function textOf(file: Blob, { noModule, type }: Wanted, local?: boolean): Promise<string> {
  const refused = noModule !== undefined && (/module/i.test(type!) ? !/^\w+\/(x-)?(java|ecma)script\b/.test(file.type) : !local && /^(audio|image|video)\/|^text\/csv/.test(file.type));
  if (refused) throw file.type;
  // What `fetch` gives as a text is always UTF-8; here it is the charset that the type names.
  const label = /charset\s*=\s*"?([^\s;"]+)/.exec(file.type)?.[1];
  return (attempt(() => new TextDecoder(label)) ?? new TextDecoder()).decode(await file.arrayBuffer());
}

export function createFiles(fetch: typeof globalThis.fetch, resolve: (url: string) => string): Files {
  const kept = new Map<string, Promise<string>>();
  /** What was loaded ahead, until somebody asks for it. */
  const early = new Map<string, Promise<Blob>>();

  function load(url: string, integrity = "", ahead = false): Promise<Blob> {
    const key = integrity + resolve(url);
    const file = early.get(key) ?? fileOf(fetch, url, integrity);
    if (!ahead) early.delete(key);
    else early.set(key, file);
    file.catch(() => early.delete(key));
    return file;
  }

  function data(given: string): Promise<string> {
    const url = resolve(given);
    // In a `srcset` a space would end the URL, also the one of `image/svg+xml; charset=utf-8`.
    const file = kept.get(url) ?? load(url).then((blob) => dataUrlOf(blob.slice(0, blob.size, blob.type.replace(/\s/g, ""))));
    kept.delete(url);
    kept.set(url, file);
    file.catch(() => kept.delete(url));
    if (kept.size > KEPT) kept.delete([...kept.keys()][0]!);
    return file;
  }

  const remote = (url: string, inline?: boolean): boolean => /^\s*(?!about:|#|javascript:)\S/i.test(url) && (inline || !/^\s*(data|blob):/i.test(url));

  return {
    remote,
    data,
    // What is loaded ahead for `fetch` is `fetch`'s to load, once.
    text: async (url, wanted, ahead) => (ahead && wanted.as === "fetch" ? "" : textOf(await load(url, wanted.integrity, ahead), wanted, !remote(url))),
    styled(css, base = "") {
      let named: true | undefined;
      const files = [...css.matchAll(NAMED)].map(async ([token, ...found]) => {
        const url = found.join("");
        if (!remote(url)) return token;
        named = true;
        try {
          return `url("${await data(base ? new URL(url, base).href : url)}")`;
        } catch {
          return `url("#${url}")`;
        }
      });
      return named && Promise.all(files).then((all) => css.replace(NAMED, () => all.shift()!));
    },
  };
}
