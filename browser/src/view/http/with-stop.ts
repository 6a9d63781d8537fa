/** Wraps `fetch` so that `window.stop()` aborts it. */

import { wrapFetch, signalOf } from "./wrap-fetch";
import { onStop } from "./page-stop";

export function withStop(fetch: typeof globalThis.fetch): typeof globalThis.fetch {
  let stopping = new AbortController();
  onStop(() => {
    const stopped = stopping;
    stopping = new AbortController();
    stopped.abort(new TypeError("Failed to fetch"));
  });
  return wrapFetch(fetch, (input, init, ...more) => {
    const own = signalOf([input, init]);
    const signal = own ? AbortSignal.any([own, stopping.signal]) : stopping.signal;
    // Any other value than a `RequestInit` is an error of the page.
    return fetch(input, Object(init ?? {}) === init || init == null ? { ...init, signal } : init, ...(more as []));
  });
}
