/** Bodies that are sent beside the frames, and values that only look like references to them. */
import { expect, test } from "vitest";
import { BODY_LIMIT, bodyNamed, isLarge, joinBody, splitBody, type Json, type JsonObject } from "./index";

const BODY = "b".repeat(22);
const call = (params: JsonObject): JsonObject => ({ jsonrpc: "2.0", id: "1", method: "tools/call", params });

test("a large message is split and joined", () => {
  const message = call({ arguments: { body: "é".repeat(BODY_LIMIT / 2) } });
  const split = splitBody(message, BODY);
  expect(isLarge(message)).toBe(true);
  expect(bodyNamed(split.message)).toBe(BODY);
  expect(joinBody(split.message, split.text)).toEqual(message);
});

test("a small message stays whole, whatever the app's own body is called", () => {
  const message = call({ arguments: { body: { $body: BODY } } });
  expect([isLarge(message), bodyNamed(message)]).toEqual([false, null]);
});

test("what looks like a name is split, so that a page can not name a body that it did not send", () => {
  const message = call({ $body: "x".repeat(22) });
  const split = splitBody(message, BODY);
  expect(isLarge(message)).toBe(true);
  expect(joinBody(split.message, split.text)).toEqual(message);
});

test.each<Json>([1, "", `../${"x".repeat(22)}`, "x".repeat(65), null])("the name %j is no id", (name) => {
  expect(() => bodyNamed(call({ $body: name }))).toThrow("$body");
});

test.each(["[]", "1", "{", "[".repeat(100)])("the body %s is no object", (text) => {
  expect(() => joinBody(call({ $body: BODY }), text)).toThrow();
});
