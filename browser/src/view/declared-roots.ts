/** Shadow roots that HTML declares: no script attaches them, which is how the runtime hears of others. */

import { attempt } from "./attempt";

/** `found` is told each that is open, before what stands in it. */
export function findDeclared(found: (root: ShadowRoot) => void): void {
  const known = new WeakSet<ShadowRoot>();
  const look = ({ shadowRoot }: Element): void => {
    if (!shadowRoot || known.has(shadowRoot)) return;
    known.add(shadowRoot);
    observe(shadowRoot);
    found(shadowRoot);
    lookIn(shadowRoot);
  };
  const lookIn = (node: ParentNode): void => node.querySelectorAll("*").forEach(look);
  const observer = new MutationObserver((records) => {
    for (const { target, addedNodes } of records) {
      // Its root may have come after itself, of which nobody tells.
      if (target instanceof Element) look(target);
      for (const node of addedNodes) {
        if (!(node instanceof Element)) continue;
        if (node.previousElementSibling) look(node.previousElementSibling);
        look(node);
        lookIn(node);
      }
    }
  });
  const observe = (root: Node): void => observer.observe(root, { childList: true, subtree: true });
  observe(document);
  document.addEventListener("DOMContentLoaded", () => lookIn(document), true);
}

/** Attaches them anew, with what stands in them, by what the runtime has in the place of `attachShadow`. */
export function attachDeclared(): void {
  const { prototype } = Element;
  const { attachShadow } = prototype;
  const own = new WeakSet<ShadowRoot>();
  /** Which a script may have yet, empty, as it may those that nobody attached. */
  const open = new WeakSet<Element>();
  prototype.attachShadow = function (init) {
    const { shadowRoot } = this;
    if (shadowRoot && init?.mode === shadowRoot.mode && open.delete(this)) {
      shadowRoot.replaceChildren();
      return shadowRoot;
    }
    const root = attachShadow.call(this, init);
    own.add(root);
    return root;
  };
  findDeclared((root) => {
    if (own.has(root)) return;
    const { host, mode, childNodes } = root;
    const nodes = [...childNodes];
    if (!attempt(() => attachShadow.call(host, { mode }))) return;
    open.add(host);
    root.append(...nodes);
  });
}
