/** Starts work for elements that come near the visible part of the page, a few at a time. */

/** Pixels around the visible part in which an element counts as near. */
const MARGIN = "400px";
/** Apps that start at once: each has frames and scripts of its own, and the page must stay responsive. */
const AT_ONCE = 3;
/** Milliseconds after which the next one starts, though one of those before has not said that it is there. */
const LONGEST = 5000;

type Start = () => Promise<unknown>;

const waiting = new Map<Element, Start>();
const near = new Set<Element>();
let running = 0;
let observer: IntersectionObserver | undefined;

/** Call `start` once `element` comes near; the returned function withdraws it. The promise ends when the work is done. */
export function startNearView(element: Element, start: Start): () => void {
  waiting.set(element, start);
  observer ??= new IntersectionObserver(receive, { rootMargin: MARGIN, scrollMargin: MARGIN } as IntersectionObserverInit);
  observer.observe(element);
  return () => withdraw(element);
}

function withdraw(element: Element): void {
  waiting.delete(element);
  near.delete(element);
  observer?.unobserve(element);
}

function receive(entries: readonly IntersectionObserverEntry[]): void {
  for (const { target, isIntersecting } of entries) {
    // One that was scrolled past quickly does not start.
    if (isIntersecting) near.add(target);
    else near.delete(target);
  }
  startNext();
}

function startNext(): void {
  while (running < AT_ONCE) {
    const element = [...near].find((one) => waiting.has(one));
    if (!element) return;
    const start = waiting.get(element)!;
    withdraw(element);
    running += 1;
    void finish(start);
  }
}

async function finish(start: Start): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise((resolve) => (timer = setTimeout(resolve, LONGEST)));
  await Promise.race([start().catch(() => undefined), late]);
  clearTimeout(timer);
  running -= 1;
  startNext();
}
