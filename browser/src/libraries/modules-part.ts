/**
 * Modules of the backend with their imports and import maps, and `import()` of names that are known only at run time: a
 * separate script after the runtime, which uses only `fetch`.
 */

import { IMPORT, OWN, PACKED, type Importing } from "../view/page/part-keys";
import { createModuleGraph, type PackedModules } from "./module-graph";
import { rewriteLocation } from "./location-reads";
import { replaceImportCalls } from "./module-code";

const graph = createModuleGraph(() => document.baseURI, () => (window as { [PACKED]?: PackedModules })[PACKED]);
const IMPORTS = /\b(?:import|export)\b/;
/** Elements whose module this part runs: the event of the runtime does not count, */
const owners = new WeakSet<EventTarget>();
/** but its own. */
const ours = new WeakSet<Event>();

const isModule = ({ type }: HTMLScriptElement): boolean => /^\s*module\s*$/i.test(type);

async function prepare(url: string, code: string | undefined, integrity: string, isInline = code !== undefined): Promise<() => void> {
  const run = await graph.prepare(url, code, { integrity, isInline });
  return () => {
    try {
      run()?.catch(reportError);
    } catch (error) {
      reportError(error);
    }
  };
}

function addMap(script: HTMLScriptElement): void {
  try {
    graph.addMap(script.textContent);
  } catch (error) {
    reportError(new SyntaxError(`Failed to parse import map: ${(error as Error).message}`));
  }
}

const importing: Importing = Object.assign(
  (base: string) => (specifier: unknown, options?: unknown) => (async () => graph.load(String(specifier), base || document.baseURI, options))(),
  {
    prepare,
    readMaps() {
      document.querySelectorAll<HTMLScriptElement>("script[type=importmap]").forEach(addMap);
      document.querySelectorAll<HTMLLinkElement>("link[rel~=modulepreload][href]").forEach(({ href }) => graph.preload(href));
    },
    classic: (code: string, base: string) => replaceImportCalls(code, `${IMPORT}(${JSON.stringify(base)})`),
    ownReads(code: string) {
      if (code.includes(`${OWN}(`)) return code; // it is rewritten already
      const asScript = rewriteLocation({ code, kind: "script" });
      const own = asScript === null ? rewriteLocation({ code, kind: "module" }) : asScript;
      return own === undefined ? code : own;
    },
  },
);

/** Runs a module script that a script of the page inserts; `owner` is the element with its URL, whose text this is. */
function runInserted(script: HTMLScriptElement, owner: HTMLScriptElement | null, insert: () => unknown): unknown {
  const text = script.textContent;
  const { type } = script;
  // It counts as run, and is left as it was.
  script.type = "";
  script.text = ";";
  const result = insert();
  script.type = type;
  script.text = text;
  if (owner) owners.add(owner);
  const ready = owner ? prepare(owner.src, text, "", false) : prepare(document.baseURI, text, "");
  const end = (kind: string): void => {
    const event = new Event(kind);
    ours.add(event);
    owner?.dispatchEvent(event);
  };
  void ready.then((run) => (run(), end("load")), (error: unknown) => {
    console.error(`webmcp-gateway: a script was not loaded: ${String(error)}`);
    end("error");
  });
  return result;
}

/** Before a script is inserted: lets it import. */
function insertScript(script: HTMLScriptElement, insert: () => unknown): unknown {
  const { type } = script;
  if (script.isConnected || script.hasAttribute("src")) return insert();
  if (type === "importmap") addMap(script);
  if (!IMPORTS.test(script.textContent)) return insert();
  // The runtime puts the text of a file inline, beside its element.
  const owner = Object.hasOwn(document, "currentScript") ? (document.currentScript as HTMLScriptElement | null) : null;
  const isOfOwner = owner?.hasAttribute("src") === true && !owners.has(owner) && script.attributes.length <= 1;
  if (isModule(script)) return runInserted(script, isOfOwner ? owner : null, insert);
  if (!type || /^\s*(text|application)\/(x-)?(java|ecma)script\s*$/i.test(type)) script.text = importing.classic(script.textContent, isOfOwner ? owner!.src : "");
  return insert();
}

function watchInsertions(): void {
  const places: [object, string[]][] = [
    [Node.prototype, ["appendChild", "insertBefore", "replaceChild"]],
    ...[Element.prototype, Document.prototype, DocumentFragment.prototype].map((owner): [object, string[]] => [owner, ["append", "prepend", "replaceChildren"]]),
    ...[Element.prototype, CharacterData.prototype].map((owner): [object, string[]] => [owner, ["before", "after", "replaceWith"]]),
  ];
  for (const [owner, names] of places) {
    for (const name of names) {
      const native = Reflect.get(owner, name) as Function;
      const value = { [name](this: unknown, ...given: unknown[]) {
        const insert = (): unknown => native.apply(this, given);
        const script = given.find((one) => one instanceof HTMLScriptElement);
        return script ? insertScript(script as HTMLScriptElement, insert) : insert();
      } }[name]!;
      Object.defineProperty(value, "length", { configurable: true, value: native.length });
      Object.defineProperty(owner, name, { configurable: true, enumerable: true, writable: true, value });
    }
  }
  for (const kind of ["load", "error"]) {
    // Before any listener of the page; load events do not reach the window.
    document.addEventListener(kind, (event) => {
      if (event.target && !event.isTrusted && owners.has(event.target) && !ours.has(event)) event.stopImmediatePropagation();
    }, true);
  }
}

Object.defineProperty(window, IMPORT, { configurable: true, value: importing });
if (window.parent !== window) watchInsertions();
