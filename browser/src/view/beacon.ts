/** `navigator.sendBeacon` over `fetch` (Beacon, 3.1). */

import { sizeOf } from "./xhr";

const LARGEST = 64 * 1024;

export function createBeacon(fetch: typeof globalThis.fetch, resolve: (url: string) => string): Navigator["sendBeacon"] {
  return function sendBeacon(given, body = null) {
    const url = resolve(String(given));
    if (!/^https?:/.test(url)) throw new TypeError("A beacon goes over HTTP(S)");
    if (sizeOf(body) > LARGEST) return false;
    // Nobody hears of its end.
    fetch(url, { method: "POST", body: body as BodyInit, credentials: "include" }).catch(() => undefined);
    return true;
  };
}
