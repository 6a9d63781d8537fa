/** Resolves the page's URLs: its document has no address of its own, or one of its host's. */

type Place = Pick<Location, "href" | "origin" | "pathname" | "protocol">;

export interface Addresses {
  /** The absolute URL for `text` if it begins with a part of the document's own (invalid) address. */
  resolveOwn(text: string): string | undefined;
  /** `input` as an absolute URL. Throws a TypeError if it is invalid. */
  resolve(input: string): string;
  /** The `url` argument of `http_request` for a result of `resolve` without fragment: path and query for the app's own site. */
  toWire(url: string): string;
  /** The absolute URL of the `url` in a result of `http_request`. */
  fromWire(url: string): string;
}

/**
 * `documentBase` is `document.baseURI`: in `about:srcdoc` the embedder's, in `blob:` one that resolves nothing.
 *
 * `place` is `location`: pages write `${location.origin}/api`, which is `null/api` there.
 */
export function createAddresses(app: string, base: string, documentBase: string, { href, origin, pathname, protocol }: Place): Addresses {
  // `.invalid` can never be reached (RFC 6761): if the app's site is unknown, it only stands for "the app's own".
  const home = new URL(base, `https://${app}.invalid/`);
  const embedder = /^https?:/.test(documentBase) ? new URL(documentBase) : undefined;
  const places = /^http/.test(protocol) ? [] : [origin + pathname, href.replace(/#.*/s, ""), `${protocol}//`, origin];

  function resolveOwn(text: string): string | undefined {
    for (const one of places) {
      const rest = text.slice(one.length);
      if (text.startsWith(one) && /^([/?#]|$)/.test(rest)) return new URL(rest, home).href;
    }
    return undefined;
  }

  function rebase(url: URL): URL {
    // The URL of a blob has that origin, too.
    if (!url.href.startsWith(`${embedder?.origin}/`) || url.origin === home.origin) return url;
    // Already resolved against the embedder's document: undo that, and resolve again.
    const folder = embedder!.pathname.replace(/[^/]*$/, "");
    const path = url.pathname.startsWith(folder) && folder !== "/" ? url.pathname.slice(folder.length) : url.pathname;
    return new URL(path + url.search + url.hash, home);
  }

  return {
    resolveOwn,
    resolve: (input) => resolveOwn(input) ?? rebase(new URL(input, home)).href,
    toWire: (url) => (url.startsWith(`${home.origin}/`) ? url.slice(home.origin.length) : url),
    fromWire: (url) => new URL(url, home).href,
  };
}
