import { createContext, runInContext } from "node:vm";
import { expect, test } from "vitest";
import { OWN } from "../view/page/part-keys";
import { rewriteLocation } from "./location-reads";

/** Runs a script in a realm where `asked` implements the call: returns the value of its last expression, or its error. */
function outcome(code: string, asked: (value: unknown) => unknown = (value) => value): unknown {
  const location = { href: "https://a.test/b", pathname: "/b", toString: () => "https://a.test/b" };
  const realm: Record<string, unknown> = { location, document: { location }, seen: [], [OWN]: asked };
  realm["window"] = realm;
  try {
    const value = runInContext(code, createContext(realm)) as unknown;
    return JSON.stringify([value, realm["seen"], realm["location"]]);
  } catch (error) {
    return String(error);
  }
}

const READS = {
  "location.pathname": `${OWN}(location).pathname`,
  "window.location.href": `${OWN}(window).location.href`,
  "`at ${location}`": `\`at \${${OWN}(location)}\``,
  "({ location })": `({ location: ${OWN}(location) })`,
  "new location.URL()": `new (${OWN}(location)).URL()`,
  "new window.location.at.URL(1)": `new (${OWN}(window)).location.at.URL(1)`,
  "new (location.URL)": `new (${OWN}(location).URL)`,
  "document?.location.href": `${OWN}(document)?.location.href`,
  "a?.b?.location.href": `${OWN}(a?.b)?.location.href`,
  "a?.b.location.href": `${OWN}(a?.b)?.location.href`,
  "a?.b(c?.location) /* . */\n // .\n .location.d?.e.location.f": `${OWN}(${OWN}(a?.b(${OWN}(c)?.location)) /* . */\n // .\n ?.location.d?.e)?.location.f`,
  "a?.[0]['location'].b.location": `${OWN}(${OWN}(a?.[0])?.['location'].b)?.location`,
  "(a?.b).location, a?.(b.location).c": `${OWN}((a?.b)).location, a?.(${OWN}(b).location).c`,
  "delete a?.b.location": `delete ${OWN}(a?.b)?.location`,
  "window['location'], window[`location`]": `${OWN}(window)['location'], ${OWN}(window)[\`location\`]`,
  "const { history: h, location: l } = window": `const { history: h, location: l } = ${OWN}(window)`,
  "({ 'location': a } = document)": `({ 'location': a } = ${OWN}(document))`,
  "function f({ location: a } = window) {}": `function f({ location: a } = ${OWN}(window)) {}`,
  "window.location = '/a'": `${OWN}(window).location = '/a'`,
  "location = '/a'": `${OWN}(location).href = '/a'`,
  "function f() { return l\\u006fcation.href } location": `function f() { return ${OWN}(l\\u006fcation).href } ${OWN}(location)`,
  "(location) = ((location)) = '/a'": `(${OWN}(location).href) = ((${OWN}(location).href)) = '/a'`,
  "location += '#a', location &&= '/b'": `${OWN}(location).href += '#a', ${OWN}(location).href &&= '/b'`,
  "b = location ??= a, (location ||= a).href": `b = ${OWN}(location ??= a), (${OWN}(location ||= a)).href`,
  "{ let location; for (const location of a); try {} catch (location) {} } location = '/a'": `{ let location; for (const location of a); try {} catch (location) {} } ${OWN}(location).href = '/a'`,
  "class A { static { var location } static { location = '/a' } }": `class A { static { var location } static { ${OWN}(location).href = '/a' } }`,
  "let a; ({ location: a } = window), b(), ({ location: a } = document)": `let a; ({ location: a } = ${OWN}(window)), b(), ({ location: a } = ${OWN}(document))`,
  "postMessage(a, location.origin), w?.self.postMessage(a, b, c)": `${OWN}(postMessage)(a, ${OWN}(location).origin), ${OWN}(w?.self)?.postMessage(a, b, c)`,
  "a\n(b).location.x": `${OWN}(a\n(b)).location.x`,
  "x = 1\nlocation.reload()": `x = 1\n${OWN}(location).reload()`,
  "typeof location.href, delete location.x": `typeof ${OWN}(location).href, delete ${OWN}(location).x`,
  "for (const key in location);": `for (const key in ${OWN}(location));`,
  "a=>{return(a||b).location}": `a=>{return ${OWN}((a||b)).location}`,
  "typeof[a].location": `typeof ${OWN}([a]).location`,
  "if(a);else/b/.location": `if(a);else ${OWN}(/b/).location`,
  "let f = (location) => { location = 1 }; g = () => { location = '/a' }": `let f = (location) => { location = 1 }; g = () => { ${OWN}(location).href = '/a' }`,
  "class A extends location.B { x = location }": `class A extends ${OWN}(location).B { x = ${OWN}(location) }`,
};

test.each(Object.entries(READS))("%s", (code, asked) => {
  expect(rewriteLocation({ code, kind: "script" })).toBe(asked);
});

const SPARED = [
  "typeof location", "delete location", "location++", "[location] = []", "for (location of []);", "for (location in {});",
  "location: for (;;) break location", "({ location: 1, get location() { return 2 } })", "class A { location = 1; static location() {} #location }",
  "function location(location) {}", "(async location => 1)", "try {} catch (location) {}", "(class location {})", "({ set location(a) {} })",
  "if (a) { { var location } } location = 1", "with (a) location = 1", "postMessage('location'), port.postMessage('location', [a]), w.postMessage('location', '*')",
  "class A extends B { x() { return super.location } }", "'location'; /location/; // location",
];

test.each(SPARED)("%s stays", (code) => {
  expect(rewriteLocation({ code, kind: "script" })).toBeUndefined();
});

test("code with a syntax error is told apart", () => {
  expect(rewriteLocation({ code: "let a = 'this cannot be read: location", kind: "script" })).toBeNull();
});

test.each([
  "import { location as a } from 'a'; export { a as location }; export * as location from 'b'; import.meta.location",
  "import location from 'a'; location = 1",
  "export { location } from 'a'",
])("of a module, names of others stay: %s", (code) => {
  expect(rewriteLocation({ code, kind: "module" })?.replace(`${OWN}(import.meta).`, "import.meta.") ?? code).toBe(code);
});

test("an attribute is the body of a function, and modules wait at their top", () => {
  expect(rewriteLocation({ code: "return location.href", kind: "handler" })).toBe(`return ${OWN}(location).href`);
  expect(rewriteLocation({ code: "return location.href", kind: "script" })).toBeNull();
  expect(rewriteLocation({ code: "await location.x", kind: "module" })).toBe(`await ${OWN}(location).x`);
  expect(rewriteLocation({ code: "with (a) b = 010; <!-- x\nlocation.x", kind: "script" })).toContain(`${OWN}(location).x`);
});

/** All uses of that name as a variable, a property or a parameter; each returns what it read. */
const ODD = [
  "var location = 'own'; seen.push(location); location = 'other'; location += '!'; location",
  "(function () { let location = 1; location++; ++location; return [location, typeof location] })()",
  "((location, { location: a = location } = { location: 2 }, [b = location] = []) => [location, a, b])(1)",
  "(function (location) { arguments[0] = 2; return location })(1)",
  "const f = ({ location }) => location; f({ location: 3 })",
  "const { location: { href }, ...rest } = { location, x: 1 }; [href, rest]",
  "const a = { location: { href: 1, at: function () { return this.href } } }; [a.location.at(), a.location?.at(), a?.location.at(), (a.location.at)()]",
  "const a = { n: 1, location() { return this.n } }; [a.location(), a.location?.(), a?.location(), (a.location)(), a['location'](), a.location`x`]",
  "const a = null; [a?.location.href, a?.location.href.x.y(), a?.['location'].href, a?.b.location.c.d]",
  "const a = null; [a?.b.location.href, a?.b.c().location.d(seen.push(1)), a?.b['location'], delete a?.b.location]",
  "const a = { b: { location: { c: 1, d() { return this.c } } }, e: () => a }; [a?.b.location.c, a?.b.location.d(), a?.e().b.location.d?.(), (a?.b.location.d)(), delete a?.b.location, a]",
  "let x; const a = (({ location: x } = window), ({ location: x } = document)); seen.push(a === document); x.href",
  "let location = 1; { let location = 2; location += 1; seen.push(location) } location ??= 5; (location) = location + 1; location",
  "const a = {}; try { a?.location.href } catch (error) { seen.push(error.name) } a.location?.href",
  "class A { constructor() { this.location = 1; this.location += 1 } get x() { return this.location } } new A().x",
  "class A { location() { return 5 } } class B extends A { location() { return super.location() + 1 } } new B().location()",
  "class A { static location = 7; static x = A.location } [A.x, new (class { location = 8 })().location]",
  "function Place(x) { this.x = x } const a = { Place, location: Place }; [new a.location(1).x, new a.Place(2).x, new (a.location)(3).x]",
  "const location = class { constructor(x) { this.x = x } static In = location }; 1",
  "(() => { const location = { Of: class { x = 9 }, make: () => ({ Of: class { y = 8 } }) }; return [new location.Of().x, new location.Of, new (location.make().Of)().y] })()",
  "(() => { const location = (parts, ...rest) => [parts.raw, rest]; return [location`a${1}b`, location(1)] })()",
  "location: for (const a of [1, 2]) { for (;;) { seen.push(a); continue location } }",
  "let x = 1, b = { location: 4 }\nseen.push(x)\n;(b).location\nb\n.location\n++x\nb.location",
  "const b = { location: 4 }, g = 2, location_ = 8\nlet c = location_\n/b.location/g",
  "async function f() { for await (const a of [location]) seen.push(a.href); return await location } f(); seen",
  "function* g() { yield location; const a = yield; yield a.location } const i = g(); [i.next().value.href, i.next().done, i.next({ location: 1 }).value]",
  "[...[location].map((location) => location.href), ...(({ location }) => [location])({ location: 0 })]",
  "const o = { location, ['loc' + 'ation2']: location, [location.href]: 1 }; Object.keys(o)",
  "let a; [a = location] = []; ({ b: { location: a } = window } = {}); a.href",
  "let a; for (const { location: b } of [window]) a = b; for ({ location: a } of [window]); for (const k in { location }) seen.push(k); a.href",
  "let a; [{ location: a }] = [window]; [window.location] = [a]; ({ x: document.location } = { x: 3 }); document.location",
  "let a; seen.push(({ location: a } = window) === window); a.href",
  "switch (location.pathname) { case '/b': seen.push(1); default: location.pathname }",
  "try { throw { location: 2 } } catch ({ location: a }) { a }",
  "(0, window.location).href; void location; !location; -location.x; location.x ??= 4; location.x ||= 5; location.x",
  "eval('location.href') + Function('return location.href').call()",
  "'use strict'; (function () { return [typeof this, location.href] })()",
  "delete document.location; 'location' in document",
  "import('x').catch(() => 0); new.target?.location",
  "label: { if (location) break label; } a: location; ",
  "`${`${location.href}`}${((location) => location)`x`}`",
  "(location.x = 5, location.x++, --location.x, location.x **= 2)",
  "var { location: q = 3, location: r } = { location: undefined }; [q, r]",
  "const a = async location => location, b = async (location) => location; a(1); b.length",
  "(function location() { return typeof location })()",
  "if (location) function location2() {} \n else location.x\nwhile (!location);\ndo location.x; while (0)\nlocation.pathname",
];

test.each(ODD)("does as before: %s", (code) => {
  const asked = rewriteLocation({ code, kind: "script" });
  expect(outcome(asked ?? code)).toBe(outcome(code));
  expect(asked == null || asked.split("\n").length === code.split("\n").length).toBe(true);
});

test("what is the window's is another's, and what is not stays", () => {
  const code = "const { location: a } = window; (function (location) { return [location.n, a.href, document.location.href, { location: 2 }.location] })({ n: 1 })";
  const asked = rewriteLocation({ code, kind: "script" })!;
  const own = (value: unknown): unknown => (Object(value)["href"] || Object(value)["location"]?.href ? { href: "own", location: { href: "own" } } : value);
  expect(JSON.parse(outcome(asked, own) as string)[0]).toEqual([1, "own", "own", 2]);
});

test("a script with ever more of it takes no more time for each", () => {
  const code = "x.location = [location, { location }, a?.location.b];\n".repeat(5_000);
  expect(rewriteLocation({ code, kind: "script" })?.length).toBe(code.length + 5_000 * (4 * `${OWN}()`.length + "location: ".length));
});

test("a long chain of links takes no more time for each", () => {
  const code = `a?.b${".location".repeat(30_000)}`;
  expect(rewriteLocation({ code, kind: "script" })?.length).toBe(code.length + 30_000 * `${OWN}()?`.length);
});

test("modules are read as browsers read them", () => {
  const code = "const { location } = window; export const at = () => location.href; export default location;";
  const asked = rewriteLocation({ code, kind: "module" })!;
  expect(asked).toBe(`const { location } = ${OWN}(window); export const at = () => ${OWN}(location).href; export default ${OWN}(location);`);
});
