/**
 * Restores the runtime's listeners when a page rewrites its document, which removes them (HTML, 8.4.1).
 *
 * A separate script, before the runtime.
 */

type Given = Parameters<typeof addEventListener>;

const runtime = document.currentScript;
const { prototype } = EventTarget;
const { addEventListener: add, removeEventListener: remove } = prototype;
let runtimeListeners: [EventTarget, Given][] = [];

function restoreListeners(): void {
  for (const [target, given] of runtimeListeners) add.apply(target, given);
  // The page's styles depend on this attribute of the former document.
  const { tier } = Reflect.get(window, "webmcpGateway") as { tier?: string };
  const observer = new MutationObserver(() => {
    // If a host writes another page, that has its own runtime.
    if (!document.querySelector('meta[name="webmcp-gateway"]')) return;
    observer.disconnect();
    for (const [target, given] of runtimeListeners) remove.apply(target, given);
  });
  observer.observe(document, { childList: true, subtree: true });
  addEventListener("DOMContentLoaded", () => Object.assign(document.documentElement.dataset, { tier }), { capture: true, once: true });
}

function start(): void {
  // Without an object it is the window's.
  prototype.addEventListener = function (this: EventTarget | undefined, ...given: Given) {
    const target = this ?? window;
    if (document.currentScript === runtime && (target === window || target === document)) runtimeListeners.push([target, given]);
    add.apply(target, given);
  };
  prototype.removeEventListener = function (this: EventTarget | undefined, ...given: Given) {
    const [type, listener] = given;
    runtimeListeners = runtimeListeners.filter(([, [of, one]]) => of !== type || one !== listener);
    remove.apply(this ?? window, given);
  };
  const { open, write, writeln } = Document.prototype;
  Reflect.set(Document.prototype, "open", function (this: Document, ...given: [string, string, string]) {
    // With a name it is the window's.
    if (given.length > 2) return window.open(...given);
    const opened = open.apply(this, given);
    if (this === document) restoreListeners();
    return opened;
  });
  for (const [name, native] of Object.entries({ write, writeln })) {
    Reflect.set(Document.prototype, name, function (this: Document, ...text: string[]) {
      const { documentElement: root } = document;
      // Only opens the document, if the native call would: the written content may run at once.
      if (this === document) write.call(this, "");
      if (root !== document.documentElement) restoreListeners();
      native.apply(this, text);
    });
  }
}

if (window.parent !== window) start();
