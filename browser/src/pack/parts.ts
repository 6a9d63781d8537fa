/** The parts of an app that `import()` loads later, in one script with the others: each runs when it is asked for. */
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
  const later = async (id) => (await 0, await run(link(id)), link(id).names);
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

/** One script of the `chunks`, of which the first is the page's own. */
export function joined(chunks: readonly OutputChunk[]): string {
  const parts = chunks.map(({ fileName, code }) =>
    code.replace("System.register(", () => `part(${JSON.stringify(`./${fileName}`)}, `),
  );
  return `${LINKING}${parts.join("\n")}\nawait run(link(${JSON.stringify(`./${chunks[0]?.fileName}`)}));\n`;
}
