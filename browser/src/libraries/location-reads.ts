/**
 * Rewrites scripts to call the view runtime for `location`, which in a view is the frame's, and which no script can
 * redefine: those of the app when it is packed, and those that a page fetches.
 */
import { type Node, Parser } from "acorn";
import { OWN } from "../view/page/part-keys";

export interface Script {
  code: string;
  /** Its context: a `<script>`, one that is a module, or an attribute such as `onclick`. */
  kind: "script" | "module" | "handler";
}

const NAME = "location";
/** A page posts to its own window by its own origin, which the browser does not know. */
const MESSAGE_METHOD = "postMessage";

interface Any extends Node {
  [key: string]: unknown;
}

interface Insertion {
  at: number;
  text: string;
}

/** The scope of a function, of the whole script, or of a block in them. */
interface Scope {
  outer?: Scope;
  block?: boolean;
  /** Whether it declares a `location`. */
  declares: boolean;
}

/** Returns whether a node may contain one of these two names: they may also be written with escapes. */
function messageDetector(code: string): (node: Node) => boolean {
  const places = Array.from(code.matchAll(new RegExp(`${NAME}|${MESSAGE_METHOD}|\\\\`, "g")), ({ index }) => index);
  return ({ start, end }) => {
    let [from, to] = [0, places.length];
    while (from < to) {
      const middle = (from + to) >> 1;
      if (places[middle]! < start) from = middle + 1;
      else to = middle;
    }
    return places[from]! < end;
  };
}

/** Members that acorn's types do not expose. */
type Making = new (...given: unknown[]) => { input: string; finishNode(node: Any, type: string): Any };

/** Discards the contents of blocks without those names: in large scripts, of most. */
const Reader = Parser.extend((Made) => {
  class SpareParser extends (Made as unknown as Making) {
    readonly #speaks = messageDetector(this.input);

    override finishNode(node: Any, type: string): Any {
      const made = super.finishNode(node, type);
      if (type === "BlockStatement" && !this.#speaks(made)) made["body"] = [];
      return made;
    }

    // Errors in regular expressions, and names that are declared twice or not at all, are left to the browser: to look
    // for the latter takes acorn a time that grows with the square of their number.
    validateRegExpFlags(): void {}
    validateRegExpPattern(): void {}
    declareName(): void {}
    checkLocalExport(): void {}
  }
  return SpareParser as unknown as typeof Parser;
});

/** The script with each read of `location` wrapped in a call; undefined if there is none, null for a syntax error. */
export function rewriteLocation({ code, kind }: Script): string | null | undefined {
  if (!code.includes(NAME) && !code.includes(MESSAGE_METHOD)) return undefined;
  let program: Node;
  try {
    program = Reader.parse(code, {
      ecmaVersion: "latest",
      sourceType: kind === "module" ? "module" : "script",
      allowHashBang: true,
      allowReturnOutsideFunction: kind === "handler",
      // Required for the end positions of expressions.
      preserveParens: true,
    });
  } catch {
    return null; // invalid in browsers, too
  }
  const insertions = findInsertions(program as Any, code);
  if (!insertions.length) return undefined;
  const parts: string[] = [];
  let done = 0;
  for (const { at, text: inserted } of insertions.sort((one, other) => one.at - other.at)) {
    parts.push(code.slice(done, at), inserted);
    done = at;
  }
  return parts.join("") + code.slice(done);
}

/** Nothing is removed, and no line added: each error keeps its position. */
function findInsertions(program: Any, code: string): Insertion[] {
  const found: Insertion[] = [];
  /** Names that are not reads. */
  const spared = new Set<unknown>();
  /** Callees of `new`, in which a call would end the expression. */
  const called = new Set<unknown>();
  /** Links of an optional chain that are skipped if an earlier one is undefined. */
  const optional = new Set<unknown>();
  /** Expressions whose value is unused. */
  const unused = new Set<unknown>();
  const assigned: [Any, Scope][] = [];

  function wrapRead(node: Any, before = "", after = ""): void {
    const [open, close] = called.has(node) ? ["(", ")"] : ["", ""];
    // For minified code: `return(a||b).location`.
    const gap = /\w/.test(code.charAt(node.start - 1)) ? " " : "";
    found.push({ at: node.start, text: `${gap}${before}${open}${OWN}(` }, { at: node.end, text: `)${close}${after}` });
  }

  /** Wraps the object whose property `node` is. */
  function wrapOwner(node: Any): void {
    const object = node["object"] as Any;
    if (object.type === "Super") return;
    wrapRead(object);
    if (!optional.has(node) || node["optional"]) return;
    SPACE.lastIndex = object.end;
    SPACE.test(code);
    found.push({ at: SPACE.lastIndex, text: node["computed"] ? "?." : "?" });
  }

  /** Marks the names that `pattern` assigns, and declares them if there is a scope. */
  function markUnwrapped(pattern: unknown, scope?: Scope): void {
    for (const target of targets(pattern)) {
      spared.add(target);
      if (scope && isName(target)) scope.declares = true;
    }
  }

  const see: { [type: string]: (node: Any, scope: Scope) => void } = {
    Identifier: (node) => isName(node) && !spared.has(node) && wrapRead(node),
    MemberExpression: (node) => void (isNamed(node["property"], node["computed"]) && wrapOwner(node)),
    CallExpression(node) {
      const callee = node["callee"] as Any;
      const [, to] = node["arguments"] as Any[];
      // Not a worker's postMessage, since workers have no such function.
      if (!to || /^ArrayExpression|^Literal/.test(to.type) || (to.type === "ObjectExpression" && !namesTarget(to))) return;
      if (isName(callee, MESSAGE_METHOD)) wrapRead(callee);
      else if (callee.type === "MemberExpression" && isNamed(callee["property"], callee["computed"], MESSAGE_METHOD)) wrapOwner(callee);
    },
    ChainExpression(node) {
      const links: Any[] = [];
      for (let link = node["expression"] as Any; /^(Member|Call)Expression$/.test(link.type); link = (link["object"] ?? link["callee"]) as Any) links.push(link);
      for (let link = links.pop(), before = false; link; link = links.pop()) {
        if (before) optional.add(link);
        before ||= Boolean(link["optional"]);
      }
    },
    Property(node) {
      const value = node["value"] as Any;
      if (!node["shorthand"] || !isName(value) || spared.has(value)) return;
      spared.add(value);
      wrapRead(value, `${NAME}: `);
    },
    VariableDeclaration(node, scope) {
      let holder = scope;
      while (node["kind"] === "var" && holder.block) holder = holder.outer!;
      for (const { id, init } of node["declarations"] as Any[]) {
        markUnwrapped(id, holder);
        if (init && takesLocation(id)) wrapRead(init as Any);
      }
    },
    AssignmentPattern: (node) => void (takesLocation(node["left"]) && wrapRead(node["right"] as Any)),
    ExpressionStatement: (node) => void unused.add(unparenthesized(node["expression"])),
    SequenceExpression(node) {
      const all = (node["expressions"] as Any[]).map(unparenthesized);
      for (const one of unused.has(node) ? all : all.slice(0, -1)) unused.add(one);
    },
    AssignmentExpression(node, scope) {
      const { left, right } = node as Any & { right: Any };
      markUnwrapped(left);
      if (isName(unparenthesized(left))) assigned.push([node, scope]);
      else if (takesLocation(left) && unused.has(node)) wrapRead(right);
    },
    UpdateExpression: (node) => markUnwrapped(node["argument"]),
    UnaryExpression: (node) => /typeof|delete/.test(String(node["operator"])) && markUnwrapped(node["argument"]),
    ForInStatement: (node) => markUnwrapped(node["left"]),
    ForOfStatement: (node) => markUnwrapped(node["left"]),
    CatchClause: (node, scope) => markUnwrapped(node["param"], scope),
    // If a name may be a property, it is unchanged.
    WithStatement: (_, scope) => void (scope.declares = true),
    NewExpression(node) {
      for (let callee = node["callee"] as Any; ; callee = (callee["object"] ?? callee["tag"]) as Any) {
        called.add(callee);
        if (!/^(Member|TaggedTemplate)Expression$/.test(callee.type)) break;
      }
    },
    ImportDeclaration: (node, scope) => (node["specifiers"] as Any[]).forEach(({ local }) => markUnwrapped(local, scope)),
  };
  for (const [node, scope] of nodesOf(program, messageDetector(code))) {
    if (/^Class/.test(node.type)) markUnwrapped(node["id"], scope);
    if (isFunction(node)) {
      markUnwrapped(node["id"], scope.outer);
      for (const parameter of node["params"] as Any[]) markUnwrapped(parameter, scope);
    }
    see[node.type]?.(node, scope);
  }
  // `location = x` navigates, unless a variable has that name.
  for (const [node, scope] of assigned) {
    if (isDeclared(scope)) continue;
    if (/^(\|\||\?\?)/.test(String(node["operator"]))) wrapRead(node); // it always exists
    else wrapRead(unparenthesized(node["left"]), "", ".href");
  }
  return found;
}

/** Yields each node that may contain a read, outer ones first, with its scope: a function is in its own. */
function* nodesOf(program: Any, speaks: (node: Node) => boolean): Generator<[Any, Scope]> {
  const waiting: [unknown, Scope][] = [[program, { declares: false }]];
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    const [node, outer] = next;
    if (Array.isArray(node)) for (const one of node) waiting.push([one, outer]);
    else if (isNode(node) && speaks(node)) {
      const block = BLOCK.test(node.type);
      const scope = block || HOLDER.test(node.type) ? { outer, block, declares: false } : outer;
      yield [node, scope];
      if (NAMING.test(node.type)) continue;
      for (const key of Object.keys(node)) if (typeof node[key] === "object" && !isOfNames(node, key)) waiting.push([node[key], scope]);
    }
  }
}

const isFunction = (node: Any): boolean => node.type.includes("Function");

/** These contain their declarations, except `var` in the first. */
const BLOCK = /^(BlockStatement|For(In|Of)?Statement|SwitchStatement|CatchClause)$/;
const HOLDER = /Function|^StaticBlock$/;

/** May precede a dot. */
const SPACE = /(?:\s|\/\*[^]*?\*\/|\/\/.*)*/y;

function isDeclared(scope: Scope): boolean {
  for (let one: Scope | undefined = scope; one; one = one.outer) if (one.declares) return true;
  return false;
}

/** These contain names of modules, and no reads. */
const NAMING = /^(ImportDeclaration|ExportAllDeclaration|MetaProperty)$/;

/** Whether such a child is a plain name. */
const isOfNames = ({ computed }: Any, key: string): boolean => /^(label|specifiers)$/.test(key) || (!computed && /^(key|property)$/.test(key));

const isNode = (value: unknown): value is Any => typeof (value as Any | null)?.type === "string";

const isName = (node: unknown, name = NAME): boolean => isNode(node) && node.type === "Identifier" && node["name"] === name;

/** Whether a property has that name: `x.location`, `x["location"]`, `{ location: a }`. */
function isNamed(property: unknown, computed: unknown, name = NAME): boolean {
  const { value, quasis } = property as { value?: unknown; quasis?: { value: { cooked: string } }[] };
  return isName(property, name) ? !computed : value === name || (quasis?.length === 1 && quasis[0]?.value.cooked === name);
}

/** Whether the options of a message may name the window's origin. */
const namesTarget = ({ properties }: Any): boolean => (properties as Any[]).some(({ key, computed }) => key && isNamed(key, computed, "targetOrigin"));

/** The expression within parentheses, if `node` has any. */
function unparenthesized(node: unknown): Any {
  let inner = node as Any;
  while (inner.type === "ParenthesizedExpression") inner = inner["expression"] as Any;
  return inner;
}

/** Whether a pattern reads the property of that name. */
function takesLocation(pattern: unknown): boolean {
  const { type, properties } = unparenthesized(pattern) as Any & { properties: Any[] };
  return type === "ObjectPattern" && properties.some((one) => one.type === "Property" && isNamed(one["key"], one["computed"]));
}

/** The names in a pattern, or on the left of an assignment. */
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
