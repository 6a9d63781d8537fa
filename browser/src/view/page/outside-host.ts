/** Outside of a host, browsers can reach the backend: restores the URLs of images and sheets that the packer replaced. */

import { watchDeclaredRoots } from "./declarative-roots";

/** A prefix of the original value; nothing follows it if there was none. */
const ORIGINAL = "#webmcp-gateway:";
const REFERENCES = "[src], [srcset], [poster], [background], link";

function restoreElement(element: Element): void {
  for (const { name, value } of [...element.attributes]) {
    const [, written] = value.split(ORIGINAL);
    if (written) element.setAttribute(name, decodeURI(written));
    else if (written !== undefined) element.removeAttribute(name);
  }
}

export function restorePage(): void {
  const observer = new MutationObserver((records) => {
    for (const node of records.flatMap(({ addedNodes }) => [...addedNodes])) {
      if (node instanceof Element) [node, ...node.querySelectorAll(REFERENCES)].forEach(restoreElement);
    }
  });
  const observe = (root: Node): void => observer.observe(root, { childList: true, subtree: true });
  observe(document);
  watchDeclaredRoots((root) => {
    observe(root);
    root.querySelectorAll(REFERENCES).forEach(restoreElement);
  });
}
