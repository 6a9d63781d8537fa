/** HTML and XML of the page, in its original form. */

/** `html` without the runtime's changes. */
export const originalMarkup = (html: string): string =>
  html.replace(/<style webmcp-gateway.*?<\/style>/gs, "").replace(/( [\w:]+=")[^"]*#webmcp-gateway:([^\s"]*)[^"]*"/g, (_, start, ours) => (ours ? start + decodeURI(ours).replace(/"/g, "&quot;") + '"' : ""));

/** Restores the original form in `owner`'s method `name`. */
export function restoreOriginalMarkup(owner: object, name: string): void {
  const native = Reflect.get(owner, name) as ((...given: unknown[]) => string) | undefined;
  // Older browsers have no `getHTML`.
  if (native) Reflect.set(owner, name, new Proxy(native, { apply: (_, self, given) => originalMarkup(native.apply(self, given)) }));
}
