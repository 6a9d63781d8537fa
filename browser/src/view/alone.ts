/** Outside of a host nothing keeps a browser from the backend: pictures and sheets say again what their page wrote. */

/** Behind it what stood there, or nothing. */
const HELD = "#webmcp-gateway:";

function restore(element: Element): void {
  for (const { name, value } of [...element.attributes]) {
    const [, written] = value.split(HELD);
    if (written) element.setAttribute(name, decodeURI(written));
    else if (written !== undefined) element.removeAttribute(name);
  }
}

export function restorePage(): void {
  new MutationObserver((records) => {
    for (const node of records.flatMap(({ addedNodes }) => [...addedNodes])) {
      if (node instanceof Element) [node, ...node.querySelectorAll("[src], [srcset], [poster], [background], link")].forEach(restore);
    }
  }).observe(document, { childList: true, subtree: true });
}
