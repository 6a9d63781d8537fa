/** `navigator.sendBeacon` over `fetch` (Beacon, 3.1). */

const LARGEST = 64 * 1024;

export function createBeacon(fetch: typeof globalThis.fetch, resolve: (url: string) => string): Navigator["sendBeacon"] {
  return function sendBeacon(given, body) {
    const url = resolve(String(given));
    if (!/^https?:/.test(url)) throw new TypeError("Beacons are only supported over HTTP(S).");
    const size = typeof body === "string" ? body.length : body instanceof Blob ? body.size : ((body as ArrayBuffer | null)?.byteLength ?? 0);
    if (size > LARGEST) return false;
    // Nobody hears of its end.
    fetch(url, { method: "POST", body: body as BodyInit, credentials: "include" }).catch(() => undefined);
    return true;
  };
}
