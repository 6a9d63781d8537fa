/** Finds declarative shadow roots: no script attaches them, so the runtime's wrapper does not notice them. */

/** `found` is called for each open root, before those inside. */
export function watchDeclaredRoots(found: (root: ShadowRoot) => void): void {
  const known = new WeakSet<ShadowRoot>();
  const visit = ({ shadowRoot }: Element): void => {
    if (!shadowRoot || known.has(shadowRoot)) return;
    known.add(shadowRoot);
    observe(shadowRoot);
    found(shadowRoot);
    visitAll(shadowRoot);
  };
  const visitAll = (node: ParentNode): void => node.querySelectorAll("*").forEach(visit);
  const observer = new MutationObserver((records) => {
    for (const { target, addedNodes } of records) {
      // Its root may have been added after itself, without a record.
      if (target instanceof Element) visit(target);
      for (const node of addedNodes) {
        if (!(node instanceof Element)) continue;
        if (node.previousElementSibling) visit(node.previousElementSibling);
        visit(node);
        visitAll(node);
      }
    }
  });
  const observe = (root: Node): void => observer.observe(root, { childList: true, subtree: true });
  observe(document);
  document.addEventListener("DOMContentLoaded", () => visitAll(document), true);
}

/** Passes them to the runtime's wrapper of `attachShadow`. */
export function attachDeclaredRoots(): void {
  const { prototype } = Element;
  const { attachShadow } = prototype;
  const own = new WeakSet<ShadowRoot>();
  prototype.attachShadow = function (init) {
    const root = attachShadow.call(this, init);
    own.add(root);
    return root;
  };
  watchDeclaredRoots((root) => {
    if (!own.has(root)) attachShadow.call(root.host, { mode: root.mode, declared: root } as ShadowRootInit);
  });
}
