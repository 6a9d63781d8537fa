/** The modules of an app that do not run in one sequence: each runs when its script does, or is imported. */
import type { OutputChunk } from "@rollup/wasm-node";
import { IMPORT, PACKED } from "../view/page/part-keys";

/** Module evaluation as in a browser (ECMA-262, 16.2.1.6), for modules that rollup wrote in SystemJS format. */
const LINKING = `
const parts = new Map(), linked = new Map();
const elsewhere = (url, id) => import(id);
const part = (name, url, needs, declare) => parts.set(name, { url, needs, declare });
const link = (name) => {
  const known = linked.get(name);
  if (known) return known;
  const { url, needs, declare } = parts.get(name);
  const self = { names: Object.create(null, { [Symbol.toStringTag]: { value: "Module" } }), heard: [], needs: [] };
  linked.set(name, self);
  const say = (key, value) => {
    if (typeof key === "object") Object.assign(self.names, key);
    else self.names[key] = value;
    for (const hear of self.heard) hear(self.names);
    return value;
  };
  const later = async (id) => (await 0, parts.has(id) ? (await run(link(id)), link(id).names) : elsewhere(url, id));
  const { setters, execute } = declare(say, { import: later, meta: {} });
  self.execute = execute;
  needs.forEach((id, at) => {
    const need = link(id);
    self.needs.push(need);
    if (!setters[at]) return;
    need.heard.push(setters[at]);
    setters[at](need.names);
  });
  return self;
};
const run = (self) => {
  if (self.failed) throw self.failed.error;
  if (self.begun) return self.done;
  self.begun = true;
  try {
    const waits = self.needs.map(run).filter(Boolean);
    self.done = waits.length ? Promise.all(waits).then(() => self.execute()) : self.execute();
  } catch (error) {
    self.failed = { error };
    throw error;
  }
  return self.done;
};
`;

/** Has other modules fetched, and lets them import those that are linked here. */
const ELSEWHERE = `
const urls = new Map([...parts].map(([name, { url }]) => [url, name]));
globalThis.${PACKED} = { map: MAP, has: (url) => urls.has(url), run: async (url) => (await run(link(urls.get(url))), link(urls.get(url)).names) };
`;

/** The place of the first script's `run` for the other scripts. */
const SHARED = `globalThis[Symbol.for("webmcp-gateway.modules")]`;

/**
 * The scripts of a page with the modules `chunks`: the first contains them all, and each runs its own.
 *
 * `urlOf` tells the URL of a module; `fetches` is the import map of a page that fetches modules whose names it computes.
 */
export function joinChunks(chunks: readonly OutputChunk[], own: readonly string[], urlOf: (id: string) => string, fetches?: object): string[] {
  const linking = fetches ? LINKING.replace("import(id);", `globalThis.${IMPORT}?.(url)(id, { with: { type: "any" } }) ?? import(id);`) : LINKING;
  const parts = chunks.map(({ fileName, facadeModuleId, code }) => code.replace("System.register(", () => `part(${nameOf(fileName)}, ${JSON.stringify(fetches ? urlOf(facadeModuleId!) : "")}, `));
  if (fetches) parts.push(ELSEWHERE.replace("MAP", () => JSON.stringify(JSON.stringify(fetches))));
  const shared = own.length > 1 ? `${SHARED} = (name) => run(link(name));\n` : "";
  return own.map((fileName, at) =>
    at > 0 ? `await ${SHARED}(${nameOf(fileName)});` : `${linking}${parts.join("\n")}\n${shared}await run(link(${nameOf(fileName)}));\n`,
  );
}

function nameOf(fileName: string): string {
  return JSON.stringify(`./${fileName}`);
}
