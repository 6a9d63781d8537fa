/** Inlines imports of style sheets, whose loading hosts block. */

import type { Files } from "./page-files";

/** The prefix of a fetched sheet, behind which its imports are too late, so that browsers ignore them. */
const LATE = /^@media\{\}/;
/** An import, or a token that may contain a similar text. */
const TOKEN = /\/\*.*?\*\/|@import(?:\s|\/\*.*?\*\/)*(?<named>url\(\s*(?:"[^"]*"|'[^']*'|[^)]*?)\s*\)|"[^"]*"|'[^']*')[^;]*(?:;|$)|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'/gis;
const isImport = ({ groups }: RegExpMatchArray): boolean => groups!["named"] !== undefined;

export function watchImports({ text, embedFiles }: Files, resolve: (url: string) => string): void {
  /** The sheet that a rule imports, under its conditions. */
  async function loadImport({ href, media, layerName, supportsText }: CSSImportRule, base: string, above: string[], lost: unknown[]): Promise<string> {
    const url = resolve(base ? new URL(href, base).href : href);
    if (above.includes(url)) return "";
    const css = await inlineImports(await text(url, { integrity: "" }), url, [...above, url], lost);
    const applied = `@media ${media.mediaText}{@supports(${supportsText ?? "all:unset"}){${css}}}`;
    return layerName === null ? applied : `@layer ${layerName}{${applied}}`;
  }

  /** `css` with all its imports inlined, except `lost` ones. A detached document parses it without loading anything. */
  async function inlineImports(css: string, base: string, above: string[], lost: unknown[]): Promise<string> {
    const plain = css.replace(LATE, "");
    const style = document.implementation.createHTMLDocument().head.appendChild(document.createElement("style"));
    style.textContent = plain;
    const rules = [...style.sheet!.cssRules].filter((rule) => rule instanceof CSSImportRule);
    const found = await Promise.all(rules.map((rule) => loadImport(rule, base, above, lost).catch((why) => (lost.push(why), ""))));
    const filled = plain.replace(TOKEN, (token: string, named?: string) => (named === undefined ? token : (found.shift() ?? "")));
    return (await embedFiles(filled, base)) ?? filled;
  }

  /** Whether all imports were loaded. */
  async function inlineInto(style: Node, base: string): Promise<boolean> {
    const css = style.textContent ?? "";
    const lost: unknown[] = [];
    const filled = await inlineImports(css, base, [base], lost);
    if (style.textContent === css) style.textContent = filled;
    return !lost.length;
  }

  for (const type of ["load", "error"]) {
    // Load events do not propagate to the window.
    document.addEventListener(type, (event) => {
      const { target } = event;
      const isLink = target instanceof HTMLLinkElement;
      const style = isLink ? target.sheet?.ownerNode : target;
      if (!(style instanceof HTMLStyleElement) || ![...style.textContent!.matchAll(TOKEN)].some(isImport)) return;
      // For the page's own styles, only on error.
      if (!isLink && (type === "load" || style.hasAttribute("webmcp-gateway"))) return;
      event.stopImmediatePropagation();
      // The browser fires events for a changed style by itself.
      if (isLink) void inlineInto(style, target.href).then((all) => target.dispatchEvent(new Event(all ? type : "error")));
      else void inlineInto(style, "");
    }, true);
  }
}
