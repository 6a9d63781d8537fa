/** `window.stop()`, which also aborts loads through the runtime (HTML, 7.4.6 "stop document loading"). */

import { wrap } from "../wrap";

const listeners = new Set<() => void>();
let watches = false;

/** Calls `end` each time the page stops loading; the returned function unregisters it. */
export function onStop(end: () => void): () => void {
  listeners.add(end);
  if (!watches) {
    watches = true;
    wrap(window, "stop", (native) => {
      native();
      for (const one of [...listeners]) one();
    });
  }
  return () => void listeners.delete(end);
}

/** Calls `end` if the page stops loading before `over` is settled. */
export function endOnStop(over: Promise<unknown>, end: () => void): void {
  const forget = onStop(end);
  over.then(forget, forget);
}
