/** The place of the workspace: an element that the page reserves for it, or the end of the window. */

/** The page marks the element with this attribute; without one, the workspace stands at the end of the window. */
const RESERVED = "[data-mcp-app-workspace]";
/** The width that the workspace takes from the page, for the page's own layout; not set where it has reserved a place. */
const WIDTH = "--mcp-app-workspace-width";
/** Pixels: a narrower place is no space for an app. */
const LEAST = 320;
/** Beside the workspace the conversation needs as much again. */
const WIDE = "(min-width: 56rem)";

/** Whether there is space for a workspace; if not, its app is shown in a panel. */
export function hasSpace(): boolean {
  const reserved = document.querySelector(RESERVED);
  if (reserved) return reserved.getBoundingClientRect().width >= LEAST;
  return matchMedia(WIDE).matches;
}

/** Keep `surface` over its place until the returned function is called; `moved` is called after each change of the space. */
export function follow(surface: HTMLElement, moved: () => void): () => void {
  const stop = new AbortController();
  const update = (): void => {
    lay(surface);
    moved();
  };
  const sizes = new ResizeObserver(update);
  const reserved = document.querySelector(RESERVED);
  sizes.observe(reserved ?? document.documentElement);
  addEventListener("resize", update, { signal: stop.signal });
  // A scroll of any element may move the reserved one.
  if (reserved) addEventListener("scroll", () => lay(surface), { capture: true, passive: true, signal: stop.signal });
  lay(surface);
  return () => {
    stop.abort();
    sizes.disconnect();
    document.documentElement.style.removeProperty(WIDTH);
  };
}

function lay(surface: HTMLElement): void {
  const reserved = document.querySelector(RESERVED);
  surface.toggleAttribute("data-docked", !reserved);
  if (reserved) {
    const { top, left, width, height } = reserved.getBoundingClientRect();
    surface.style.cssText = `inset:auto;top:${top}px;left:${left}px;width:${width}px;height:${height}px`;
  } else {
    surface.style.cssText = "";
    const width = surface.getBoundingClientRect().width;
    document.documentElement.style.setProperty(WIDTH, `${width}px`);
  }
}

/** Whether the page may have changed the space; calls `changed` until the returned function is called. */
export function watchSpace(changed: () => void): () => void {
  const stop = new AbortController();
  addEventListener("resize", changed, { signal: stop.signal });
  const reserved = document.querySelector(RESERVED);
  const sizes = reserved && new ResizeObserver(changed);
  if (reserved) sizes?.observe(reserved);
  return () => {
    stop.abort();
    sizes?.disconnect();
  };
}
