/** Outside of a host nothing keeps a browser from the backend: pictures and sheets say again what their page wrote. */

import { findDeclared } from "./declared-roots";

/** Behind it what stood there, or nothing. */
const HELD = "#webmcp-gateway:";
const NAMING = "[src], [srcset], [poster], [background], link";

function restore(element: Element): void {
  for (const { name, value } of [...element.attributes]) {
    const [, written] = value.split(HELD);
    if (written) element.setAttribute(name, decodeURI(written));
    else if (written !== undefined) element.removeAttribute(name);
  }
}

export function restorePage(): void {
  const observer = new MutationObserver((records) => {
    for (const node of records.flatMap(({ addedNodes }) => [...addedNodes])) {
      if (node instanceof Element) [node, ...node.querySelectorAll(NAMING)].forEach(restore);
    }
  });
  const observe = (root: Node): void => observer.observe(root, { childList: true, subtree: true });
  observe(document);
  findDeclared((root) => {
    observe(root);
    root.querySelectorAll(NAMING).forEach(restore);
  });
}
