/**
 * Shows the page of the app at its address, out of those that are embedded in the packed one, and navigates between
 * them.
 *
 * A separate script, the last of the runtime, after the one for `location`.
 */

import { RESPONSE_CALLBACK, type FormWithCallback } from "../page/forms";
import { OWN, PAGES } from "../page/part-keys";
import { formQuery } from "../form-query";
import { withIdentityOf } from "../wrap";

/** Milliseconds in which the result of a tool leaves a page before the page goes to another. */
const ANSWERED = 50;

interface Scope {
  [OWN]: (value: Location) => Location;
  /** Called by links before they navigate: true if the app goes to another of its pages. */
  webmcpGatewayGo?: (url: string) => boolean;
}

/** Replaces all that the browser has yet to parse, which becomes a hidden text. */
function writePage(html: string): void {
  const { documentElement: root } = document;
  for (const { name } of [...root.attributes]) root.removeAttribute(name);
  document.write(html, "<plaintext hidden>");
  document.querySelector("plaintext")?.remove();
}

function start(scope: Scope, kept: Element): void {
  const pages = new Map(Object.entries(JSON.parse(kept.textContent!) as { [path: string]: string | [at: string] }));
  kept.remove();
  const pageAt = (path: string): string | undefined => {
    const page = pages.get(path);
    return Array.isArray(page) ? (pages.get(page[0]) as string | undefined) : page;
  };
  const own = scope[OWN](location);
  scope.webmcpGatewayGo = (url) => {
    const { origin, pathname, href } = new URL(url, document.baseURI);
    if (origin !== own.origin || !pages.has(pathname)) return false;
    own.href = href;
    return true;
  };
  const navigate = (form: HTMLFormElement, submitter: HTMLElement | null): boolean => {
    const attributeOf = (name: string): string => submitter?.getAttribute(`form${name}`) ?? form.getAttribute(name) ?? "";
    if (!/^(get)?$/i.test(attributeOf("method"))) return false;
    const url = new URL(attributeOf("action"), document.baseURI);
    url.search = formQuery(new FormData(form, submitter));
    const html = pageAt(url.pathname);
    const callback = (form as FormWithCallback)[RESPONSE_CALLBACK];
    if (!callback || url.origin !== own.origin || html === undefined) return scope.webmcpGatewayGo!(url.href);
    // A model's call: it gets the next page as the answer before this one goes.
    const response = new Response(html, { headers: { "content-type": "text/html" } });
    callback(Promise.resolve(Object.defineProperty(response, "url", { value: url.href })));
    setTimeout(() => scope.webmcpGatewayGo!(url.href), ANSWERED);
    return true;
  };
  addEventListener("submit", (event) => {
    if (!event.defaultPrevented && navigate(event.target as HTMLFormElement, event.submitter)) event.preventDefault();
  });
  const { prototype } = HTMLFormElement;
  const { submit } = prototype;
  prototype.submit = withIdentityOf(submit, function (this: HTMLFormElement) {
    if (!navigate(this, null)) submit.call(this);
  });
  const { pathname, search, hash } = own;
  const page = pages.get(pathname);
  // A folder's page is stored at the folder's address; without its slash, the address is corrected.
  const [at] = Array.isArray(page) ? page : [pathname];
  if (at === `${pathname}/`) history.replaceState(history.state, "", at + search + hash);
  const html = pages.get(at);
  if (html) writePage(html as string);
}

const kept = document.getElementById(PAGES);
if (window.parent !== window && kept) start(window as unknown as Scope, kept);
