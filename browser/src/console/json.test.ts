import { expect, test } from "vitest";
import { pretty } from "./json";

test("JSON gets its lines", () => {
  expect(pretty('{"a": [1, "x \\" y"]}')).toBe('{\n  "a": [\n    1,\n    "x \\" y"\n  ]\n}');
});

test.each(['{"a":1,"a":2}', "[12345678901234567890]", '["\\u202e"]', "[1e2]", "a=1&b=2", '{"a":'])(
  "%s would lose something, and stays as it was sent",
  (source) => expect(pretty(source)).toBe(source),
);
