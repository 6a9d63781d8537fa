/** A `Location` at the app's own URL, in place of the frame's, which no script can redefine. */

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
