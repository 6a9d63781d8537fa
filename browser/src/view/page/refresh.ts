/** `<meta http-equiv=refresh>`, which the runtime stops: the page navigates as by a link. */

import { attempt } from "../attempt";
import { isWrittenByHost, withoutFragment } from "./entries";
import { OWN } from "./part-keys";

/** HTML, 4.2.5.3 "shared declarative refresh steps": seconds, and the URL. */
const REFRESH = /^\s*([\d.]+)(?:[\s;,]+(?:url\s*=\s*)?(?:"([^"]*)|'([^']*)|(.*)))?/is;
/** The longest time of a timer, in milliseconds. */
const MAX_TIMEOUT = 2 ** 31 - 1;

interface Scope {
  [OWN]?: (value: Location) => Location;
}

/** Resolves once the host's capabilities are known. */
const whenHostKnown = (): Promise<void> =>
  new Promise((go) => {
    if (document.documentElement.dataset["tier"]) go();
    // The runtime itself is notified after its page.
    else document.addEventListener("tierchange", () => setTimeout(go), { once: true });
  });

function reload(): void {
  if (isWrittenByHost(location)) console.warn("webmcp-gateway: the page stays, and does not load itself anew: the host wrote it into its frame, where it would not come back");
  else location.reload();
}

async function refresh(url: string): Promise<void> {
  await whenHostKnown();
  const own = (window as Scope)[OWN]?.(location);
  const here = new Request("").url;
  if (own) own.href = url || own.href;
  else if (!url || attempt(() => withoutFragment(new Request(url).url)) === here) reload();
  else Object.assign(document.createElement("a"), { href: url }).click();
}

export function watchRefreshes(): void {
  // Before the load event, no browser refreshes.
  const loaded = new Promise<void>((done) => {
    if (document.readyState === "complete") done();
    addEventListener("load", ({ isTrusted }) => isTrusted && done(), true);
  });
  const known = new WeakMap<Element, string>();

  function readRefresh(one: Element): void {
    const { httpEquiv, content } = one as HTMLMetaElement;
    if (one.localName !== "meta" || !/^refresh$/i.test(httpEquiv) || known.get(one) === content) return;
    known.set(one, content);
    const [, seconds = "", ...urls] = REFRESH.exec(content) ?? [];
    if (!seconds) return;
    const url = urls.find((text) => text !== undefined) ?? "";
    void loaded.then(() => setTimeout(refresh, Math.min(parseInt(seconds) * 1000 || 0, MAX_TIMEOUT), url.trim()));
  }

  new MutationObserver((records) => {
    for (const { type, target, addedNodes } of records) {
      if (type === "attributes") readRefresh(target as Element);
      for (const node of addedNodes) if (node instanceof Element) for (const one of [node, ...node.querySelectorAll("meta")]) readRefresh(one);
    }
  }).observe(document, { subtree: true, childList: true, attributes: true, attributeFilter: ["content", "http-equiv"] });
}
