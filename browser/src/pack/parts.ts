/** The modules of an app where not all run one after the other: each runs when its script does, or is asked for. */
import type { OutputChunk } from "@rollup/wasm-node";

/** What a browser does with modules (ECMA-262, 16.2.1.6), for those that rollup wrote in the format of SystemJS. */
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

/** Where the first script of a page has `run` for the others. */
const SHARED = `globalThis[Symbol.for("webmcp-gateway.modules")]`;

/** The scripts of a page whose modules are the `chunks`: the first holds them all, and each runs the one of its own. */
export function joined(chunks: readonly OutputChunk[], own: readonly string[]): string[] {
  const parts = chunks.map(({ fileName, code }) => code.replace("System.register(", () => `part(${nameOf(fileName)}, `));
  const shared = own.length > 1 ? `${SHARED} = (name) => run(link(name));\n` : "";
  return own.map((fileName, at) =>
    at > 0 ? `await ${SHARED}(${nameOf(fileName)});` : `${LINKING}${parts.join("\n")}\n${shared}await run(link(${nameOf(fileName)}));\n`,
  );
}

function nameOf(fileName: string): string {
  return JSON.stringify(`./${fileName}`);
}
