import twice, { count, bump, Shape as Form, "a b" as odd } from "./lib/counter.js";
import { other } from "lib/uses-other.js";
import data from "/modules/data.json" with { type: "json" };
const before = count;
bump()
;[1].forEach(bump)
const form = new Form(2), { area = count } = form;
seen.push(["first", before, count, twice(), area, odd, other, data.a, typeof this, import.meta.url.split("/").slice(3).join("/"), import.meta.resolve("lib/x.js").split("/").slice(3).join("/")]);
try { count = 5; } catch (error) { seen.push(error.constructor.name); }
