/** What libraries compare to see whether a URL is of their own site, where the document says that it lies nowhere. */

/** `resolve` makes a URL absolute, as the app's own site would. */
export function tellOrigin(resolve: (url: string) => string): void {
  const home = new URL(resolve("/"));
  const places = [location.href.replace(/#.*/s, ""), origin];
  window.origin = home.origin;
  const { prototype } = HTMLAnchorElement;
  const href = Object.getOwnPropertyDescriptor(prototype, "href")!;
  Object.defineProperty(prototype, "href", {
    ...href,
    set(value: unknown) {
      const text = String(value);
      // Of the host of `location` and that of a path, each in a link.
      href.set!.call(this, places.some((one) => text.startsWith(one)) ? resolve(text).replace(home.origin, "") : text);
    },
  });
}
