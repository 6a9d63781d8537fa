/**
 * `eval`, `new Function` and string timers, for pages that contain them: content policies of hosts forbid these, and
 * permit inline scripts.
 *
 * A separate script, independent of the runtime; with the part for `location`, such code gets the app's own.
 */

import { attempt } from "../attempt";
import { OWN } from "../page/part-keys";

/** The key under which a script leaves its result. */
const RESULT = Symbol.for("webmcp-gateway.made");
const shared = globalThis as { [RESULT]?: unknown; [OWN]?: (value: unknown) => unknown };
/** Code that declares something by itself, or is a block. */
const STATEMENT = /^\s*(?:(?:async\s+)?function\b|class\b|var\b|let\b|const\b|\{)/;

/** The scope in which the plain name is the app's own `location`. */
const scope = {
  __proto__: null,
  get location() {
    return shared[OWN]!(window.location);
  },
  set location(url) {
    Reflect.set(shared[OWN]!(window) as object, "location", url);
  },
};

/** The running scripts, the innermost last, and their errors. */
const runningScripts: { failed?: ErrorEvent }[] = [];

/** Runs `code` as a script of the page. Throws what it throws. */
function run(code: string): void {
  const script = document.createElement("script");
  const now: (typeof runningScripts)[number] = {};
  script.text = code;
  runningScripts.push(now);
  document.head.append(script);
  runningScripts.pop();
  script.remove();
  if (now.failed) throw now.failed.error;
}

/** The value of an expression. Throws a SyntaxError for anything else, and an EvalError if no script may be added. */
function valueOf(code: string): unknown {
  const place = `globalThis[Symbol.for("${RESULT.description}")]`;
  shared[RESULT] = scope;
  run(`${shared[OWN] && code.includes("location") ? `with(${place}) ` : ""}${place} = () => (${code}\n)`);
  const { [RESULT]: made } = shared;
  delete shared[RESULT];
  if (made === scope) throw new EvalError("The host's content policy admits no scripts in the page.");
  return (made as () => unknown)();
}

function start(): void {
  // Before any listener of the page: the caller may catch the error.
  addEventListener("error", (event) => {
    const now = runningScripts.at(-1);
    if (!now) return;
    now.failed = event;
    event.preventDefault();
    event.stopImmediatePropagation();
  }, true);
  const natives = { "function": () => {}, "async function": async () => {}, "function*": function* () {}, "async function*": async function* () {} };
  for (const [kind, { constructor: native }] of Object.entries(natives)) {
    const make = (given: unknown[]): Function => {
      const body = given.pop() ?? "";
      return valueOf(`${kind} anonymous(${given}\n) {\n${body}\n}`) as Function;
    };
    const value = new Proxy(native, { apply: (_, __, given) => make(given), construct: (_, given) => make(given) });
    Object.defineProperty(native.prototype, "constructor", { value });
  }
  const value = (code: unknown): unknown => {
    if (typeof code !== "string") return code;
    const expression = STATEMENT.test(code) ? undefined : attempt(() => [valueOf(`() => (${code.replace(/;\s*$/, "")}\n)`) as () => unknown] as const);
    // The value of a statement is unknown.
    return expression ? expression[0]() : run(code);
  };
  for (const [name, own] of Object.entries({ Function: Function.prototype.constructor, eval: value })) {
    Object.defineProperty(window, name, { configurable: true, writable: true, value: own });
  }
  for (const name of ["setTimeout", "setInterval"] as const) {
    const native = window[name] as (...given: unknown[]) => number;
    window[name] = ((handler: unknown, ...rest: unknown[]) =>
      native(typeof handler === "function" ? handler : () => run(String(handler)), ...rest)) as never;
  }
}

// Some hosts do not forbid it.
if (window.parent !== window && !attempt(() => new Function())) start();
