/**
 * Links the modules of a page into its scripts, since a packed page has no other file to load.
 *
 * Run by `node bundle.mjs --lines`: reads a `Job` as JSON from each line, and writes `Bundled` as JSON in a line.
 */
import { isUtf8 } from "node:buffer";
import { existsSync, readdirSync, readFileSync, realpathSync, statSync } from "node:fs";
import { dirname, join, relative, sep } from "node:path";
import { createInterface } from "node:readline";
import { type ProgramNode, rollup, type Plugin } from "@rollup/wasm-node";
import { joinChunks } from "./parts";

export interface Job {
  /** The folder of the app; `base` is its path on the app's site. */
  root: string;
  base: string;
  /** The absolute base URL of the app's own URLs. */
  home: string;
  /** The module scripts of the page, in order: files, or inline code. */
  scripts: { file: string; code?: string; line?: number; column?: number }[];
  /** The page's import map, with addresses that are relative to `home`. */
  imports: Record<string, string>;
  scopes: Record<string, Record<string, string>>;
  /** The files that were taken from other sites, by their URLs. */
  vendored?: Record<string, string>;
  /** Whether the page may load other modules of the folder, also if none of these imports one. */
  fetches?: boolean;
}

export interface Bundled {
  /** The linked code of each script. */
  codes: string[];
  /** Style sheets, as files of `root`, that the linked modules would load. */
  styles: string[];
  problems: { file: string; line: number; column: number; message: string }[];
  /** The URLs of imports of other sites that were not taken from there. */
  foreign: string[];
}

interface Node {
  type: string;
  start: number;
  source?: { type: string; value?: unknown } | null;
  [key: string]: unknown;
}

const INLINE = "\0inline:";
/** The id of a module that is not there: it throws where a browser would not run what imports it. */
const LOST = "\0lost:";
/** Vite's list of the files that belong to a lazily loaded part of the app. */
const VITE_FILES = /(__vite__mapDeps\s*=\s*\([^]*?m\.f\s*=\s*)(\[[^\]]*\])([^]*?=>\s*)i\.map\(\s*i\s*=>\s*d\[i\]\s*\)/g;

/** As in `gateway/apps/scripts.py` for scripts that are not linked. */
const WORKER_FILE =
  "starts a worker of another file, which the page fetches for it; most hosts block workers but the gateway's own, " +
  "so let the page go on without";

const NO_UTF_8 = "this is not UTF-8, as modules are: browsers replace such characters; save it as UTF-8";

/** Code that may start a worker, or import a file whose name is not written there. */
const TO_READ = /Worker\b|\bimport\s*(?:\/|\((?!\s*(["'`])[^"'`$\\]*\1\s*[,)]))/;

class UnpackableError extends Error {}

/** Links the modules; those without anything to report are parsed once, by the linker. */
async function bundle(job: Job): Promise<Bundled> {
  return (await link(job, (code) => TO_READ.test(code))) ?? (await link(job, () => true))!;
}

/** Links the modules, and parses those that `reads` before; undefined if there is something to report in another one. */
async function link(job: Job, reads: (code: string) => boolean): Promise<Bundled | undefined> {
  let unread = false;
  let missed = false;
  let computed: "path" | "unknown" | undefined;
  const root = realpathSync(job.root);
  const bundled: Bundled = { codes: [], styles: [], problems: [], foreign: [] };
  const vendored = new Map(Object.entries(job.vendored ?? {}).map(([url, file]) => [url, realpathSync(file)]));
  const origins = new Map(Array.from(vendored, ([url, file]) => [file, url]));
  const displayName = (file: string): string => relative(root, file).split(sep).join("/");
  const inline = (id: string) => (id.startsWith(INLINE) ? job.scripts[Number(id.slice(INLINE.length))] : undefined);

  const urlOf = (id: string): string => origins.get(id) ?? new URL(displayName(inline(id)?.file ?? id), job.home).href;

  /** The file of `source`, imported by the file or inline script `importer`. */
  function resolveFile(source: string, importer: string): string {
    const origin = origins.get(importer);
    if (origin !== undefined) return resolveElsewhere(mapImport(namesIn(job, origin), source) ?? source, source, origin);
    const writer = inline(importer)?.file ?? importer;
    const beside = dirname(writer);
    const mapped = pathWithin(job.home, mapImport(namesIn(job, new URL(displayName(writer), job.home).href), source)) ?? source;
    if (/^(data|blob):/i.test(mapped)) throw new UnpackableError(`imports a ${mapped.slice(0, 5)} URL, which hosts block: save it in the app's folder`);
    if (/^([a-z][a-z0-9+.-]*:|\/\/)/i.test(mapped)) return resolveElsewhere(mapped, source, job.home);
    if (!/^\.{0,2}\//.test(mapped)) {
      throw new UnpackableError(`imports ${source}, which is no path: build the app with a bundler, and pack what it wrote`);
    }
    const path = decodeURIComponent(mapped.replace(/[?#].*$/, ""));
    const inside = path.startsWith(job.base) ? path.slice(job.base.length) : path;
    const file = path.startsWith("/") ? join(root, inside) : join(beside, path);
    if (!existsSync(file) || !statSync(file).isFile()) {
      throw new UnpackableError(`imports ${source}: there is no such file in the app's folder`);
    }
    const real = realpathSync(file);
    if (!real.startsWith(root + sep)) throw new UnpackableError(`imports ${source}, which lies outside of the app's folder`);
    if (!/\.([cm]?js|json)$/i.test(real)) {
      throw new UnpackableError(`imports ${source}, which is not JavaScript: build the app with a bundler, and pack what it wrote`);
    }
    return real;
  }

  /** The file that was taken from the URL `mapped`, as a module at `base` names it. */
  function resolveElsewhere(mapped: string, source: string, base: string): string {
    if (!/^(\.{0,2}\/|[a-z][a-z0-9+.-]*:)/i.test(mapped)) throw new UnpackableError(`imports ${source}, which is no path`);
    const url = new URL(mapped, base);
    url.hash = "";
    const file = vendored.get(url.href);
    if (file !== undefined) return file;
    if (/^https?:$/.test(url.protocol) && !bundled.foreign.includes(url.href)) bundled.foreign.push(url.href);
    throw new UnpackableError(
      `imports ${source} of another site, which hosts block: save it in the app's folder, or take it in once by \`pack --vendor\``,
    );
  }

  function report(id: string, code: string, offset: number, message: string): void {
    const script = inline(id);
    const before = code.slice(0, offset);
    const line = before.split("\n").length;
    const column = offset - before.lastIndexOf("\n");
    bundled.problems.push({
      file: displayName(script?.file ?? id),
      line: line + (script?.line ?? 1) - 1,
      column: line === 1 ? column + (script?.column ?? 1) - 1 : column,
      message,
    });
  }

  const linking: Plugin = {
    name: "webmcp-gateway",
    resolveId(source, importer) {
      if (importer === undefined) return source;
      try {
        return resolveFile(source, importer);
      } catch (error) {
        if (!(error instanceof UnpackableError)) throw error;
        missed = true;
        return `${LOST}${source}`;
      }
    },
    load(id) {
      if (id.startsWith(LOST)) return lost(`Failed to fetch dynamically imported module: ${id.slice(LOST.length)}`, "TypeError");
      const script = inline(id);
      if (script) return script.code ?? "";
      const bytes = readFileSync(id);
      const code = new TextDecoder().decode(bytes);
      if (!isUtf8(bytes)) report(id, code, code.indexOf("\ufffd"), NO_UTF_8);
      if (!id.endsWith(".json")) return code;
      try {
        JSON.parse(code);
        return `export default ${code}`;
      } catch (error) {
        report(id, code, 0, `is not JSON: ${(error as Error).message}`);
        return lost(`${displayName(id)} is not JSON`, "SyntaxError");
      }
    },
    transform(code, id) {
      if (!reads(code)) {
        unread = true;
        return { code: withoutPreloads(code, id), map: null };
      }
      let tree: ProgramNode;
      try {
        tree = this.parse(code);
      } catch (error) {
        const { pos = 0, message } = error as { pos?: number; message: string };
        report(id, code, pos, firstLine(message));
        return { code: lost(`${displayName(inline(id)?.file ?? id)}: ${firstLine(message)}`, "SyntaxError"), map: null };
      }
      for (const node of imports(tree)) {
        if (node.type === "NewExpression") {
          if (isWorkerOfFile(node)) report(id, code, node.start, WORKER_FILE);
          continue;
        }
        const source = node.source;
        if (!source) continue;
        const name = nameOf(source);
        if (name === undefined) {
          if (computed !== "path") computed = isPath(source) ? "path" : "unknown";
          continue;
        }
        try {
          resolveFile(name, id);
        } catch (error) {
          if (!(error instanceof UnpackableError)) throw error;
          report(id, code, node.start, error.message);
        }
      }
      return { code: withoutPreloads(code, id), map: null };
    },
    resolveImportMeta(property, { moduleId }) {
      const href = urlOf(moduleId);
      if (property === "url") return JSON.stringify(href);
      return property === "resolve" ? resolver(namesIn(job, href), href) : null;
    },
  };

  /** Vite's loader would look for style sheets beside the page: they are in the page, and nothing is left to load. */
  function withoutPreloads(code: string, id: string): string {
    return code.replace(VITE_FILES, (_, start: string, list: string, middle: string) => {
      for (const name of JSON.parse(list) as string[]) {
        if (!name.endsWith(".css")) continue;
        const file = [join(root, name), join(dirname(id), name)].find(existsSync);
        if (file && !bundled.styles.includes(displayName(file))) bundled.styles.push(displayName(file));
      }
      return `${start}[]${middle}[]`;
    });
  }

  /** Reports imported names that a module of the app does not export; a browser would run none of both. */
  function reportShimmed(_: unknown, { code, binding, exporter }: { [name in "code" | "binding" | "exporter"]?: string | undefined }): void {
    if (code !== "SHIMMED_EXPORT" || !exporter || exporter.startsWith(LOST)) return;
    report(exporter, "", 0, `does not export ${binding}, which another module imports`);
  }

  try {
    const entries = job.scripts.map(entry);
    const linked = await rollup({ input: entries, plugins: [linking], treeshake: false, shimMissingExports: true, onLog: reportShimmed });
    const { output } = await linked.generate({ format: "es" });
    bundled.codes = [output[0].code];
    const fetches = job.fetches || computed === "path" || (computed === "unknown" && hasMoreModules(root, linked.watchFiles));
    if (output.length > 1 || entries.length > 1 || fetches) {
      const ids = new Map<string | null, string>();
      const named = ({ facadeModuleId: id }: { facadeModuleId: string | null }) => ids.get(id) ?? (ids.set(id, `webmcp-gateway-${ids.size}.js`), ids.get(id)!);
      const apart = await linked.generate({ format: "system", preserveModules: true, entryFileNames: named, hoistTransitiveImports: false });
      const chunks = apart.output.filter((each) => each.type === "chunk");
      bundled.codes = joinChunks(chunks, entries.map((id) => chunks.find((each) => each.facadeModuleId === id)!.fileName), urlOf, fetches ? { imports: job.imports, scopes: job.scopes } : undefined);
    }
  } catch (error) {
    if (unread) return undefined;
    const { id, loc, message } = error as { id?: string; loc?: { file?: string; line: number; column: number }; message: string };
    const script = inline(id ?? "");
    const file = displayName(script?.file ?? loc?.file ?? id ?? job.scripts[0]?.file ?? "");
    const at = { line: (loc?.line ?? 1) + (script?.line ?? 1) - 1, column: (loc?.column ?? 0) + 1 };
    if (bundled.problems.length === 0) bundled.problems.push({ file, ...at, message: firstLine(message) });
  }
  return missed && unread ? undefined : bundled;
}

/** The code of a module that cannot run. */
function lost(message: string, error: string): string {
  return `throw new ${error}(${JSON.stringify(message)});\nexport default undefined;`;
}

function entry(script: Job["scripts"][number], at: number): string {
  return script.code === undefined ? realpathSync(script.file) : `${INLINE}${at}`;
}

/**
 * The entries of the page's import map that apply to the file at `importer`, with their addresses.
 *
 * Of those that equal a specifier, or end in `/` and begin one, the first applies (HTML, "resolve a module specifier").
 */
function namesIn({ home, imports, scopes }: Job, importer: string): [string, string][] {
  const around = Object.keys(scopes).filter((scope) => {
    const url = URL.canParse(scope, home) ? new URL(scope, home).href : "";
    return importer === url || (url.endsWith("/") && importer.startsWith(url));
  });
  const longestFirst = ([one]: [string, unknown], [other]: [string, unknown]): number => other.length - one.length;
  const maps = around.map((scope): [string, Record<string, string>] => [scope, scopes[scope] ?? {}]).sort(longestFirst);
  const names = [...maps.map(([, map]) => map), imports].flatMap((map) => Object.entries(map).sort(longestFirst));
  return names.flatMap(([name, to]) => (URL.canParse(to, home) ? [[name, new URL(to, home).href]] : []));
}

/** Maps `source` by these entries; undefined if none applies. Its text is also written into pages for `import.meta.resolve`. */
const mapImport = (names: [string, string][], source: string): string | undefined => {
  const [name, to] = names.find(([one]) => one === source || (one.endsWith("/") && source.startsWith(one))) ?? [];
  return name === undefined ? undefined : to + source.slice(name.length);
};

/** `import.meta.resolve` of the file at `base`, for the page. */
function resolver(names: [string, string][], base: string): string {
  return `((name) => {
    const found = (${mapImport})(${JSON.stringify(names)}, (name = String(name)));
    if (found === undefined && !/^(\\.{0,2}\\/|[a-z][a-z0-9+.-]*:)/i.test(name)) throw new TypeError("Failed to resolve module specifier '" + name + "'");
    return new URL(found ?? name, ${JSON.stringify(base)}).href;
  })`;
}

/** The path of an address on the site of `home`, or the address of another site. */
function pathWithin(home: string, address: string | undefined): string | undefined {
  if (address === undefined || !URL.canParse(address, home)) return undefined;
  const url = new URL(address, home);
  return url.origin === new URL(home).origin ? url.pathname : url.href;
}

/** Every node that may refer to another file. */
function* imports(tree: ProgramNode): Generator<Node> {
  const waiting: unknown[] = [tree];
  while (waiting.length > 0) {
    const node = waiting.pop();
    if (Array.isArray(node)) {
      waiting.push(...node);
    } else if (typeof node === "object" && node !== null && "type" in node) {
      if (/^(Import(Declaration|Expression)|Export(Named|All)Declaration|NewExpression)$/.test(String(node.type))) yield node as Node;
      waiting.push(...Object.values(node));
    }
  }
}

/** The value of a literal, or a template without expressions. */
function nameOf(source: NonNullable<Node["source"]>): string | undefined {
  if (source.type === "Literal") return String(source.value);
  const { quasis } = source as unknown as { quasis?: { value: { cooked: string } }[] };
  return source.type === "TemplateLiteral" && quasis?.length === 1 ? quasis[0]?.value.cooked : undefined;
}

/** Whether a name that is composed at run time contains a part of a path; the value of a variable is unknown, and may never be used. */
function isPath(source: { [key: string]: unknown }): boolean {
  const { left, right, quasis, value } = source as { left?: Node; right?: Node; quasis?: { value: { cooked: string } }[]; value?: unknown };
  if (source["type"] === "BinaryExpression") return isPath(left!) || isPath(right!);
  return quasis ? quasis.some((one) => one.value.cooked) : Boolean(value);
}

/** Whether the folder has scripts beside those that are linked, which may be imported. */
function hasMoreModules(root: string, linked: string[]): boolean {
  return readdirSync(root, { recursive: true, withFileTypes: true }).some((one) => one.isFile() && /\.m?js$/.test(one.name) && !linked.includes(join(one.parentPath, one.name)));
}

/** Whether a `new …` starts a worker with a literal script URL. */
function isWorkerOfFile(node: Node): boolean {
  const [script] = argumentsOf(node, /^(Shared)?Worker$/);
  const named = script?.type === "NewExpression" ? argumentsOf(script, /^URL$/)[0] : script;
  const name = named && nameOf(named as NonNullable<Node["source"]>);
  return typeof name === "string" && !/^(data|blob):/.test(name);
}

/** The arguments of a `new` of that name. */
function argumentsOf(node: Node, callee: RegExp): Node[] {
  const { name } = node["callee"] as { name?: string };
  return name !== undefined && callee.test(name) ? (node["arguments"] as Node[]) : [];
}

function firstLine(message: string): string {
  // Without the position, which is reported separately.
  return message.replace(/^(\[plugin [^\]]*\]\s*)?(\S+ \(\d+:\d+\): )?/, "").split("\n")[0] ?? message;
}

/** Answers each line of standard input with a line: the start of this program takes longer than most jobs. */
for await (const line of process.argv[2] === "--lines" ? createInterface({ input: process.stdin }) : []) {
  const failed = (error: unknown): Bundled => ({ codes: [], styles: [], foreign: [], problems: [{ file: "", line: 1, column: 1, message: String(error) }] });
  process.stdout.write(`${JSON.stringify(await bundle(JSON.parse(line) as Job).catch(failed))}\n`);
}
