/** `Request` with relative URLs resolved against the app's base: the document's leads to the host, or nowhere. */

/** The same class for the page: `instanceof`, the prototype and subclasses work as before. */
export function rebasedRequest(native: typeof Request, resolve: (url: string) => string): typeof Request {
  const rebased = new Proxy(native, {
    construct(target, [input, ...rest]: [RequestInfo | URL, RequestInit?], newTarget: Function) {
      const given = input instanceof target ? input : resolve(String(input));
      return Reflect.construct(target, [given, ...rest], newTarget) as Request;
    },
  });
  Object.defineProperty(native.prototype, "constructor", { value: rebased, configurable: true, writable: true });
  return rebased;
}
