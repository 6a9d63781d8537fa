/** Images and videos for pages with special needs: `currentSrc`, `Attr` values, and lazy loading. */

import { CANDIDATE, chosen, seen } from "./candidates";
import { reading } from "./entries";

/** The distance from the viewport at which browsers load lazy images. */
const NEAR = "1250px";

/** Restores the page's values in `currentSrc` and `Attr.value`; `resolve` makes a URL absolute. */
export function tellWritten(resolve: (url: string) => string): void {
  for (const { prototype } of [HTMLImageElement, HTMLMediaElement]) {
    reading(prototype as HTMLImageElement, "currentSrc", ({ src }, given) => {
      const url = seen(given);
      if (url === undefined) return src;
      return url ? resolve(/\s/.test(url) ? chosen([...url.matchAll(CANDIDATE)])[0]![1]! : url) : given;
    });
  }
  reading(Attr.prototype, "value", (_, given) => seen(given) ?? "");
}

/** Lets lazy images wait until they are near the viewport. */
export function awaitNear(): void {
  const waiting = new WeakMap<Element, PromiseWithResolvers<void>>();
  const observer = new IntersectionObserver(
    (all) => all.forEach(({ isIntersecting, target }) => isIntersecting && end(target)),
    { root: document, rootMargin: NEAR },
  );

  function end(element: Element): void {
    observer.unobserve(element);
    waiting.get(element)?.resolve();
    waiting.delete(element);
  }

  Object.assign(window, {
    webmcpGatewayNear(element: HTMLImageElement) {
      if (element.loading !== "lazy") return end(element);
      const made = waiting.get(element) ?? Promise.withResolvers<void>();
      waiting.set(element, made);
      observer.observe(element);
      return made.promise;
    },
  });
}
