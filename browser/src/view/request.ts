/** `Request` and `URL` with the app's base in place of the document's, which leads to the host, or nowhere. */

/** The same class for the page: `instanceof`, the prototype and subclasses work as before. */
export function rebasedRequest(native: typeof Request, resolve: (url: string) => string): typeof Request {
  const rebased = new Proxy(native, {
    construct(target, [...given]: unknown[], newTarget: Function) {
      if (given.length && !(given[0] instanceof target)) given[0] = resolve(String(given[0]));
      return Reflect.construct(target, given, newTarget) as Request;
    },
  });
  native.prototype.constructor = rebased;
  return rebased;
}

/** The same where the browser's own throws for what the document says of its own place; `own` gives what that means. */
export function rebasedUrl(native: typeof URL, own: (text: string) => string | undefined): typeof URL {
  const rebased = new Proxy(native, {
    construct(target, [...given]: unknown[], newTarget: Function) {
      try {
        return Reflect.construct(target, given, newTarget) as URL;
      } catch (error) {
        const meant = own(String(given.pop() ?? given.pop()));
        if (!meant) throw error;
        return Reflect.construct(target, [...given, meant], newTarget) as URL;
      }
    },
  });
  native.prototype.constructor = rebased;
  return rebased;
}
