/** Sheets that others import: hosts let none be loaded, so each gets into the sheet that names it. */

import type { Files } from "./page-files";

/** As it stands in a sheet; the runtime lets those of a fetched one come too late, so that browsers do not try them. */
const IMPORT = /(?:@media\{\})?@import\s*(?:url\(\s*(?:"[^"]*"|'[^']*'|[^)]*?)\s*\)|"[^"]*"|'[^']*')[^;]*(?:;|$)/gi;
const COMMENT = /\/\*.*?\*\//gs;

export function watchImports({ text, styled }: Files, resolve: (url: string) => string): void {
  /** What a rule imports, under its conditions. */
  async function imported({ href, media, layerName, supportsText }: CSSImportRule, base: string, above: string[], lost: unknown[]): Promise<string> {
    const url = resolve(base ? new URL(href, base).href : href);
    if (above.includes(url)) return "";
    const css = await whole(await text(url, { integrity: "" }), url, [...above, url], lost);
    const applied = `@media ${media.mediaText}{@supports(${supportsText ?? "all:unset"}){${css}}}`;
    return layerName === null ? applied : `@layer ${layerName}{${applied}}`;
  }

  /** `css` with all that it imports, but for what is `lost`. A document that nobody sees reads it, and loads nothing. */
  async function whole(css: string, base: string, above: string[], lost: unknown[]): Promise<string> {
    const plain = css.replace(COMMENT, (comment) => (/@import/i.test(comment) ? "" : comment));
    const style = document.implementation.createHTMLDocument().head.appendChild(document.createElement("style"));
    style.textContent = plain.replaceAll("@media{}@", "@");
    const rules = [...style.sheet!.cssRules].filter((rule) => rule instanceof CSSImportRule);
    const found = await Promise.all(rules.map((rule) => imported(rule, base, above, lost).catch((why) => (lost.push(why), ""))));
    const filled = plain.replace(IMPORT, () => found.shift() ?? "");
    return (await styled(filled, base)) ?? filled;
  }

  /** Whether all was there. */
  async function fill(style: Node, base: string): Promise<boolean> {
    const css = style.textContent ?? "";
    const lost: unknown[] = [];
    const filled = await whole(css, base, [base], lost);
    if (style.textContent === css) style.textContent = filled;
    return !lost.length;
  }

  for (const type of ["load", "error"]) {
    // A load never gets to the window.
    document.addEventListener(type, (event) => {
      const { target } = event;
      const isLink = target instanceof HTMLLinkElement;
      const style = isLink ? target.sheet?.ownerNode : target;
      if (!(style instanceof HTMLStyleElement) || style.textContent!.search(IMPORT) < 0) return;
      // Of a style of the page, what the browser could not load.
      if (!isLink && (type === "load" || style.hasAttribute("webmcp-gateway"))) return;
      event.stopImmediatePropagation();
      // The browser tells of a style again, once it is another.
      if (isLink) void fill(style, target.href).then((all) => target.dispatchEvent(new Event(all ? type : "error")));
      else void fill(style, "");
    }, true);
  }
}
