/** Modules of the backend, or of the app's folder, in a page: fetched, linked and evaluated as a browser does it (ECMA-262, 16.2.1). */

import { fetchFile, readText, type Outside } from "../view/page/page-files";
import { addToMap, NO_MAP, resolveModule } from "./import-map";
import { compileModule, type CompiledModule } from "./module-code";

type Namespace = { [name: string]: unknown };
type Reads = { [name: string]: () => unknown };
type Body = (...given: unknown[]) => Generator | AsyncGenerator;

interface Module {
  url: string;
  names: Namespace;
  /** Settled once its code is there. */
  loaded: Promise<void>;
  compiled?: CompiledModule;
  body?: Body;
  steps?: Generator | AsyncGenerator;
  reads: Reads;
  needs: Module[];
  /** The modules that it needs: of one that was missing, a new attempt. */
  find?: () => Module[];
  state: "new" | "linked" | "evaluated";
  failed?: { error: unknown };
  done?: Promise<unknown> | undefined;
}

/** The modules that the packer has linked, by their URLs, and the page's import map: `run` evaluates one. */
export interface PackedModules {
  map: string;
  has(url: string): boolean;
  run(url: string): Promise<Namespace>;
}

export interface ModuleGraph {
  /** The namespace of an evaluated module, imported by code at `base`. */
  load(specifier: string, base: string, options?: unknown): Promise<Namespace>;
  /**
   * Fetches the module of a script, and all that it needs; the returned function evaluates it. `code` is its text if it
   * is known; an inline one is no module that others import.
   */
  prepare(url: string, code?: string, options?: { integrity?: string; isInline?: boolean }): Promise<() => Promise<unknown> | undefined>;
  addMap(text: string): void;
  preload(url: string): void;
}

/** The place at which an inline script leaves the function of a module. */
const PLACE = "webmcpGatewayModule";
const NOT_JAVASCRIPT = /^(json|css)$/;
/** The packer's linker drops the attributes of an `import()`: its type is then that of the file. */
const ANY = "any";

/** Runs code inline, as content policies permit it. */
function evaluate(code: string, url: string): Body | undefined {
  const script = document.createElement("script");
  const shared = globalThis as { [PLACE]?: Body };
  script.text = `globalThis.${PLACE}=${code}\n//# sourceURL=${url.replace(/\s/g, "%20")}`;
  document.head.append(script);
  script.remove();
  const { [PLACE]: body } = shared;
  delete shared[PLACE];
  return body;
}

/** `base` returns the URL of the page's base. */
export function createModuleGraph(base: () => string, packed: () => PackedModules | undefined): ModuleGraph {
  const modules = new Map<string, Module>();
  const map = NO_MAP();

  /** Errors of files that were not loaded. */
  const missing = new WeakSet<object>();

  function failure(url: string, why = ""): TypeError {
    const error = new TypeError(`Failed to fetch dynamically imported module: ${url}${why}`);
    missing.add(error);
    return error;
  }

  function create(url: string, load: (module: Module) => Promise<void>): Module {
    const names = Object.create(null, { [Symbol.toStringTag]: { value: "Module" } }) as Namespace;
    const module: Module = { url, names, loaded: Promise.resolve(), reads: {}, needs: [], state: "new" };
    module.loaded = load(module);
    module.loaded.catch(() => undefined); // reported by the script that needs it
    return module;
  }

  /** A module whose names have these values from the start. */
  function fixed(module: Module, values: Namespace): void {
    module.reads = Object.fromEntries(Object.entries(values).map(([name, value]) => [name, () => value]));
    module.compiled = { code: "", needs: [], passes: new Map(), stars: [], isAsync: false };
  }

  let isMapped = false;
  function resolve(specifier: string, from: string): string {
    const found = packed();
    if (found && !isMapped) addToMap(map, found.map, base());
    isMapped = true;
    return resolveModule(map, specifier, from);
  }

  async function loadCode(module: Module, type: string, integrity: string, given?: string): Promise<void> {
    const { url } = module;
    if (packed()?.has(url)) return fixed(module, await packed()!.run(url));
    if (given === undefined && (window as Outside).webmcpGatewayOut?.(url)) return fixed(module, (await import(/* @vite-ignore */ url)) as Namespace);
    let code = given;
    if (code === undefined) {
      const file = await fetchFile(fetch, url, integrity || (map.integrity[url] ?? "")).catch(() => {
        throw failure(url);
      });
      if (type === "json" || (type === ANY && /\bjson\b/.test(file.type))) return fixed(module, { default: JSON.parse(await file.text()) as unknown });
      if (type === "css") {
        const sheet = new CSSStyleSheet({ baseURL: url });
        sheet.replaceSync(await file.text());
        return fixed(module, { default: sheet });
      }
      code = await readText(file, { integrity: "", noModule: false, type: "module" }).catch((kind: unknown) => {
        throw failure(url, `, which is ${String(kind)}`);
      });
    }
    const compiled = compileModule(code);
    const found = compiled.needs.map((one) => [resolve(one.specifier, url), one.type] as const);
    module.find = () => found.map(([at, kind]) => wanted(at, kind));
    module.body = evaluate(compiled.code, url)!;
    if (!module.body) throw new SyntaxError(`${url} was not run`);
    module.compiled = compiled;
  }

  function wanted(url: string, type = "", integrity = "", code?: string): Module {
    const key = NOT_JAVASCRIPT.test(type) ? `${type} ${url}` : url;
    const known = modules.get(key);
    if (known) return known;
    const made = create(url, (module) => loadCode(module, type, integrity, code));
    modules.set(key, made);
    // Browsers keep a failed fetch; a later attempt of an `import()` begins anew in Chromium.
    made.loaded.catch(() => modules.delete(key));
    return made;
  }

  /** Waits until `root`, and all that it needs, have their code. */
  async function complete(root: Module): Promise<void> {
    const seen = new Set<Module>();
    const visit = async (module: Module): Promise<void> => {
      if (seen.has(module)) return;
      seen.add(module);
      await module.loaded;
      if (module.state === "new") module.needs = module.find?.() ?? [];
      await Promise.all(module.needs.map(visit));
    };
    await visit(root);
  }

  /** The names that a module exports (ECMA-262, GetExportedNames). */
  function exportedNames(module: Module, seen: Set<Module>): Set<string> {
    if (seen.has(module)) return new Set();
    seen.add(module);
    const { passes, stars } = module.compiled!;
    const found = new Set([...Object.keys(module.reads), ...passes.keys()]);
    for (const star of stars) for (const name of exportedNames(module.needs[star]!, seen)) if (name !== "default") found.add(name);
    return found;
  }

  /** The module and its local name that an exported name leads to; null if it is ambiguous, undefined if there is none. */
  function resolveExport(module: Module, name: string, seen: Set<string>): { from: Module; name: string } | null | undefined {
    const here = `${name} ${module.url}`;
    if (seen.has(here)) return undefined;
    seen.add(here);
    if (Object.hasOwn(module.reads, name)) return { from: module, name };
    const { passes, stars } = module.compiled!;
    const passed = passes.get(name);
    if (passed) {
      const from = module.needs[passed.from]!;
      return passed.name === "*" ? { from, name: "*" } : resolveExport(from, passed.name, seen);
    }
    if (name === "default") return undefined;
    let found: { from: Module; name: string } | undefined;
    for (const star of stars) {
      const one = resolveExport(module.needs[star]!, name, seen);
      if (one === null) return null;
      if (!one) continue;
      if (found && (found.from !== one.from || found.name !== one.name)) return null;
      found = one;
    }
    return found;
  }

  function readOf({ from, name }: { from: Module; name: string }): () => unknown {
    return name === "*" ? () => from.names : from.reads[name]!;
  }

  /** Creates the bindings of all modules behind `root`. Throws a SyntaxError for a name that is not exported. */
  function link(root: Module): void {
    const fresh: Module[] = [];
    const visit = (module: Module): void => {
      if (module.state !== "new" || fresh.includes(module)) return;
      fresh.push(module);
      module.needs.forEach(visit);
    };
    visit(root);
    for (const module of fresh) {
      if (!module.body || module.steps) continue;
      const { url, body } = module;
      const meta = { __proto__: null, url, resolve: (specifier: unknown) => resolve(String(specifier), url) };
      const load = (specifier: unknown, options?: unknown): Promise<Namespace> => graph.load(String(specifier), url, options);
      const given = [load, meta, (value: unknown) => value, (reads: Reads) => void (module.reads = reads)];
      module.steps = body(...given, ...module.needs.map(({ names }) => names));
      void module.steps.next();
    }
    for (const module of fresh) {
      module.compiled!.needs.forEach(({ names, specifier }, at) => {
        for (const name of names) {
          const found = resolveExport(module.needs[at]!, name, new Set());
          if (!found) throw new SyntaxError(found === null ? `The requested module '${specifier}' contains conflicting star exports for name '${name}'` : `The requested module '${specifier}' does not provide an export named '${name}'`);
        }
      });
    }
    for (const module of fresh) {
      for (const name of [...exportedNames(module, new Set())].sort()) {
        const found = resolveExport(module, name, new Set());
        if (found) Object.defineProperty(module.names, name, { enumerable: true, get: readOf(found) });
      }
      Object.preventExtensions(module.names);
      module.state = "linked";
    }
  }

  /** Evaluates a module after those that it needs; returns a promise only if one of them awaits something. */
  function run(module: Module): Promise<unknown> | undefined {
    if (module.failed) throw module.failed.error;
    if (module.state === "evaluated") return module.done;
    module.state = "evaluated";
    const fail = (error: unknown): never => {
      module.failed = { error };
      throw error;
    };
    try {
      const waits = module.needs.map(run).filter((one) => one !== undefined);
      const evaluate = (): unknown => module.steps?.next();
      if (waits.length) module.done = Promise.all(waits).then(evaluate).catch(fail);
      else {
        const result = evaluate();
        module.done = module.compiled!.isAsync ? (result as Promise<unknown>).catch(fail) : undefined;
      }
    } catch (error) {
      fail(error);
    }
    return module.done;
  }

  const graph: ModuleGraph = {
    async load(specifier, from, options) {
      const { with: attributes } = (options ?? {}) as { with?: { type?: string } };
      const module = wanted(resolve(specifier, from), attributes?.type);
      await complete(module);
      if (module.state === "new") link(module);
      await run(module);
      return module.names;
    },
    async prepare(url, code, { integrity = "", isInline = false } = {}) {
      const module = isInline ? create(url, (made) => loadCode(made, "", "", code)) : wanted(url, "", integrity, code);
      try {
        await complete(module);
        if (module.state === "new") link(module);
      } catch (error) {
        // An element has an error only if a file is missing; others are those of the script (HTML, 8.1.4.2).
        if (missing.has(error as object) || (isInline && !module.compiled)) throw error;
        return () => {
          throw error;
        };
      }
      return () => run(module);
    },
    addMap: (text) => addToMap(map, text, base()),
    preload: (url) => void wanted(url),
  };
  return graph;
}
