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
  const assigned: Any[] = [];
  let declared = false;

  function ask(node: Any, before = "", after = ""): void {
    const [open, close] = called.has(node) ? ["(", ")"] : ["", ""];
    // Of minified code: `return(a||b).location`.
    const gap = /\w/.test(code.charAt(node.start - 1)) ? " " : "";
    found.push({ at: node.start, text: `${gap}${before}${open}${OWN}(` }, { at: node.end, text: `)${close}${after}` });
  }

  /** The names to which `pattern` gives values. */
  function spare(pattern: unknown, declares = false): void {
    for (const target of targets(pattern)) {
      spared.add(target);
      declared ||= declares && isName(target);
    }
  }

  const see: { [type: string]: (node: Any) => void } = {
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
    VariableDeclarator(node) {
      spare(node["id"], true);
      const init = node["init"] as Any | null;
      if (init && takesLocation(node["id"])) ask(init);
    },
    AssignmentPattern: (node) => void (takesLocation(node["left"]) && ask(node["right"] as Any)),
    ExpressionStatement(node) {
      const assignment = bare(node["expression"]);
      if (assignment.type === "AssignmentExpression" && takesLocation(assignment["left"])) ask(assignment["right"] as Any);
    },
    AssignmentExpression(node) {
      spare(node["left"]);
      if (node["operator"] === "=" && isName(node["left"])) assigned.push(node["left"] as Any);
    },
    UpdateExpression: (node) => spare(node["argument"]),
    UnaryExpression: (node) => /typeof|delete/.test(String(node["operator"])) && spare(node["argument"]),
    ForInStatement: (node) => spare(node["left"]),
    ForOfStatement: (node) => spare(node["left"]),
    CatchClause: (node) => spare(node["param"], true),
    NewExpression(node) {
      for (let callee = node["callee"] as Any; ; callee = (callee["object"] ?? callee["tag"]) as Any) {
        called.add(callee);
        if (!/^(Member|TaggedTemplate)Expression$/.test(callee.type)) break;
      }
    },
    ImportDeclaration: (node) => (node["specifiers"] as Any[]).forEach(({ local }) => spare(local, true)),
  };
  for (const node of nodesOf(program)) {
    if (/Function|^Class/.test(node.type)) spare(node["id"], true);
    for (const parameter of (node["params"] ?? []) as Any[]) spare(parameter, true);
    see[node.type]?.(node);
  }
  // `location = x` goes there; a script that has a variable of that name means the variable.
  if (!declared) for (const node of assigned) ask(node, "", ".href");
  return found;
}

/** Each node that may hold a read, those around it first. */
function* nodesOf(program: Any): Generator<Any> {
  const waiting: unknown[] = [program];
  while (waiting.length) {
    const node = waiting.pop();
    if (Array.isArray(node)) for (const one of node) waiting.push(one);
    else if (isNode(node)) {
      yield node;
      if (!NAMING.test(node.type)) for (const key of Object.keys(node)) if (!isOfNames(node, key)) waiting.push(node[key]);
    }
  }
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
