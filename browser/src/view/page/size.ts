/** Reports the page's height to the host, if no client of the page does. */

import { coalesce } from "../coalesce";

/** Calls `tell` once per changed size, in pixels. */
export function watchSize(tell: (size: { width: number; height: number }) => void): void {
  const { documentElement: root, body } = document;
  let last = "", tall = 0;

  function measure(): void {
    // The frame's own height must not count: the height of the content is needed.
    const { height: written } = root.style;
    root.style.height = "max-content";
    const size = { width: innerWidth, height: Math.ceil(root.getBoundingClientRect().height) };
    root.style.height = written;
    if (last !== (last = JSON.stringify(size))) tell(size);
  }

  const observer = new ResizeObserver(coalesce(measure, requestAnimationFrame));
  observer.observe(root);
  if (body) observer.observe(body);
  // If the page makes both as tall as the frame, only their content grows.
  const measureIfChanged = (): void => void (tall === (tall = root.scrollHeight) || measure());
  new MutationObserver(coalesce(measureIfChanged, requestAnimationFrame)).observe(root, { subtree: true, childList: true, attributes: true, characterData: true });
}
