/** Files of the backend for elements of the page: the content policy of hosts lets them load `data:` URLs alone. */

import { dataUrlOf } from "./base64";

/** How many files are kept for elements that name them again, as browsers do. */
const KEPT = 64;
/** What a style names with `url(…)`, or alone in an `image-set()`; a name that could not be loaded ends in `#` from then on. */
const NAMED = /(?<!@import\s*)url\(\s*(?!["']?(?:data:|blob:|#)|"[^"]*#")(?:"([^"]+)"|'([^']+)'|([^)"']+?))\s*\)|(?<=image-set\((?:[^;{}]*[\s,])?)(?!["'](?:data:|blob:|#)|"[^"]*#")(?:"([^"]+)"|'([^']+)')/gi;

export interface Files {
  /** Whether an element that names `url` needs a file of the backend. */
  remote(url: string): boolean;
  /** The file as a `data:` URL. Rejects where there is none. */
  data(url: string): Promise<string>;
  /** The file as text, where it is what `integrity` says; `ahead` keeps it for who asks next. */
  text(url: string, wanted: { integrity: string; as?: string }, ahead?: boolean): Promise<string>;
  /** `css` with the files that it names, relative to `base`; undefined where it names none. */
  styled(css: string, base?: string): Promise<string> | undefined;
}

/** The file at `url`. Rejects where there is none, or not the one that `integrity` says. */
export async function fileOf(fetch: typeof globalThis.fetch, url: string, integrity: string): Promise<Blob> {
  const response = await fetch(url, { integrity });
  if (!response.ok) throw new Error(`${url}: ${response.status}`);
  return response.blob();
}

export function createFiles(fetch: typeof globalThis.fetch, resolve: (url: string) => string): Files {
  const kept = new Map<string, Promise<string>>();
  /** What was loaded ahead, until somebody asks for it. */
  const early = new Map<string, Promise<Blob>>();

  function load(url: string, integrity = "", ahead = false): Promise<Blob> {
    const key = integrity + resolve(url);
    const file = early.get(key) ?? fileOf(fetch, url, integrity);
    early.delete(key);
    if (ahead) early.set(key, file);
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
    for (const oldest of kept.keys()) if (kept.size > KEPT) kept.delete(oldest);
    return file;
  }

  async function filled(css: string, base: string): Promise<string> {
    const files = await Promise.all([...css.matchAll(NAMED)].map(async ([, ...names]) => {
      let url = names.find(Boolean)!;
      try {
        return await data((url = base ? new URL(url, base).href : url));
      } catch {
        return url + "#";
      }
    }));
    return css.replace(NAMED, () => `url("${files.shift()}")`);
  }

  return {
    remote: (url) => /^\s*(?!data:|blob:|about:|#|javascript:)\S/i.test(url),
    data,
    // What is loaded ahead for `fetch` is `fetch`'s to load, once.
    text: async (url, { integrity, as }, ahead) => (ahead && as === "fetch" ? "" : (await load(url, integrity, ahead)).text()),
    styled: (css, base = "") => (css.search(NAMED) < 0 ? undefined : filled(css, base)),
  };
}
