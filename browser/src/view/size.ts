/** Tells the host how tall the page is, where the page has no client of its own that does. */

import { coalesced } from "./coalesced";

/** Calls `tell` once per changed size, in pixels. */
export function watchSize(tell: (size: { width: number; height: number }) => void): void {
  const { documentElement: root, body } = document;
  let last = "", tall = 0;

  function measure(): void {
    // The frame's own height must not count: what the content needs is asked for.
    const { height: written } = root.style;
    root.style.height = "max-content";
    const size = { width: innerWidth, height: Math.ceil(root.getBoundingClientRect().height) };
    root.style.height = written;
    if (last !== (last = JSON.stringify(size))) tell(size);
  }

  const observer = new ResizeObserver(coalesced(measure, requestAnimationFrame));
  observer.observe(root);
  if (body) observer.observe(body);
  // Where the page says that both are as tall as the frame, only what stands in them grows.
  const look = (): void => void (tall === (tall = root.scrollHeight) || measure());
  new MutationObserver(coalesced(look, requestAnimationFrame)).observe(root, { subtree: true, childList: true, attributes: true, characterData: true });
}
