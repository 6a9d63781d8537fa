/** Tells the host how tall the page is, where the page has no client of its own that does. */

import { coalesced } from "./coalesced";

export interface Size {
  width: number;
  height: number;
}

/** Calls `tell` once per changed size. */
export function watchSize(tell: (size: Size) => void): void {
  const root = document.documentElement;
  let last: Size = { width: 0, height: 0 };

  function measure(): void {
    // The frame's own height must not count: what the content needs is asked for.
    const { height: written } = root.style;
    root.style.height = "max-content";
    const size = { width: innerWidth, height: Math.ceil(root.getBoundingClientRect().height) };
    root.style.height = written;
    if (size.width === last.width && size.height === last.height) return;
    last = size;
    tell(size);
  }

  const observer = new ResizeObserver(coalesced(measure, requestAnimationFrame));
  observer.observe(root);
  if (document.body) observer.observe(document.body);
}
