/** `Request` with relative URLs resolved against the app's base: the document's leads to the host, or nowhere. */

/** The same class for the page: `instanceof`, the prototype and subclasses work as before. */
export function rebasedRequest(native: typeof Request, resolve: (url: string) => string): typeof Request {
  const rebased = new Proxy(native, {
    construct(target, [...given]: unknown[], newTarget: Function) {
      if (given.length && !(given[0] instanceof target)) given[0] = resolve(String(given[0]));
      return Reflect.construct(target, given, newTarget) as Request;
    },
  });
  Object.defineProperty(native.prototype, "constructor", { value: rebased, configurable: true, writable: true });
  return rebased;
}
