/** The page's own address in other properties than `location`, and the resolved URLs of its links and forms. */

import { attempt } from "../attempt";
import { wrapGetter } from "./entries";

const PARTS = ["origin", "protocol", "username", "password", "host", "hostname", "port", "pathname", "search", "hash"] as const;

/** `here` returns the page's URL, and `base` the base of its relative ones. */
export function defineAddresses(here: () => string, base: () => string): void {
  for (const name of ["URL", "documentURI"] as const) wrapGetter(Document.prototype, name, (self, native) => (self === document ? here() : native));
  wrapGetter(Node.prototype, "baseURI", (node, native) => ((node.ownerDocument ?? node) === document ? base() : native));
  wrapGetter(HTMLBaseElement.prototype, "href", (element, native) => (element.hasAttribute("href") ? native : base()));
  const action = (written: string | null): string => (written ? (attempt(() => new URL(written, base()).href) ?? written) : here());
  wrapGetter(HTMLFormElement.prototype, "action", (form) => action(form.getAttribute("action")));
  for (const { prototype } of [HTMLButtonElement, HTMLInputElement] as { prototype: HTMLButtonElement }[]) {
    wrapGetter(prototype, "formAction", (button) => action(button.getAttribute("formaction")));
  }
  for (const { prototype } of [HTMLAnchorElement, HTMLAreaElement] as { prototype: HTMLAnchorElement }[]) {
    const urlOf = (link: HTMLAnchorElement): URL | undefined => {
      const written = link.getAttribute("href");
      return written === null ? undefined : attempt(() => new URL(written, base()));
    };
    wrapGetter(prototype, "href", (link, native) => urlOf(link)?.href ?? native);
    for (const name of PARTS) {
      wrapGetter(prototype, name, (link, native) => urlOf(link)?.[name] ?? native);
      const { set } = Object.getOwnPropertyDescriptor(prototype, name)!;
      if (!set) continue;
      Object.defineProperty(prototype, name, {
        set(this: HTMLAnchorElement, value: string) {
          const url = urlOf(this);
          if (!url) return set.call(this, value);
          Reflect.set(url, name, value);
          this.setAttribute("href", url.href);
        },
      });
    }
    prototype.toString = function () {
      return this.href;
    };
  }
}

/** The page's own origin is the same wherever it is read, also in messages that it posts to itself. */
export function defineOrigin(origin: string): void {
  const sourceOf = Object.getOwnPropertyDescriptor(MessageEvent.prototype, "source")!.get!;
  wrapGetter(MessageEvent.prototype, "origin", (event, native) => (sourceOf.call(event) === window ? origin : native));
  Object.defineProperty(window, "origin", {
    configurable: true,
    enumerable: true,
    get: () => origin,
    set: (value: unknown) => Object.defineProperty(window, "origin", { value, writable: true }),
  });
}
