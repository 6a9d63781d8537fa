/**
 * Keeps the runtime's listeners where a page writes its document anew, which takes all of them along (HTML, 8.4.1).
 * A script of its own, before the runtime.
 */

type Given = Parameters<typeof addEventListener>;

const runtime = document.currentScript;
const { prototype } = EventTarget;
const { addEventListener: add, removeEventListener: remove } = prototype;
let kept: [EventTarget, Given][] = [];

function again(): void {
  for (const [target, given] of kept) add.apply(target, given);
  // What styles of the page go by stood in the document before.
  const { tier } = Reflect.get(window, "webmcpGateway") as { tier?: string };
  const observer = new MutationObserver(() => {
    // A host that writes another page: that has a runtime of its own.
    if (!document.querySelector('meta[name="webmcp-gateway"]')) return;
    observer.disconnect();
    for (const [target, given] of kept) remove.apply(target, given);
  });
  observer.observe(document, { childList: true, subtree: true });
  addEventListener("DOMContentLoaded", () => Object.assign(document.documentElement.dataset, { tier }), { capture: true, once: true });
}

function start(): void {
  // Called without an object it is the window's.
  prototype.addEventListener = function (this: EventTarget | undefined, ...given: Given) {
    const target = this ?? window;
    if (document.currentScript === runtime && (target === window || target === document)) kept.push([target, given]);
    add.apply(target, given);
  };
  prototype.removeEventListener = function (this: EventTarget | undefined, ...given: Given) {
    const [type, listener] = given;
    kept = kept.filter(([, [of, one]]) => of !== type || one !== listener);
    remove.apply(this ?? window, given);
  };
  const { open, write, writeln } = Document.prototype;
  Reflect.set(Document.prototype, "open", function (this: Document, ...given: [string, string, string]) {
    // With a name it is the window's.
    if (given.length > 2) return window.open(...given);
    const opened = open.apply(this, given);
    if (this === document) again();
    return opened;
  });
  for (const [name, native] of Object.entries({ write, writeln })) {
    Reflect.set(Document.prototype, name, function (this: Document, ...text: string[]) {
      const { documentElement: root } = document;
      // Nothing more than to open it, where this one would: what is written may already act.
      if (this === document) write.call(this, "");
      if (root !== document.documentElement) again();
      native.apply(this, text);
    });
  }
}

if (window.parent !== window) start();
