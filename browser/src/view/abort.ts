/** Waiting that an `AbortSignal` ends. */

export function rejectOnAbort<Value>(value: Promise<Value>, signal?: AbortSignal): Promise<Value> {
  if (!signal) return value;
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason);
    signal.addEventListener("abort", abort, { once: true });
    value.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
    if (signal.aborted) abort();
  });
}
