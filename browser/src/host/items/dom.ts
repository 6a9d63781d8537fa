/** Elements, without HTML in strings: pages may forbid it (Trusted Types), as they may forbid inline styles. */

type Attributes = Record<string, string | boolean | null | undefined>;

/** An element with these attributes; true is an empty attribute, false and null are none. */
export function make<Name extends keyof HTMLElementTagNameMap>(
  name: Name,
  attributes: Attributes = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[Name] {
  const element = document.createElement(name);
  setAttributes(element, attributes);
  element.append(...children);
  return element;
}

export function setAttributes(element: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) element.removeAttribute(name);
    else element.setAttribute(name, value === true ? "" : value);
  }
}

const SVG = "http://www.w3.org/2000/svg";

/** Outlines in a square of 24; strokes have the colour of the text. */
const ICONS = {
  app: "M4 5.5h16v13H4zM4 9h16M7 7.2h.01M9.5 7.2h.01",
  panel: "M9 4H4v5M15 4h5v5M9 20H4v-5M15 20h5v-5",
  workspace: "M4 5h16v14H4zM14 5v14",
  inline: "M4 6h16M4 18h16M7 10h10v4H7z",
  close: "M6 6l12 12M18 6L6 18",
} as const;

export type IconName = keyof typeof ICONS;

/** A decoration; the element around it has the words. */
export function icon(name: IconName): SVGElement {
  const svg = document.createElementNS(SVG, "svg");
  setAttributes(svg, { viewBox: "0 0 24 24", "aria-hidden": "true", class: "icon" });
  const path = document.createElementNS(SVG, "path");
  setAttributes(path, { d: ICONS[name], fill: "none", stroke: "currentColor", "stroke-width": "1.75", "stroke-linecap": "round", "stroke-linejoin": "round" });
  svg.append(path);
  return svg;
}

const sheets = new Map<string, CSSStyleSheet>();

/** Adopt `css` in `root`; all roots share one sheet. */
export function adoptStyles(root: ShadowRoot, css: string): void {
  let sheet = sheets.get(css);
  if (!sheet) {
    sheet = new CSSStyleSheet();
    sheet.replaceSync(css);
    sheets.set(css, sheet);
  }
  root.adoptedStyleSheets = [...root.adoptedStyleSheets, sheet];
}
