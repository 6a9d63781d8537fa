/** `location` for the scripts in which the packer found that word: a script of its own, after the runtime, of which it needs `Request` alone. */

import { askLater } from "./asking";
import { attempt } from "./attempt";
import { isWritten, keepEntries } from "./entries";
import { OWN, PAGES } from "./own";
import { tellAddresses, tellOrigin } from "./own-addresses";
import { createLocation } from "./own-location";

/** A `<base>` as the page wrote it, for routers that ask; it is one of SVG, so that the browser does not go by it. */
function putBase(href: string): void {
  const base = document.createElementNS("http://www.w3.org/2000/svg", "base");
  base.setAttribute("href", href);
  document.head.append(base);
}

/** What has the app's own `location` where others have the frame's, and speaks to itself by its origin; anything else is as it is. */
function ownOf(frame: Location, location: Location): (value: unknown) => unknown {
  // Only for who asks: in its place, hosts that can reach the window's own would no more be the source of their messages.
  const speak = (message: unknown, to: string, ...rest: Transferable[][]): void =>
    postMessage(message, attempt(() => new URL(to).origin) === location.origin ? "/" : to, ...rest);
  const having = (owner: object, own: { [name: string | symbol]: unknown }): object =>
    new Proxy(owner, {
      get: (target, key) => own[key] ?? Reflect.get(target, key),
      set: (target, key, value) => (key === "location" ? Reflect.set(location, "href", value) : Reflect.set(target, key, value)),
    });
  const own = new Map<unknown, unknown>([
    [frame, location], [window, having(window, { __proto__: null, location, postMessage: speak })], [document, having(document, { __proto__: null, location })],
    [postMessage, speak],
  ]);
  return (value) => own.get(value) ?? value;
}

/** As a link does that leads there. */
function leave(url: string): void {
  const link = document.createElement("a");
  link.href = url;
  link.click();
}

function stay(url: string): void {
  console.warn(`webmcp-gateway: the app stays where it is, and does not go to ${url}: the host wrote it into its frame, where it cannot be loaded anew`);
}

function start(home: URL): (value: unknown) => unknown {
  const { location: frame } = window;
  // What the page's `<base>` says, absent where it has none.
  const { declared } = JSON.parse(document.querySelector('meta[name="webmcp-gateway"]')!.getAttribute("content")!) as { declared?: string };
  const first = home.href;
  const base = (): string => (declared === undefined ? entries.here() : new URL(declared, entries.here()).href);
  const resolve = (url: string): URL => new URL(url, base());
  const stays = isWritten(frame);
  if (stays) document.getElementById(PAGES)?.remove();
  const pages = Object.keys(JSON.parse(document.getElementById(PAGES)?.textContent ?? "{}") as object);
  const entries = keepEntries(frame, first, pages, resolve, (url) => {
    home.href = new URL(declared ?? "", url).href;
  });
  tellAddresses(entries.here, base);
  tellOrigin(home.origin);
  askLater();
  if (declared !== undefined) putBase(declared);
  const enter = stays ? stay : entries.enter;
  return ownOf(frame, createLocation(frame, { ...entries, enter }, resolve, leave));
}

/** The URL that the runtime resolves others against: an object of its own, and what is changed of it counts from then on. */
function homeOfRuntime(): URL {
  const { URL: native } = window;
  let home: URL | undefined;
  window.URL = new Proxy(native, {
    construct(target, given: [string, URL?], made: Function) {
      home ??= given[1];
      return Reflect.construct(target, given, made) as URL;
    },
  });
  new Request("");
  window.URL = native;
  return home!;
}

Object.defineProperty(window, OWN, { configurable: true, value: window.parent === window ? (value: unknown) => value : start(homeOfRuntime()) });
