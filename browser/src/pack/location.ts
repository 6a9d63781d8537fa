/**
 * Lets the scripts of a page ask a part of the view runtime for `location`, which in a view is the frame's, and which no
 * script can redefine.
 *
 * Run by `node location.mjs`: reads `Script`s as JSON from standard input, and writes what becomes of each, null where that
 * is what it was.
 */
import { text } from "node:stream/consumers";
import { type Node, parse } from "acorn";
import { OWN } from "../view/own";

export interface Script {
  code: string;
  /** What it stands in: a `<script>`, one that is a module, or an attribute such as `onclick`. */
  kind: "script" | "module" | "handler";
}

const NAME = "location";

interface Any extends Node {
  [key: string]: unknown;
}

interface Insertion {
  at: number;
  text: string;
}

/** Of a function, or of the whole script. */
interface Scope {
  outer?: Scope;
  /** Whether something in it is called `location`. */
  declares: boolean;
}

/** The script, with each `location` that it reads asked for; undefined where it reads none, or no parser can read it. */
export function asking({ code, kind }: Script): string | undefined {
  if (!code.includes(NAME)) return undefined;
  let program: Node;
  try {
    program = parse(code, {
      ecmaVersion: "latest",
      sourceType: kind === "module" ? "module" : "script",
      allowHashBang: true,
      allowReturnOutsideFunction: kind === "handler",
      // Only so each end of an expression is known.
      preserveParens: true,
    });
  } catch {
    return undefined; // nor can browsers
  }
  const insertions = insertionsOf(program as Any, code);
  if (!insertions.length) return undefined;
  const parts: string[] = [];
  let done = 0;
  for (const { at, text: inserted } of insertions.sort((one, other) => one.at - other.at)) {
    parts.push(code.slice(done, at), inserted);
    done = at;
  }
  return parts.join("") + code.slice(done);
}

/** Nothing is taken out, and no line added: each error keeps its place. */
function insertionsOf(program: Any, code: string): Insertion[] {
  const found: Insertion[] = [];
  /** Names that are no reads. */
  const spared = new Set<unknown>();
  /** What `new` calls, as far as a call in it would end it. */
  const called = new Set<unknown>();
  const assigned: [Any, Scope][] = [];

  function ask(node: Any, before = "", after = ""): void {
    const [open, close] = called.has(node) ? ["(", ")"] : ["", ""];
    // Of minified code: `return(a||b).location`.
    const gap = /\w/.test(code.charAt(node.start - 1)) ? " " : "";
    found.push({ at: node.start, text: `${gap}${before}${open}${OWN}(` }, { at: node.end, text: `)${close}${after}` });
  }

  /** The names to which `pattern` gives values, and which it declares where there is a scope. */
  function spare(pattern: unknown, scope?: Scope): void {
    for (const target of targets(pattern)) {
      spared.add(target);
      if (scope && isName(target)) scope.declares = true;
    }
  }

  const see: { [type: string]: (node: Any, scope: Scope) => void } = {
    Identifier: (node) => isName(node) && !spared.has(node) && ask(node),
    MemberExpression(node) {
      const object = node["object"] as Any;
      if (!isNamed(node["property"], node["computed"]) || object.type === "Super") return;
      // One that an optional link before would leave out must not be asked for.
      if (node["optional"] || !isOptional(object)) ask(object);
    },
    Property(node) {
      const value = node["value"] as Any;
      if (!node["shorthand"] || !isName(value) || spared.has(value)) return;
      spared.add(value);
      ask(value, `${NAME}: `);
    },
    VariableDeclarator(node, scope) {
      spare(node["id"], scope);
      const init = node["init"] as Any | null;
      if (init && takesLocation(node["id"])) ask(init);
    },
    AssignmentPattern: (node) => void (takesLocation(node["left"]) && ask(node["right"] as Any)),
    ExpressionStatement(node) {
      const assignment = bare(node["expression"]);
      if (assignment.type === "AssignmentExpression" && takesLocation(assignment["left"])) ask(assignment["right"] as Any);
    },
    AssignmentExpression(node, scope) {
      spare(node["left"]);
      if (node["operator"] === "=" && isName(node["left"])) assigned.push([node["left"] as Any, scope]);
    },
    UpdateExpression: (node) => spare(node["argument"]),
    UnaryExpression: (node) => /typeof|delete/.test(String(node["operator"])) && spare(node["argument"]),
    ForInStatement: (node) => spare(node["left"]),
    ForOfStatement: (node) => spare(node["left"]),
    CatchClause: (node, scope) => spare(node["param"], scope),
    NewExpression(node) {
      for (let callee = node["callee"] as Any; ; callee = (callee["object"] ?? callee["tag"]) as Any) {
        called.add(callee);
        if (!/^(Member|TaggedTemplate)Expression$/.test(callee.type)) break;
      }
    },
    ImportDeclaration: (node, scope) => (node["specifiers"] as Any[]).forEach(({ local }) => spare(local, scope)),
  };
  for (const [node, scope] of nodesOf(program)) {
    if (/^Class/.test(node.type)) spare(node["id"], scope);
    if (isFunction(node)) {
      spare(node["id"], scope.outer);
      for (const parameter of node["params"] as Any[]) spare(parameter, scope);
    }
    see[node.type]?.(node, scope);
  }
  // `location = x` goes there; where a variable has that name, the variable is meant.
  for (const [node, scope] of assigned) if (!isDeclared(scope)) ask(node, "", ".href");
  return found;
}

/** Each node that may hold a read, those around it first, and what it is in: a function is in its own. */
function* nodesOf(program: Any): Generator<[Any, Scope]> {
  const waiting: [unknown, Scope][] = [[program, { declares: false }]];
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    const [node, outer] = next;
    if (Array.isArray(node)) for (const one of node) waiting.push([one, outer]);
    else if (isNode(node)) {
      const scope = isFunction(node) ? { outer, declares: false } : outer;
      yield [node, scope];
      if (NAMING.test(node.type)) continue;
      for (const key of Object.keys(node)) if (typeof node[key] === "object" && !isOfNames(node, key)) waiting.push([node[key], scope]);
    }
  }
}

const isFunction = (node: Any): boolean => node.type.includes("Function");

function isDeclared(scope: Scope): boolean {
  for (let one: Scope | undefined = scope; one; one = one.outer) if (one.declares) return true;
  return false;
}

/** In these stand names of modules, and no reads. */
const NAMING = /^(ImportDeclaration|ExportAllDeclaration|MetaProperty)$/;

/** Whether what stands there is a name by itself. */
const isOfNames = ({ computed }: Any, key: string): boolean => /^(label|specifiers)$/.test(key) || (!computed && /^(key|property)$/.test(key));

const isNode = (value: unknown): value is Any => typeof (value as Any | null)?.type === "string";

const isName = (node: unknown): boolean => isNode(node) && node.type === "Identifier" && node["name"] === NAME;

/** Whether a property is named so: `x.location`, `x["location"]`, `{ location: a }`. */
function isNamed(name: unknown, computed: unknown): boolean {
  const { value, quasis } = name as { value?: unknown; quasis?: { value: { cooked: string } }[] };
  return isName(name) ? !computed : value === NAME || (quasis?.length === 1 && quasis[0]?.value.cooked === NAME);
}

/** Whether what follows is left out where some link of it finds nothing. */
function isOptional(node: Any): boolean {
  for (let link: Any | undefined = node; link && /^(Member|Call)Expression$/.test(link.type); link = (link["object"] ?? link["callee"]) as Any) {
    if (link["optional"]) return true;
  }
  return false;
}

/** What stands in the parentheses, if `node` is in some. */
function bare(node: unknown): Any {
  let inner = node as Any;
  while (inner.type === "ParenthesizedExpression") inner = inner["expression"] as Any;
  return inner;
}

/** Whether a pattern takes the property of that name. */
function takesLocation(pattern: unknown): boolean {
  const { type, properties } = bare(pattern) as Any & { properties: Any[] };
  return type === "ObjectPattern" && properties.some((one) => one.type === "Property" && isNamed(one["key"], one["computed"]));
}

/** The names in a pattern, or in what stands to the left of an assignment. */
function* targets(pattern: unknown): Generator<Any> {
  if (!isNode(pattern)) return;
  const { type, properties, elements, left, argument, value, expression } = pattern as Any & { properties: Any[]; elements: Any[] };
  if (type === "Identifier") yield pattern;
  else if (type === "ObjectPattern") for (const one of properties) yield* targets(one);
  else if (type === "ArrayPattern") for (const one of elements) yield* targets(one);
  else if (type === "AssignmentPattern") yield* targets(left);
  else if (type === "RestElement") yield* targets(argument);
  else if (type === "Property") yield* targets(value);
  else if (type === "ParenthesizedExpression") yield* targets(expression);
}

if (process.argv[2] === "--stdin") {
  const scripts = JSON.parse(await text(process.stdin)) as Script[];
  process.stdout.write(JSON.stringify(scripts.map((script) => asking(script) ?? null)));
}
