/** Starts the scripts of a page that the packer made wait, as if the page were parsed only now. */

/** The type of a script that waits, and the attribute with the type that it had. */
const WAITS = "webmcp-gateway-waits";
/** What it names of the backend. */
const SOURCE = "webmcp-gateway-src";
/** What the last module tells. */
const STARTED = "webmcp-gateway-started";
/** A host that writes into the document may never close it. */
const PARSED_AT_LAST = 2000;

function add(text: string | null, type: string, place: (script: HTMLScriptElement) => void): void {
  const script = document.createElement("script");
  script.type = type;
  script.text = text ?? "";
  // Modules run one after the other.
  script.async = false;
  place(script);
}

function run(waiting: HTMLScriptElement, text: string | null): void {
  add(text, waiting.getAttribute(WAITS) ?? "", (script) => {
    for (const { name, value } of waiting.attributes) if (name !== WAITS && name !== SOURCE && name !== "type") script.setAttribute(name, value);
    waiting.replaceWith(script);
    if (waiting.hasAttribute(SOURCE)) script.dispatchEvent(new Event("load"));
  });
}

/** The text of a script of the backend. Rejects where there is none. */
async function loaded(waiting: HTMLScriptElement, url: string): Promise<string> {
  const response = await fetch(url, { integrity: waiting.integrity });
  if (!response.ok) throw new Error(`${url}: ${response.status}`);
  return response.text();
}

/** All that wait, also in shadow roots that the parser made. */
function* waitingIn(root: ParentNode): Generator<HTMLScriptElement> {
  for (const one of root.querySelectorAll("*")) {
    if (one.matches(`script[${WAITS}]`)) yield one as HTMLScriptElement;
    if (one.shadowRoot) yield* waitingIn(one.shadowRoot);
  }
}

async function runModules(modules: HTMLScriptElement[]): Promise<void> {
  for (const one of modules) run(one, one.textContent);
  await new Promise((go) => {
    addEventListener(STARTED, go, { once: true });
    add(`dispatchEvent(new Event("${STARTED}"))`, "module", (script) => {
      document.head.append(script);
      addEventListener(STARTED, () => script.remove(), { once: true });
    });
  });
}

/** When `ready` has come and the page is parsed: classic scripts in their order, modules, then the events of a page. */
export function startScripts(ready: Promise<unknown>): void {
  let state: DocumentReadyState = "loading";
  const is = (next: DocumentReadyState): void => {
    state = next;
    document.dispatchEvent(new Event("readystatechange"));
  };
  const parsed = new Promise<void>((go) => {
    addEventListener("load", ({ isTrusted }) => isTrusted && go(), true);
    setTimeout(go, PARSED_AT_LAST);
  });
  // The page has nobody who could hear the browser's; it gets others.
  for (const type of ["DOMContentLoaded", "readystatechange", "load"]) {
    addEventListener(type, (event) => event.isTrusted && event.stopImmediatePropagation(), true);
  }
  Object.defineProperty(document, "readyState", { configurable: true, get: () => state });

  async function start(): Promise<void> {
    await Promise.all([ready, parsed]);
    const all = [...waitingIn(document)];
    const modules = all.filter((one) => one.getAttribute(WAITS) === "module");
    const { write, writeln } = document;
    // The browser's own would make the page anew.
    document.write = (...text) => document.currentScript?.insertAdjacentHTML("beforebegin", text.join(""));
    document.writeln = (...text) => document.write(...text, "\n");
    const texts = new Map<HTMLScriptElement, Promise<string>>();
    for (const one of all) {
      const url = one.getAttribute(SOURCE);
      if (url === null) continue;
      const text = loaded(one, url);
      text.catch(() => undefined); // its turn comes
      texts.set(one, text);
    }
    for (const one of all) {
      if (modules.includes(one)) continue;
      const text = texts.get(one);
      try {
        run(one, text ? await text : one.textContent);
      } catch (error) {
        console.error(`webmcp-gateway: a script was not loaded: ${error}`);
        one.dispatchEvent(new Event("error"));
      }
    }
    Object.assign(document, { write, writeln });
    is("interactive");
    if (modules.length) await runModules(modules);
    document.dispatchEvent(new Event("DOMContentLoaded", { bubbles: true }));
    is("complete");
    dispatchEvent(new Event("load"));
  }
  void start();
}
