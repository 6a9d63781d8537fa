/** The `referrer` of a request that is of the app's own site (Fetch, 5.4), which the browser considers another site. */

import { wrapFetch } from "./http/wrap-fetch";
import { withIdentityOf, withGetter, wrap } from "./wrap";

interface Scope {
  Request: typeof globalThis.Request;
  fetch: typeof globalThis.fetch;
}

/** `resolve` makes a URL absolute, as the app's own site would. */
export function keepReferrers(scope: Scope, resolve: (url: string) => string): void {
  const { Request: Native, fetch } = scope;
  const base = resolve("./");
  const { origin } = new URL(base);
  /** Referrers that the browser does not know; resetting the browser's resets these. */
  const kept = new WeakMap<object, string>();
  const keep = (made: Request, referrer: string | undefined): Request => {
    if (referrer !== undefined && !made.referrer) kept.set(made, referrer);
    return made;
  };

  /** `init` for the browser, and the page's own referrer. */
  function splitReferrer(init: RequestInit | undefined): [RequestInit | undefined, string?] {
    const given = init?.referrer;
    if (given === undefined) return [init];
    const referrer = `${given}`;
    const as = (value: string): RequestInit => withGetter(init!, "referrer", () => value);
    if (!referrer) return [as(""), ""];
    const url = new URL(referrer, base);
    return url.origin === origin ? [as(""), url.href] : [as("about:client")];
  }

  scope.Request = new Proxy(Native, {
    construct(target, given: [RequestInfo | URL, RequestInit?], made) {
      const [init, referrer] = splitReferrer(given[1]);
      const rest = init ? [given[0], init] : given;
      return keep(Reflect.construct(target, rest, made) as Request, referrer ?? kept.get(given[0] as Request));
    },
  });
  Native.prototype.constructor = scope.Request;
  wrap<Request>(Native.prototype, "clone", (native, request) => keep(native() as Request, kept.get(request)));
  const { get, ...rest } = Object.getOwnPropertyDescriptor(Native.prototype, "referrer")!;
  Object.defineProperty(Native.prototype, "referrer", {
    ...rest,
    get: withIdentityOf(get!, function (this: Request) {
      return (get!.call(this) as string) || kept.get(this) || "";
    }),
  });
  scope.fetch = wrapFetch(fetch, (...given) => {
    try {
      [given[1]] = splitReferrer(given[1]);
      return fetch(...given);
    } catch (error) {
      return Promise.reject(error);
    }
  });
}
