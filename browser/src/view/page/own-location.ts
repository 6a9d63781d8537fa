/** A `Location` at the app's own URL, in place of the frame's, which no script can redefine. */

import { attempt } from "../attempt";
import { type Entries, withFragmentOf, withoutFragment } from "./entries";

const PARTS = ["protocol", "host", "hostname", "port", "pathname", "search"] as const;

/** `resolve` makes a URL absolute, and `leave` opens one outside of the app's page. */
export function createLocation(frame: Location, { here, knows, enter }: Entries, resolve: (url: string) => URL, leave: (url: string) => void): Location {
  function parse(url: unknown): URL {
    try {
      return resolve(String(url));
    } catch {
      throw new DOMException(`'${url}' is not a valid URL.`, "SyntaxError");
    }
  }

  function navigate(url: unknown, replaces = false): void {
    const { href, origin, pathname } = parse(url);
    const from = here();
    const { origin: own } = new URL(from);
    if (href.includes("#") && withoutFragment(href) === withoutFragment(from)) {
      const shown = withFragmentOf(href, frame.href);
      if (replaces || href === from) frame.replace(shown);
      else frame.hash = shown.slice(withoutFragment(shown).length);
      here();
    } else if (origin === own && knows(pathname)) enter(href);
    else leave(href);
  }

  const member = (descriptor: PropertyDescriptor): PropertyDescriptor => ({ enumerable: true, ...descriptor });
  const method = (value: Function): PropertyDescriptor => member({ value });
  const parts = PARTS.map((name) =>
    [name, member({
      get: () => new URL(here())[name],
      set(value: string) {
        const to = new URL(here());
        to[name] = value;
        navigate(to.href);
      },
    })] as const,
  );
  return Object.create(Location.prototype, {
    ancestorOrigins: member({ get: () => frame.ancestorOrigins }),
    href: member({ get: here, set: (value: string) => navigate(value) }),
    origin: member({ get: () => new URL(here()).origin }),
    ...Object.fromEntries(parts),
    hash: member({
      get: () => new URL(here()).hash,
      set(value: string) {
        frame.hash = value;
        here();
      },
    }),
    assign: method((url: string) => navigate(url)),
    replace: method((url: string) => navigate(url, true)),
    reload: method(() => enter(here(), history.state)),
    toString: method(here),
  }) as Location;
}

/**
 * Maps the window, document and `location` to ones with the app's own `location`, and `postMessage` to its own origin;
 * other values are unchanged. If the page is the `outermost` of the app, scripts that read the `location` of `top` and
 * `parent` find the app's, since natively these are the page's own window; nothing navigates by them.
 */
export function ownOf(frame: Location, location: Location, outermost: boolean): (value: unknown) => unknown {
  // Only on request: as a global replacement, hosts that can access the window's own would no longer be the source of
  // their messages.
  const target = (to: unknown): string => (attempt(() => new URL(String(to)).origin) === location.origin ? "/" : (to as string));
  const post = (message: unknown, to: string | WindowPostMessageOptions | null, ...rest: Transferable[][]): void =>
    typeof to === "object" && to && "targetOrigin" in to ? postMessage(message, { ...to, targetOrigin: target(to.targetOrigin) }) : postMessage(message, target(to), ...rest);
  const withMembers = (owner: object, own: { [name: string | symbol]: unknown }): object =>
    new Proxy(owner, {
      get: (target, key) => own[key] ?? Reflect.get(target, key),
      set: (target, key, value) => (key === "location" ? Reflect.set(location, "href", value) : Reflect.set(target, key, value)),
    });
  const own = new Map<unknown, unknown>([
    [frame, location], [window, withMembers(window, { __proto__: null, location, postMessage: post })], [document, withMembers(document, { __proto__: null, location })],
    [postMessage, post],
  ]);
  const withLocation = (owner: object): object =>
    new Proxy(owner, {
      get(target, key) {
        const value: unknown = key === "location" ? location : Reflect.get(target, key);
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
  for (const around of outermost && window.parent !== window ? [window.parent, window.top!] : []) own.set(around, withLocation(around));
  return (value) => own.get(value) ?? value;
}
