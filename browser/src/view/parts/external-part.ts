/**
 * Lets the page load files of other sites by itself, where the policy permits it.
 *
 * A separate script before the runtime, which asks it for the files that the gateway does not load.
 */

import type { Outside } from "../page/page-files";
import { withIdentityOf } from "../wrap";

interface Sites {
  /** The origins of files, and of requests. */
  files: string[];
  connect: string[];
  /** Scripts by URL, with their digests. */
  scripts: { [url: string]: string };
}

/** Lets the page see `make(value)` in place of the `value` that the runtime gives to the window's property `name`. */
function intercept<Name extends "fetch" | "WebSocket">(name: Name, make: (given: (typeof window)[Name]) => (typeof window)[Name]): void {
  const native = window[name];
  Object.defineProperty(window, name, {
    configurable: true,
    get: () => native,
    set: (given: typeof native) => Object.defineProperty(window, name, { configurable: true, writable: true, value: make(given) }),
  });
}

function start({ files, connect, scripts }: Sites): void {
  const { URL, fetch, WebSocket } = window;
  const { setAttribute } = Element.prototype;
  const absolute = (url: string): URL | null => (/^\s*((https?|wss?):)?\/\//i.test(url) ? URL.parse(url.trim(), "https://app.invalid") : null);
  const leads = (url: string, origins: string[]): boolean => origins.includes(absolute(url)?.origin.replace(/^ws/, "http") ?? "");
  const digest = (url: unknown): string | undefined => {
    const { href = "" } = absolute(String(url)) ?? {};
    return Object.hasOwn(scripts, href) ? scripts[href] : undefined;
  };
  /** Gives a script of another site the digest that the policy names, whatever the page wrote. */
  const check = (element: Element, url: unknown): void => {
    const found = element instanceof HTMLScriptElement ? digest(url) : undefined;
    if (found === undefined) return;
    setAttribute.call(element, "integrity", found);
    setAttribute.call(element, "crossorigin", "anonymous");
  };
  Object.assign(window, { webmcpGatewayOut: (url) => leads(url, files) || digest(url) !== undefined } satisfies Outside);
  intercept("fetch", (given) => {
    const own = (...[input, ...rest]: Parameters<typeof fetch>): Promise<Response> =>
      leads(input instanceof Request ? input.url : String(input), connect) ? fetch(input, rest[0]) : given(input, ...rest);
    return Object.defineProperty(own, "name", { value: "fetch" });
  });
  intercept("WebSocket", (given) => new Proxy(given, {
    construct: (target, [url, ...rest]: [string | URL, ...[string[]]], made) =>
      leads(String(url), connect) ? new WebSocket(url, ...rest) : (Reflect.construct(target, [url, ...rest], made) as object),
  }));
  Element.prototype.setAttribute = withIdentityOf(setAttribute, function (this: Element, name: string, value: string) {
    if (/^src$/i.test(String(name))) check(this, value);
    setAttribute.call(this, name, value);
  });
  const source = Object.getOwnPropertyDescriptor(HTMLScriptElement.prototype, "src")!;
  Object.defineProperty(HTMLScriptElement.prototype, "src", {
    ...source,
    set(this: HTMLScriptElement, value: string) {
      check(this, value);
      source.set!.call(this, value);
    },
  });
}

const written = document.querySelector('meta[name="webmcp-gateway"]')?.getAttribute("content");
const { external } = JSON.parse(written ?? "{}") as { external?: Sites };
if (window.parent !== window && external) start(external);
