/** Which URL the page means: its document lies at no address of its own, or at one of its host's. */

type Place = Pick<Location, "href" | "origin" | "pathname" | "protocol">;

export interface Addresses {
  /** The absolute URL that `text` means where it begins with what the document says of its own place, which is nowhere. */
  own(text: string): string | undefined;
  /** `input` as an absolute URL. Throws a TypeError where it is none. */
  resolve(input: string): string;
  /** The `url` argument of `http_request` for what `resolve` gave, without its fragment: path and query for the app's own. */
  wire(url: string): string;
  /** The absolute URL of what an `http_request` result gives as `url`. */
  absolute(url: string): string;
}

/**
 * `documentBase` is `document.baseURI`: in `about:srcdoc` the embedder's, in `blob:` one that nothing resolves against.
 * `place` is `location`: pages write `${location.origin}/api`, which is `null/api` there.
 */
export function createAddresses(app: string, base: string, documentBase: string, { href, origin, pathname, protocol }: Place): Addresses {
  // `.invalid` can never be reached (RFC 6761): where the app's site is unknown, it only stands for "the app's own".
  const home = new URL(base, `https://${app}.invalid/`);
  const embedder = /^https?:/.test(documentBase) ? new URL(documentBase) : undefined;
  const places = /^http/.test(protocol) ? [] : [origin + pathname, href.replace(/#.*/s, ""), `${protocol}//`, origin];

  function own(text: string): string | undefined {
    for (const one of places) {
      const rest = text.slice(one.length);
      if (text.startsWith(one) && /^([/?#]|$)/.test(rest)) return new URL(rest, home).href;
    }
    return undefined;
  }

  function rebased(url: URL): URL {
    if (!embedder || url.origin !== embedder.origin || url.origin === home.origin) return url;
    // Already resolved against the embedder's document: undo that, and resolve again.
    const folder = embedder.pathname.replace(/[^/]*$/, "");
    const path = url.pathname.startsWith(folder) && folder !== "/" ? url.pathname.slice(folder.length) : url.pathname;
    return new URL(path + url.search + url.hash, home);
  }

  return {
    own,
    resolve: (input) => own(input) ?? rebased(new URL(input, home)).href,
    wire: (url) => (url.startsWith(`${home.origin}/`) ? url.slice(home.origin.length) : url),
    absolute: (url) => new URL(url, home).href,
  };
}
