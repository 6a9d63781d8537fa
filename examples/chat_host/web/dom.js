/** Elements without HTML in strings: nothing that a model or an app wrote is ever parsed as HTML. */

/** An element with these attributes (true is an empty one, false and null are none) and children. */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Outlines in a square of 24. */
const ICONS = {
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M4.2 4.2l1.4 1.4M18.4 18.4l1.4 1.4M2 12h2M20 12h2M4.2 19.8l1.4-1.4M18.4 5.6l1.4-1.4",
  pen: "M4 20h4L19 9l-4-4L4 16zM13.5 6.5l4 4",
  leave: "M10 4H5v16h5M15 8l4 4-4 4M19 12H9",
  up: "M12 19V5M6 11l6-6 6 6",
  down: "M12 5v14M6 13l6 6 6-6",
  stop: "M8 8h8v8H8z",
  shop: "M4 9l1.5-5h13L20 9M4 9v11h16V9M4 9a2.7 2.7 0 0 0 5.3 0 2.7 2.7 0 0 0 5.4 0A2.7 2.7 0 0 0 20 9M10 20v-5h4v5",
  board: "M4 5h16v14H4zM9.3 5v14M14.6 5v14",
  chart: "M5 20V10M12 20V4M19 20v-7",
  spark: "M12 3l1.9 5.6L19.5 10l-5.6 1.9L12 17.5l-1.9-5.6L4.5 10l5.6-1.4zM19 16v4M17 18h4",
  shield: "M12 3l7 3v5c0 4.5-3 8-7 10-4-2-7-5.5-7-10V6zM12 8v4M12 15.5v.1",
  alert: "M12 4l9 16H3zM12 10v4M12 17v.1",
  open: "M14 4h6v6M20 4l-9 9M18 14v5H5V6h5",
  app: "M4 5.5h16v13H4zM4 9h16",
  busy: "M12 4a8 8 0 1 1-7.4 5",
  done: "M5 12.5l4.5 4.5L19 7.5",
  failed: "M7 7l10 10M17 7L7 17",
  waiting: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM12 8v4l2.5 2",
  stopped: "M6 12h12",
};

/** A decoration: the element around it has the words. */
export function icon(name, more = "") {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  const stroke = { d: ICONS[name], fill: name === "stop" ? "currentColor" : "none", stroke: "currentColor", "stroke-width": "1.8", "stroke-linecap": "round", "stroke-linejoin": "round" };
  for (const [key, value] of Object.entries(stroke)) path.setAttribute(key, value);
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  svg.append(path);
  return make("span", { class: `icon ${more}`.trim() }, svg);
}

/** Replace the placeholders of icons in the page. */
export function drawIcons(root) {
  for (const place of root.querySelectorAll("[data-icon]")) place.replaceChildren(icon(place.dataset.icon).firstChild);
}
