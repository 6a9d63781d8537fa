/** The modules of an app that do not run in one sequence: each runs when its script does, or is imported. */
import type { OutputChunk } from "@rollup/wasm-node";

/** Module evaluation as in a browser (ECMA-262, 16.2.1.6), for modules that rollup wrote in SystemJS format. */
const LINKING = `
const parts = new Map(), linked = new Map();
const part = (name, needs, declare) => parts.set(name, { needs, declare });
const link = (name) => {
  const known = linked.get(name);
  if (known) return known;
  const { needs, declare } = parts.get(name);
  const self = { names: Object.create(null, { [Symbol.toStringTag]: { value: "Module" } }), heard: [], needs: [] };
  linked.set(name, self);
  const say = (key, value) => {
    if (typeof key === "object") Object.assign(self.names, key);
    else self.names[key] = value;
    for (const hear of self.heard) hear(self.names);
    return value;
  };
  const later = async (id) => (await 0, parts.has(id) ? (await run(link(id)), link(id).names) : import(id));
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

/** The place of the first script's `run` for the other scripts. */
const SHARED = `globalThis[Symbol.for("webmcp-gateway.modules")]`;

/** The scripts of a page with the modules `chunks`: the first contains them all, and each runs its own. */
export function joinChunks(chunks: readonly OutputChunk[], own: readonly string[]): string[] {
  const parts = chunks.map(({ fileName, code }) => code.replace("System.register(", () => `part(${nameOf(fileName)}, `));
  const shared = own.length > 1 ? `${SHARED} = (name) => run(link(name));\n` : "";
  return own.map((fileName, at) =>
    at > 0 ? `await ${SHARED}(${nameOf(fileName)});` : `${LINKING}${parts.join("\n")}\n${shared}await run(link(${nameOf(fileName)}));\n`,
  );
}

function nameOf(fileName: string): string {
  return JSON.stringify(`./${fileName}`);
}
