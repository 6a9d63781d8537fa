/** The import maps of a page (HTML, 8.1.5.1): specifiers of modules become URLs. */

type Names = { [specifier: string]: string | null };

export interface ImportMap {
  imports: Names;
  scopes: [prefix: string, names: Names][];
  integrity: { [url: string]: string };
}

export const NO_MAP = (): ImportMap => ({ imports: {}, scopes: [], integrity: {} });

const isPath = (specifier: string): boolean => /^\.{0,2}\//.test(specifier);
const absolute = (specifier: string, base: string): string | undefined => (isPath(specifier) ? URL.parse(specifier, base) : URL.parse(specifier))?.href;
const entriesOf = (value: unknown): [string, unknown][] => (typeof value === "object" && value && !Array.isArray(value) ? Object.entries(value) : []);

function namesOf(value: unknown, base: string): Names {
  const names: Names = {};
  for (const [name, to] of entriesOf(value)) {
    const address = typeof to === "string" ? (absolute(to, base) ?? null) : null;
    if (name) names[absolute(name, base) ?? name] = name.endsWith("/") && !address?.endsWith("/") ? null : address;
  }
  return names;
}

/** Adds the text of a further map to `map`: the first entry of a name counts. Throws for what is no map. */
export function addToMap(map: ImportMap, text: string, base: string): void {
  const { imports, scopes, integrity } = JSON.parse(text) as { [name: string]: unknown };
  map.imports = { ...namesOf(imports, base), ...map.imports };
  for (const [prefix, names] of entriesOf(scopes)) {
    const at = URL.parse(prefix, base)?.href;
    if (at === undefined) continue;
    const known = map.scopes.find(([one]) => one === at);
    if (known) known[1] = { ...namesOf(names, base), ...known[1] };
    else map.scopes.push([at, namesOf(names, base)]);
  }
  // The most specific scope counts.
  map.scopes.sort(([one], [other]) => (one < other ? 1 : -1));
  for (const [url, digest] of entriesOf(integrity)) {
    const at = absolute(url, base);
    if (at !== undefined && typeof digest === "string") map.integrity[at] ??= digest;
  }
}

/** The URL of `specifier` by these names; undefined if none of them applies. Throws a TypeError for one that leads nowhere. */
function mapped(names: Names, specifier: string, isBareOrSpecial: boolean): string | undefined {
  const longestFirst = Object.keys(names).sort((one, other) => (one < other ? 1 : -1));
  for (const name of longestFirst) {
    const address = names[name]!;
    const isPrefix = name.endsWith("/") && specifier.startsWith(name) && isBareOrSpecial;
    if (name !== specifier && !isPrefix) continue;
    const url = address === null ? undefined : name === specifier ? address : URL.parse(specifier.slice(name.length), address)?.href;
    if (url === undefined || (isPrefix && name !== specifier && !url.startsWith(address!))) throw new TypeError(`Failed to resolve module specifier "${specifier}"`);
    return url;
  }
  return undefined;
}

/** The URL of the module `specifier` for one at `base` (HTML, "resolve a module specifier"). Throws a TypeError. */
export function resolveModule({ imports, scopes }: ImportMap, specifier: string, base: string): string {
  const url = absolute(specifier, base);
  const name = url ?? specifier;
  const isBareOrSpecial = url === undefined || isPath(specifier) || /^(https?|wss?|ftp|file):/.test(url);
  for (const [prefix, names] of scopes) {
    if (prefix !== base && !(prefix.endsWith("/") && base.startsWith(prefix))) continue;
    const found = mapped(names, name, isBareOrSpecial);
    if (found !== undefined) return found;
  }
  const found = mapped(imports, name, isBareOrSpecial) ?? url;
  if (found === undefined) throw new TypeError(`Failed to resolve module specifier "${specifier}". Relative references must start with either "/", "./", or "../".`);
  return found;
}
