/** Where the page leads: to other places through the host, to files by downloads of the host; it never leaves itself. */

import { attempt } from "./attempt";
import { dataUrlOf } from "./base64";
import type { Params } from "./json-rpc";

interface Ends {
  fetch: typeof fetch;
  resolve(url: string): string;
  /** Opens a URL outside; false where the host cannot. */
  open(url: string): Promise<boolean>;
  /** `ui/download-file`; false where the host cannot, or does not. */
  save(params: Params): Promise<boolean>;
  /** Tells the person that it failed, and a developer why. */
  failed(what: string, name: string, why: unknown): void;
}

const UNOPENED = "Link not opened";

/** Servers write it coded, or its UTF-8 as it is, of which headers show each byte. */
function nameIn(header: string | null): string {
  const [, coded, plain = ""] = /^.*filename\*=utf-8''([^;]+)|filename="?([^";]+)/i.exec(header!) ?? [];
  return attempt(() => decodeURIComponent(coded ?? escape(plain))) ?? plain;
}

/** Gives what a click on an element leads to. */
export function watchLinks({ fetch, resolve, open, save, failed }: Ends) {
  async function keep(response: Response, given: string | null): Promise<void> {
    // What says that there is no file is none.
    if (!response.ok) throw response.status;
    const blob = await response.blob();
    const name = given || nameIn(response.headers.get("content-disposition")) || new URL(response.url).pathname.split("/").pop() || "download";
    const resource = { uri: `file:///${encodeURIComponent(name)}`, mimeType: blob.type || "application/octet-stream", blob: (await dataUrlOf(blob)).replace(/^.*?,/s, "") };
    if (!(await save({ contents: [{ type: "resource", resource }] }))) throw "the host does not save it";
  }

  async function leave(url: string): Promise<void> {
    if (!(await open(url))) throw "the host does not open it";
  }

  async function follow(link: Element, written: string): Promise<void> {
    const name = link.getAttribute("download");
    let saved = name !== null;
    try {
      const url = resolve(written);
      if (!saved && (window as { webmcpGatewayGo?: (url: string) => boolean }).webmcpGatewayGo?.(url)) return;
      const outside = !url.startsWith(resolve("/"));
      if (!saved && (outside || /^_?blank$/.test(`${link.getAttribute("target")}`))) return await leave(url);
      const response = await fetch(url);
      saved ||= /^attachment/i.test(response.headers.get("content-disposition")!);
      if (saved) return await keep(response, name);
      throw "another page: let a router take the click";
    } catch (error) {
      failed(saved ? "File not saved" : UNOPENED, name || written, error);
    }
  }

  /** One of an SVG may have it by an animation alone. */
  const hrefOf = (link: Element): string | null => link.getAttribute("href") ?? link.getAttribute("xlink:href") ?? ((link as SVGAElement).href.animVal || null);

  /** Also one of a picture: of an image map, or in an SVG. */
  const isLink = (one: Element): boolean => one.matches("a,area") && !/^\s*javascript:/i.test(`${hrefOf(one)}`);

  function go(link: Element): void {
    const href = hrefOf(link);
    // In what is edited it is a text.
    if (href === null || (link as HTMLElement).isContentEditable) return;
    const hash = /#.*/s.exec(href.trim())?.[0];
    if (!hash || !attempt(() => resolve(href) === resolve(hash))) void follow(link, href);
    else if (location.hash !== hash) location.hash = hash;
    else document.getElementById(hash.slice(1))?.scrollIntoView();
  }

  window.open = (url) => {
    if (url) leave(resolve(String(url))).catch((error: unknown) => failed(UNOPENED, String(url), error));
    return null;
  };
  // One may say where it leads when others hear of the click, as for a file that is made then.
  return (one: Element, stopped?: boolean) => isLink(one) && (stopped || hrefOf(one) !== null) && (() => go(one));
}
