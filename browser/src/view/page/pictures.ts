/** Images and videos for pages with special needs: `currentSrc`, `Attr` values, and lazy loading. */

import { CANDIDATE, chooseCandidates, originalValue } from "./candidates";
import { wrapGetter } from "./entries";

/** The distance from the viewport at which browsers load lazy images. */
const NEAR = "1250px";

/** Restores the page's values in `currentSrc` and `Attr.value`; `resolve` makes a URL absolute. */
export function restoreOriginalValues(resolve: (url: string) => string): void {
  for (const { prototype } of [HTMLImageElement, HTMLMediaElement]) {
    wrapGetter(prototype as HTMLImageElement, "currentSrc", ({ src }, given) => {
      const url = originalValue(given);
      if (url === undefined) return src;
      return url ? resolve(/\s/.test(url) ? chooseCandidates([...url.matchAll(CANDIDATE)])[0]![1]! : url) : given;
    });
  }
  wrapGetter(Attr.prototype, "value", (_, given) => originalValue(given) ?? "");
}

/** Lets lazy images wait until they are near the viewport. */
export function delayLazyImages(): void {
  const waiting = new WeakMap<Element, PromiseWithResolvers<void>>();
  const observer = new IntersectionObserver(
    (all) => all.forEach(({ isIntersecting, target }) => isIntersecting && release(target)),
    { root: document, rootMargin: NEAR },
  );

  function release(element: Element): void {
    observer.unobserve(element);
    waiting.get(element)?.resolve();
    waiting.delete(element);
  }

  Object.assign(window, {
    webmcpGatewayNear(element: HTMLImageElement) {
      if (element.loading !== "lazy") return release(element);
      const made = waiting.get(element) ?? Promise.withResolvers<void>();
      waiting.set(element, made);
      observer.observe(element);
      return made.promise;
    },
  });
}
