/** `Request` and `URL` with the app's base in place of the document's, which belongs to the host, or is invalid. */

type Construct = (...given: unknown[]) => object;

/** The same class for the page, constructed by `construct`: `instanceof`, the prototype and subclasses work as before. */
function withConstructor<Class extends typeof Request | typeof URL>(native: Class, construct: (given: unknown[], make: Construct) => object): Class {
  const made = new Proxy(native, {
    construct: (target, [...given], newTarget: Function) => construct(given, (...rest) => Reflect.construct(target, rest, newTarget) as object),
  });
  native.prototype.constructor = made;
  return made;
}

export function withResolvedRequests(native: typeof Request, resolve: (url: string) => string): typeof Request {
  return withConstructor(native, (given, make) => {
    if (given.length && !(given[0] instanceof native)) given[0] = resolve(`${given[0] ?? `./${given[0]}`}`);
    return make(...given);
  });
}

/** Retries if the browser's own throws for the document's invalid address; `resolveOwn` returns the intended URL. */
export function withResolvedUrls(native: typeof URL, own: (text: string) => string | undefined): typeof URL {
  return withConstructor(native, (given, make) => {
    try {
      return make(...given);
    } catch (error) {
      const meant = own(String(given.pop() ?? given.pop()));
      if (!meant) throw error;
      return make(...given, meant);
    }
  });
}
