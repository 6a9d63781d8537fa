/**
 * Compiles a module into a generator function, since content policies of hosts permit scripts inline only, where nothing
 * can import them.
 *
 * The first step of the generator creates the module's bindings, functions included, and gives its exports as functions
 * that read them; the second evaluates it (ECMA-262, 16.2.1.6). Lines keep their numbers.
 */

import { type Node, Parser } from "acorn";

/** A name of a needed module that is exported; `*` for its namespace. */
export interface PassedName {
  from: number;
  name: string;
}

export interface CompiledModule {
  /** The function's text. Its parameters: `import()`, `import.meta`, a function that returns its argument, one that takes the exports, and a namespace for each of `needs`. */
  code: string;
  needs: { specifier: string; type: string; names: string[] }[];
  /** Exported names of other modules, and modules all of whose names are exported. */
  passes: Map<string, PassedName>;
  stars: number[];
  isAsync: boolean;
}

interface Any extends Node {
  [key: string]: unknown;
}

/** Prefix of our names in a module: no code has it. */
const OUR = "webmcpGateway$";
const IMPORT = `${OUR}import`;
const META = `${OUR}meta`;
/** Returns its argument: as a callee, so that a call has no `this`. */
const PLAIN = `${OUR}plain`;
const EXPORTS = `${OUR}exports`;
const DEFAULT = `${OUR}default`;

const isNode = (value: unknown): value is Any => typeof (value as Any | null)?.type === "string";
const isFunction = ({ type }: Any): boolean => /Function/.test(type);
const nameOf = (node: unknown): string => String((node as Any)["name"] ?? (node as Any)["value"]);

/** The names that a pattern binds. */
function* boundNames(pattern: unknown): Generator<string> {
  if (!isNode(pattern)) return;
  const { type, properties, elements, left, argument, value } = pattern as Any & { properties: Any[]; elements: Any[] };
  if (type === "Identifier") yield nameOf(pattern);
  else if (type === "ObjectPattern") for (const one of properties) yield* boundNames(one);
  else if (type === "ArrayPattern") for (const one of elements) yield* boundNames(one);
  else if (type === "AssignmentPattern") yield* boundNames(left);
  else if (type === "RestElement") yield* boundNames(argument);
  else if (type === "Property") yield* boundNames(value);
}

function* childrenOf(node: Any): Generator<Any> {
  for (const value of Object.values(node)) {
    if (Array.isArray(value)) yield* value.filter(isNode);
    else if (isNode(value)) yield value;
  }
}

/** The names that `var` declares in a function, at any depth. */
function* variables(node: Any): Generator<string> {
  if (node.type === "VariableDeclaration" && node["kind"] === "var") for (const { id } of node["declarations"] as Any[]) yield* boundNames(id);
  for (const child of childrenOf(node)) if (!isFunction(child) && !/^Class|^StaticBlock/.test(child.type)) yield* variables(child);
}

/** The names that statements declare in their block. */
function* declared(statements: Any[]): Generator<string> {
  for (const one of statements) {
    if (one.type === "VariableDeclaration") for (const { id } of one["declarations"] as Any[]) yield* boundNames(id);
    else if (/^(Function|Class)Declaration$/.test(one.type) && one["id"]) yield nameOf(one["id"]);
  }
}

/** The names that a node declares for what is in it. */
function* namesWithin(node: Any): Generator<string> {
  const { type } = node;
  if (isFunction(node)) {
    if (type === "FunctionExpression" && node["id"]) yield nameOf(node["id"]);
    for (const one of node["params"] as Any[]) yield* boundNames(one);
    yield* variables(node["body"] as Any);
  } else if (type === "StaticBlock") {
    for (const one of node["body"] as Any[]) yield* variables(one);
    yield* declared(node["body"] as Any[]);
  } else if (type === "BlockStatement") yield* declared(node["body"] as Any[]);
  else if (type === "SwitchStatement") for (const one of node["cases"] as Any[]) yield* declared(one["consequent"] as Any[]);
  else if (/^For/.test(type)) yield* declared([node["init"], node["left"]].filter(isNode));
  else if (type === "CatchClause") yield* boundNames(node["param"]);
  else if (/^Class/.test(type) && node["id"]) yield nameOf(node["id"]);
}

class Edits {
  readonly #changes: [start: number, end: number, text: string][] = [];
  readonly code: string;

  constructor(code: string) {
    this.code = code;
  }

  replace(start: number, end: number, text: string): void {
    this.#changes.push([start, end, text]);
  }

  /** Removes code, but not its lines. */
  remove(start: number, end: number): void {
    this.replace(start, end, this.code.slice(start, end).replace(/[^\n]+/g, ""));
  }

  done(): string {
    const parts: string[] = [];
    let at = 0;
    for (const [start, end, text] of this.#changes.sort(([one, a], [other, b]) => one - other || a - b)) {
      parts.push(this.code.slice(at, start), text);
      at = end;
    }
    return parts.join("") + this.code.slice(at);
  }
}

/** Rewrites the reads of imported names, `import()` and `import.meta`; returns whether the code awaits outside of functions. */
function rewriteBody(program: Any, edits: Edits, imported: Map<string, string>): boolean {
  let isAsync = false;

  function read(node: Any, parent: Any, scopes: Set<string>[]): void {
    const name = nameOf(node);
    const own = imported.get(name);
    if (own === undefined || scopes.some((scope) => scope.has(name))) return;
    const isCalled = (parent.type === "CallExpression" && parent["callee"] === node) || (parent.type === "TaggedTemplateExpression" && parent["tag"] === node);
    edits.replace(node.start, node.end, isCalled && own.includes(".") ? `${PLAIN}(${own})` : own);
  }

  function walk(node: Any, parent: Any, scopes: Set<string>[], inFunction: boolean): void {
    const { type } = node;
    if (type === "Identifier") return read(node, parent, scopes);
    if (type === "MetaProperty") {
      if (nameOf(node["meta"]) === "import") edits.replace(node.start, node.end, META);
      return;
    }
    if (/^(Import|ExportAll)Declaration$/.test(type) || (type === "ExportNamedDeclaration" && !node["declaration"])) return;
    if (type === "ImportExpression") edits.replace(node.start, node.start + "import".length, IMPORT);
    if (!inFunction && (type === "AwaitExpression" || (type === "ForOfStatement" && node["await"]) || (type === "VariableDeclaration" && node["kind"] === "await using"))) isAsync = true;
    const names = new Set(imported.size ? namesWithin(node) : []);
    const within = names.size ? [...scopes, names] : scopes;
    const inside = inFunction || isFunction(node) || /^(PropertyDefinition|StaticBlock)$/.test(type);
    if (type === "Property" && node["shorthand"]) {
      const { value } = node as Any & { value: Any };
      const name = nameOf(node["key"]);
      const own = imported.get(name);
      if (own !== undefined && value.type === "Identifier" && !within.some((scope) => scope.has(name))) edits.replace(node.start, node.end, `${name}: ${own}`);
      else if (value.type === "AssignmentPattern") walk(value["right"] as Any, value, within, inside);
      return;
    }
    for (const [key, value] of Object.entries(node)) {
      const isPlainName = /^(key|property)$/.test(key) && !node["computed"];
      if (key === "label" || (isPlainName && isNode(value) && /Identifier$/.test(value.type))) continue;
      for (const child of Array.isArray(value) ? value : [value]) if (isNode(child)) walk(child, node, within, key === "key" ? inFunction : inside);
    }
  }

  for (const statement of program["body"] as Any[]) walk(statement, program, [], false);
  return isAsync;
}

const parse = (code: string, sourceType: "module" | "script"): Any =>
  Parser.parse(code, { ecmaVersion: "latest", sourceType, allowHashBang: true, allowReturnOutsideFunction: false }) as unknown as Any;

/** Throws a SyntaxError. */
export function compileModule(code: string): CompiledModule {
  const program = parse(code, "module");
  const edits = new Edits(code);
  const needs: CompiledModule["needs"] = [];
  const imported = new Map<string, string>();
  const reads = new Map<string, string>();
  const passes: CompiledModule["passes"] = new Map();
  const stars: number[] = [];
  const before: string[] = [];

  function need(statement: Any, names: string[]): number {
    const { source, attributes } = statement as Any & { source: Any; attributes?: Any[] };
    const specifier = String(source["value"]);
    const type = nameOf((attributes ?? []).find(({ key }) => nameOf(key) === "type")?.["value"] ?? { value: "" });
    const known = needs.findIndex((one) => one.specifier === specifier && one.type === type);
    if (known < 0) return needs.push({ specifier, type, names }) - 1;
    needs[known]!.names.push(...names);
    return known;
  }

  function takeExported({ start, declaration }: Any & { declaration: Any }): void {
    edits.remove(start, declaration.start);
    for (const name of declared([declaration])) reads.set(name, name);
  }

  function takeDefault({ start, declaration }: Any & { declaration: Any }): void {
    const isDeclared = /^(Function|Class)Declaration$/.test(declaration.type);
    const named = isDeclared && declaration["id"] ? nameOf(declaration["id"]) : undefined;
    reads.set("default", named ?? DEFAULT);
    if (named !== undefined) edits.remove(start, declaration.start);
    else if (declaration.type === "FunctionDeclaration") {
      edits.remove(start, declaration.start);
      const parameters = code.slice(declaration.start).match(/^(async\s+)?function[\s*]*/)![0].length + declaration.start;
      edits.replace(parameters, parameters, ` ${DEFAULT}`);
      before.push(`Object.defineProperty(${DEFAULT},"name",{value:"default",configurable:true})`);
    } else {
      // An anonymous function or class takes its name from the property.
      edits.replace(start, declaration.start, `const ${DEFAULT} = ({default: ${code.slice(start, declaration.start).replace(/[^\n]+/g, "")}`);
      edits.replace(declaration.end, declaration.end, "}).default;");
    }
  }

  for (const statement of program["body"] as Any[]) {
    const { type, start, end } = statement;
    const specifiers = (statement["specifiers"] ?? []) as Any[];
    if (type === "ImportDeclaration") {
      const names = specifiers.flatMap((one) => (one.type === "ImportDefaultSpecifier" ? ["default"] : one.type === "ImportSpecifier" ? [nameOf(one["imported"])] : []));
      const from = need(statement, names);
      for (const one of specifiers) {
        const local = nameOf(one["local"]);
        const name = one.type === "ImportDefaultSpecifier" ? "default" : one.type === "ImportSpecifier" ? nameOf(one["imported"]) : undefined;
        imported.set(local, name === undefined ? `${OUR}${from}` : `${OUR}${from}${/^[\w$]+$/.test(name) ? `.${name}` : `[${JSON.stringify(name)}]`}`);
      }
      edits.remove(start, end);
    } else if (type === "ExportAllDeclaration") {
      const from = need(statement, []);
      const { exported } = statement;
      if (exported) passes.set(nameOf(exported), { from, name: "*" });
      else stars.push(from);
      edits.remove(start, end);
    } else if (type === "ExportNamedDeclaration" && statement["source"]) {
      const from = need(statement, specifiers.map(({ local }) => nameOf(local)));
      for (const { local, exported } of specifiers) passes.set(nameOf(exported), { from, name: nameOf(local) });
      edits.remove(start, end);
    } else if (type === "ExportNamedDeclaration" && !statement["declaration"]) {
      for (const { local, exported } of specifiers) reads.set(nameOf(exported), nameOf(local));
      edits.remove(start, end);
    } else if (type === "ExportNamedDeclaration") takeExported(statement as never);
    else if (type === "ExportDefaultDeclaration") takeDefault(statement as never);
  }
  const isAsync = rewriteBody(program, edits, imported);
  const exported = [...reads].map(([name, local]) => `${JSON.stringify(name)}:()=>${imported.get(local) ?? local}`);
  const parameters = [IMPORT, META, PLAIN, EXPORTS, ...needs.map((_, at) => `${OUR}${at}`)];
  const start = [...before, `${EXPORTS}({__proto__:null,${exported.join()}})`, "yield"].join(";");
  const body = code.startsWith("#!") ? edits.done().replace(/^.*/, "") : edits.done();
  return { code: `${isAsync ? "async " : ""}function*(${parameters.join()}){"use strict";${start};${body}\n}`, needs, passes, stars, isAsync };
}

/** A classic script in which `call` stands for the word of each `import()`; unchanged if it has none, or a syntax error. */
export function replaceImportCalls(code: string, call: string): string {
  if (!/\bimport\b/.test(code)) return code;
  try {
    const edits = new Edits(code);
    const walk = (node: Any): void => {
      if (node.type === "ImportExpression") edits.replace(node.start, node.start + "import".length, call);
      for (const child of childrenOf(node)) walk(child);
    };
    walk(parse(code, "script"));
    return edits.done();
  } catch {
    return code;
  }
}
