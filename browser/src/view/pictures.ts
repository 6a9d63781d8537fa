/** Pictures and films for pages that ask more of them than most: which one is shown, by which attribute, and lazy ones. */

import { CANDIDATE, chosen, seen } from "./candidates";
import { reading } from "./entries";

/** How far from what is seen browsers load lazy pictures. */
const NEAR = "1250px";

/** `currentSrc` and the value of an `Attr`, as the page wrote them; `resolve` makes a URL absolute. */
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

/** Lets lazy pictures wait until they come near to what is seen. */
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
