/** Navigation of the page: other sites are opened by the host, files are saved by the host; the page itself stays. */

import { attempt } from "../attempt";
import { readAsDataUrl } from "../base64";
import type { Params } from "../host/json-rpc";

interface LinkDependencies {
  fetch: typeof fetch;
  resolve(url: string): string;
  /** Opens a URL outside; false if the host cannot. */
  open(url: string): Promise<boolean>;
  /** `ui/download-file`; false if the host cannot, or fails. */
  save(params: Params): Promise<boolean>;
  /** Informs the person of a failure, and a developer of its reason. */
  showFailure(what: string, name: string, why: unknown): void;
}

const UNOPENED = "Link not opened";

/** Servers encode the name, or send raw UTF-8, of which headers contain one character per byte. */
function fileName(header: string | null): string {
  const [, coded, plain = ""] = /^.*filename\*=utf-8''([^;]+)|filename="?([^";]+)/i.exec(header!) ?? [];
  return attempt(() => decodeURIComponent(coded ?? escape(plain))) ?? plain;
}

/** Returns the function that finds a click's navigation. */
export function watchLinks({ fetch, resolve, open, save, showFailure }: LinkDependencies) {
  async function saveResponse(response: Response, given: string | null): Promise<void> {
    // An error response is not the file.
    if (!response.ok) throw response.status;
    const blob = await response.blob();
    const name = given || fileName(response.headers.get("content-disposition")) || new URL(response.url).pathname.split("/").pop() || "download";
    const resource = { uri: `file:///${encodeURIComponent(name)}`, mimeType: blob.type || "application/octet-stream", blob: (await readAsDataUrl(blob)).replace(/^.*?,/s, "") };
    if (!(await save({ contents: [{ type: "resource", resource }] }))) throw "the host does not save it";
  }

  async function openOutside(url: string): Promise<void> {
    if (!(await open(url))) throw "the host does not open it";
  }

  async function follow(link: Element, written: string): Promise<void> {
    const name = link.getAttribute("download");
    let saved = name !== null;
    try {
      const url = resolve(written);
      if (!saved && (window as { webmcpGatewayGo?: (url: string) => boolean }).webmcpGatewayGo?.(url)) return;
      const outside = !url.startsWith(resolve("/"));
      if (!saved && (outside || /^_?blank$/.test(`${link.getAttribute("target")}`))) return await openOutside(url);
      const response = await fetch(url);
      saved ||= /^attachment/i.test(response.headers.get("content-disposition")!);
      if (saved) return await saveResponse(response, name);
      throw "another page: let a router take the click";
    } catch (error) {
      showFailure(saved ? "File not saved" : UNOPENED, name || written, error);
    }
  }

  /** A link in an SVG may have it only by an animation. */
  const hrefOf = (link: Element): string | null => link.getAttribute("href") ?? link.getAttribute("xlink:href") ?? ((link as SVGAElement).href.animVal || null);

  /** Also an area of an image map, or a link in an SVG. */
  const isLink = (one: Element): boolean => one.matches("a,area") && !/^\s*javascript:/i.test(`${hrefOf(one)}`);

  function followOrScroll(link: Element): void {
    const href = hrefOf(link);
    // In editable content a link is text.
    if (href === null || (link as HTMLElement).isContentEditable) return;
    const hash = /#.*/s.exec(href.trim())?.[0];
    if (!hash || !attempt(() => resolve(href) === resolve(hash))) void follow(link, href);
    else if (location.hash !== hash) location.hash = hash;
    else document.getElementById(hash.slice(1))?.scrollIntoView();
  }

  window.open = (url) => {
    if (url) openOutside(resolve(String(url))).catch((error: unknown) => showFailure(UNOPENED, String(url), error));
    return null;
  };
  // A link may get its URL by a later listener of the click, such as for a file that is created then.
  return (one: Element, stopped?: boolean) => isLink(one) && (stopped || hrefOf(one) !== null) && (() => followOrScroll(one));
}
