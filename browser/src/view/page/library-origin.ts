/** The values that libraries compare to detect URLs of their own site, where the document's own address is invalid. */

/**
 * Identifies htmx 2, and not this script: it sends requests to its own site only, which it reads from `origin`. Other
 * pages compare that with the origin of messages.
 */
const OWN_SITE_ONLY = /self[R]equestsOnly/;

/** `resolve` makes a URL absolute, as the app's own site would. */
export function defineOriginForLibraries(resolve: (url: string) => string): void {
  const home = new URL(resolve("/"));
  const places = [location.href.replace(/#.*/s, ""), origin];
  const { origin: nowhere } = window;
  const isHtmx = (): boolean => "htmx" in window || [...document.scripts].some(({ text }) => OWN_SITE_ONLY.test(text));
  Object.defineProperty(window, "origin", {
    configurable: true,
    enumerable: true,
    get: () => (isHtmx() ? home.origin : nowhere),
    set: (value: unknown) => Object.defineProperty(window, "origin", { value, writable: true }),
  });
  const { prototype } = HTMLAnchorElement;
  const href = Object.getOwnPropertyDescriptor(prototype, "href")!;
  Object.defineProperty(prototype, "href", {
    ...href,
    set(value: unknown) {
      const text = String(value);
      // With the host of `location` or a path, each in a link.
      href.set!.call(this, places.some((one) => text.startsWith(one)) ? resolve(text).replace(home.origin, "") : text);
    },
  });
}
