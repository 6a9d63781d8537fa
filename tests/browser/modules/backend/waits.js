import { value } from "./value.js";
const { default: lazy, named } = await import(`./lazy-${value}.js`);
const failures = [];
for (const name of ["./gone.js", "nowhere", "blocked", "gone", "./text.js"]) {
  try { await import(name); failures.push("none"); } catch (error) { failures.push([error.constructor.name, /specifier|fetch/.exec(error.message)?.[0]]); }
}
const again = await import("./lib/counter.js");
const { default: sheet } = await import("./sheet.css", { with: { type: "css" } });
window.waits = (["waits", value, lazy(), lazy.name, named, failures, again === (await import("lib/counter.js")), again.count, sheet.cssRules.length]);
