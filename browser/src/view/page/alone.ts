/** Outside of a host, browsers can reach the backend: restores the URLs of images and sheets that the packer replaced. */

import { findDeclared } from "./declared-roots";

/** A prefix of the original value; nothing follows it if there was none. */
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
