/** Module scripts that are inserted by scripts: the browser runs them later, in order. */

/** Resolves when all that were inserted until now, or in this task, have run. */
export function afterModules(): Promise<unknown> {
  const name = `webmcp-gateway-${Math.random()}`;
  const last = document.createElement("script");
  last.type = "module";
  last.text = `dispatchEvent(new Event("${name}"))`;
  last.async = false;
  queueMicrotask(() => {
    document.head.append(last);
    last.remove();
  });
  return new Promise((go) => addEventListener(name, go, { once: true }));
}
