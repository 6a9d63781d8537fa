/** Starts the scripts of a page that the packer held back, as if the page were parsed only now. */

import { afterModules } from "./modules";
import { fetchFile, type Outside, readText } from "./page-files";
import { IMPORT, type Importing } from "./part-keys";

/** The type of a held back script, and the attribute with its kind: "module", "defer" or "". */
const SCRIPT_KIND = "webmcp-gateway-waits";
/** Its URL at the backend. */
const SOURCE = "webmcp-gateway-src";
const outside = (url: string): boolean | undefined => (window as Outside).webmcpGatewayOut?.(url);
/** A host that writes into the document may never close it. */
const PARSE_TIMEOUT = 2000;

/** The prefix of attributes that are held back, too. */
const HELD = "webmcp-gateway-";

const isModule = (waiting: Element): boolean => waiting.getAttribute(SCRIPT_KIND) === "module";
const importing = (): Importing | undefined => (window as { [IMPORT]?: Importing })[IMPORT];
const urlOf = (waiting: Element): string => {
  const source = waiting.getAttribute(SOURCE);
  return source === null ? document.baseURI : new Request(source).url;
};

/** The attributes as the page wrote them, in their order. */
const ownAttributes = (waiting: Element): [name: string, value: string][] =>
  [...waiting.attributes].flatMap(({ name, value }) => (name === SCRIPT_KIND || name === "type" ? [] : [[name.startsWith(HELD) ? name.slice(HELD.length) : name, value]]));

/** As the page wrote it, for libraries that compare the heads of pages; a script runs only once. */
function restore(script: HTMLScriptElement, attributes: [name: string, value: string][], text: string): void {
  script.textContent = text;
  for (const { name } of [...script.attributes]) script.attributes.removeNamedItem(name);
  for (const [name, value] of attributes) {
    const attribute = document.createAttribute(name);
    attribute.value = value;
    script.attributes.setNamedItem(attribute);
  }
}

function run(waiting: HTMLScriptElement, text: string | null): void {
  const script = document.createElement("script");
  const own = ownAttributes(waiting);
  if (isModule(waiting)) script.type = "module";
  script.text = isModule(waiting) ? (text ?? "") : (importing()?.classic(text ?? "", urlOf(waiting)) ?? text ?? "");
  const source = waiting.getAttribute(SOURCE);
  // Scripts look for their own address.
  if (source !== null) {
    Object.defineProperty(script, "src", { configurable: true, value: urlOf(waiting) });
    script.getAttribute = (name) => (/^src$/i.test(name) ? source : Element.prototype.getAttribute.call(script, name));
  }
  // Modules run one after the other.
  script.async = false;
  for (const [name, value] of own) if (name !== "src" && name !== "type") script.setAttribute(name, value);
  waiting.replaceWith(script);
  // A module runs later.
  if (!isModule(waiting)) restore(script, own, source === null ? (text ?? "") : "");
  Reflect.deleteProperty(script, "getAttribute");
  if (source !== null) script.dispatchEvent(new Event("load"));
}

/** Puts an element that has run in the place of a module script. */
function replaceModule(waiting: HTMLScriptElement): HTMLScriptElement {
  const script = document.createElement("script");
  script.text = ";";
  waiting.replaceWith(script);
  restore(script, ownAttributes(waiting), waiting.textContent);
  return script;
}

/** Lets the browser load a script of another site, and waits until it has run, or failed. */
function runOutside(waiting: HTMLScriptElement, url: string): Promise<unknown> {
  const script = document.createElement("script");
  for (const [name, value] of ownAttributes(waiting)) if (name !== "src" && name !== "type") script.setAttribute(name, value);
  script.type = isModule(waiting) ? "module" : "";
  script.async = false;
  script.src = url;
  const over = new Promise((go) => ["load", "error"].forEach((type) => script.addEventListener(type, go)));
  waiting.replaceWith(script);
  return over;
}

/** All held back scripts, also in declarative shadow roots. */
function* heldBackScripts(root: ParentNode): Generator<HTMLScriptElement> {
  for (const one of root.querySelectorAll("*")) {
    if (one.matches(`script[${SCRIPT_KIND}]`)) yield one as HTMLScriptElement;
    if (one.shadowRoot) yield* heldBackScripts(one.shadowRoot);
  }
}

/** Once `ready` is settled and the page is parsed: runs scripts in order, deferred ones and modules, and fires the page's events. */
export function startScripts(ready: Promise<unknown>): void {
  let state: DocumentReadyState = "loading";
  const enterState = (next: DocumentReadyState): void => {
    state = next;
    document.dispatchEvent(new Event("readystatechange"));
  };
  const parsed = new Promise<boolean>((go) => {
    addEventListener("load", ({ isTrusted }) => isTrusted && go(true), true);
    setTimeout(go, PARSE_TIMEOUT, false);
  });
  // The page's listeners were not added in time for the browser's events; new ones are fired later.
  const types = ["DOMContentLoaded", "readystatechange", "load"];
  const hideEvent = (event: Event): void => void (event.isTrusted && event.stopImmediatePropagation());
  for (const type of types) addEventListener(type, hideEvent, true);
  Object.defineProperty(document, "readyState", { configurable: true, get: () => state });

  async function start(): Promise<void> {
    await Promise.all([ready, parsed]);
    const all = [...heldBackScripts(document)];
    const later = all.filter((one) => one.getAttribute(SCRIPT_KIND));
    const { write, writeln } = document;
    // The browser's own would replace the page.
    document.write = (...text) => document.currentScript?.insertAdjacentHTML("beforebegin", text.join(""));
    document.writeln = (...text) => document.write(...text, "\n");
    const texts = new Map<HTMLScriptElement, Promise<string>>();
    const modules = new Map<HTMLScriptElement, Promise<() => void>>();
    importing()?.readMaps();
    for (const one of all) {
      const url = one.getAttribute(SOURCE);
      if (url !== null && outside(url)) continue;
      if (isModule(one) && importing()) {
        const ready = importing()!.prepare(urlOf(one), url === null ? one.textContent : undefined, one.integrity);
        ready.catch(() => undefined); // handled in its turn
        modules.set(one, ready);
        continue;
      }
      if (url === null) continue;
      const { integrity, noModule, charset } = one;
      const type = one.getAttribute(SCRIPT_KIND)!;
      const text = fetchFile(fetch, url, integrity).then((file) => readText(file, { integrity, noModule, type, charset }));
      text.catch(() => undefined); // handled in its turn
      texts.set(one, text);
    }
    const runModule = async (one: HTMLScriptElement, ready: Promise<() => void>): Promise<void> => {
      try {
        const start = await ready;
        const script = replaceModule(one);
        start();
        if (script.src) script.dispatchEvent(new Event("load"));
      } catch (error) {
        // The browser tells where the error is.
        if (error instanceof SyntaxError && !one.hasAttribute(SOURCE)) return run(one, one.textContent);
        console.error(`webmcp-gateway: a script was not loaded: ${error}`);
        one.dispatchEvent(new Event("error"));
      }
    };
    const runInTurn = async (one: HTMLScriptElement): Promise<void> => {
      const ready = modules.get(one);
      if (ready) return runModule(one, ready);
      const text = texts.get(one);
      const url = one.getAttribute(SOURCE);
      if (url !== null && outside(url)) return void (await runOutside(one, url));
      try {
        run(one, text ? await text : one.textContent);
      } catch (error) {
        console.error(`webmcp-gateway: a script was not loaded: ${error}`);
        one.dispatchEvent(new Event("error"));
      }
    };
    for (const one of all) if (!later.includes(one)) await runInTurn(one);
    enterState("interactive");
    document.write = () => undefined;
    for (const one of later) {
      if (!isModule(one)) await afterModules();
      await runInTurn(one);
    }
    if (later.length) await afterModules();
    Object.assign(document, { write, writeln });
    document.dispatchEvent(new Event("DOMContentLoaded", { bubbles: true }));
    enterState("complete");
    dispatchEvent(new Event("load"));
    if (!(await parsed)) return;
    // A document that the page writes anew has its own events.
    for (const type of types) removeEventListener(type, hideEvent, true);
    Reflect.deleteProperty(document, "readyState");
  }
  void start();
}
