/** Modules of a page that scripts put there: the browser runs them later, in their order. */

/** When all have run that got into the page until now, or do before this turn of the event loop ends. */
export function modulesRun(): Promise<unknown> {
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
