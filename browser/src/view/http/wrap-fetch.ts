/** Builds functions that extend `fetch`. */

type Fetch = typeof fetch;

/** The signal of a request (Fetch, 5.4). */
export const signalOf = ([input, init]: Partial<Parameters<Fetch>>): AbortSignal | null | undefined =>
  init?.signal !== undefined ? init.signal : (input as Partial<Request> | undefined)?.signal;

/** `run` in place of `fetch`, with its name and length. An abort rejects at once, whatever `run` waits for. */
export function wrapFetch(fetch: Fetch, run: (...given: Parameters<Fetch>) => Promise<Response>): Fetch {
  function replacement(this: unknown, ...given: Parameters<Fetch>): Promise<Response> {
    if (!given.length || (this ?? globalThis) !== globalThis) return fetch.apply(this as Window, given);
    const signal = signalOf(given);
    // Missing arguments are refused by it.
    if (!given.length) return fetch(...given);
    if (!(signal instanceof AbortSignal)) return run(...given);
    if (signal.aborted) return fetch(...given);
    return new Promise((resolve, reject) => {
      const abort = (): void => reject(signal.reason);
      signal.addEventListener("abort", abort);
      run(...given).then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
    });
  }
  return Object.defineProperties(replacement, { name: { value: "fetch" }, length: { value: 1 } });
}
