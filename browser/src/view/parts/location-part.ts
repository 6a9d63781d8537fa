/** `location` for the scripts in which the packer found that word: a separate script after the runtime, which uses only `Request`. */

import { rewriteLaterScripts } from "../page/location-rewriter";
import { isWrittenByHost, createEntries } from "../page/entries";
import { OWN, PAGES } from "../page/part-keys";
import { defineAddresses, defineOrigin } from "../page/own-addresses";
import { createLocation, ownOf } from "../page/own-location";

/** Adds the page's original `<base>`, for routers that read it; in the SVG namespace, so that the browser ignores it. */
function putBase(href: string): void {
  const base = document.createElementNS("http://www.w3.org/2000/svg", "base");
  base.setAttribute("href", href);
  document.head.append(base);
}

/** Navigates as a link does. */
function navigateByLink(url: string): void {
  const link = document.createElement("a");
  link.href = url;
  link.click();
}

function warnOfNavigation(url: string): void {
  console.warn(`webmcp-gateway: the app stays where it is, and does not go to ${url}: the host wrote it into its frame, where it cannot be loaded anew`);
}

function start(home: URL): (value: unknown) => unknown {
  const { location: frame } = window;
  // The page's own `<base href>`, undefined if it has none.
  const { declared, start: begins = "" } = JSON.parse(document.querySelector('meta[name="webmcp-gateway"]')!.getAttribute("content")!) as { declared?: string; start?: string };
  const first = begins ? new URL(begins, home).href : home.href;
  const base = (): string => (declared === undefined ? entries.here() : new URL(declared, entries.here()).href);
  const resolve = (url: string): URL => new URL(url, base());
  const stays = isWrittenByHost(frame);
  if (stays) document.getElementById(PAGES)?.remove();
  const pages = Object.keys(JSON.parse(document.getElementById(PAGES)?.textContent ?? "{}") as object);
  const entries = createEntries(frame, first, pages, resolve, (url) => {
    home.href = new URL(declared ?? "", url).href;
  });
  defineAddresses(entries.here, base);
  defineOrigin(home.origin);
  rewriteLaterScripts();
  if (declared !== undefined) putBase(declared);
  const enter = stays ? warnOfNavigation : entries.enter;
  return ownOf(frame, createLocation(frame, { ...entries, enter }, resolve, navigateByLink), true);
}

/** The URL against which the runtime resolves others: changes to this object take effect at once. */
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
