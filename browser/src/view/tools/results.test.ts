import { expect, test } from "vitest";
import { answerOf, toolFailure, toolResult } from "./results";

test("each kind of value becomes a result", () => {
  expect(toolResult("hello")).toEqual({ content: [{ type: "text", text: "hello" }] });
  expect(toolResult(undefined)).toEqual({ content: [] });
  expect(toolResult(null)).toEqual({ content: [] });
  expect(toolResult(5)).toEqual({ content: [{ type: "text", text: "5" }] });
  expect(toolResult([1])).toEqual({ content: [{ type: "text", text: "[1]" }] });
  expect(toolResult({ a: 1, f() {} })).toEqual({ content: [{ type: "text", text: '{"a":1}' }], structuredContent: { a: 1 } });
  expect(toolResult(() => 1)).toEqual({ content: [] });
});

test("an MCP result passes as it is", () => {
  const result = { content: [{ type: "text", text: "x" }], isError: true };
  expect(toolResult(result)).toEqual(result);
  expect(toolResult({ structuredContent: { a: 1 } })).toEqual({ structuredContent: { a: 1 }, content: [{ type: "text", text: '{"a":1}' }] });
});

test("a value nested too deeply for a message is text alone, a result of MCP an error", () => {
  const nested = (levels: number): object => Array.from({ length: levels - 1 }).reduce<object>((inner) => ({ a: inner }), {});
  expect(toolResult(nested(58)).structuredContent).toEqual(nested(58));
  expect(toolResult(nested(59))).toEqual({ content: [{ type: "text", text: JSON.stringify(nested(59)) }] });
  expect(() => toolResult({ content: [], structuredContent: nested(58) })).toThrow("nested deeper than 58 levels");
});

test("an object that only has a member named content is a value", () => {
  expect(toolResult({ content: "words" })["structuredContent"]).toEqual({ content: "words" });
});

test("what was thrown is told", () => {
  expect(toolFailure(new Error("boom"))).toEqual({ content: [{ type: "text", text: "boom" }], isError: true });
  expect(toolFailure("odd")).toEqual({ content: [{ type: "text", text: "odd" }], isError: true });
});

test("what cannot be read is told, too, and always as text", () => {
  const words = (thrown: unknown) => toolFailure(thrown).content[0]?.text;
  expect([new TypeError(), new DOMException("", "AbortError"), { message: "in an object" }, { message: 5 }, null, undefined].map(words)).toEqual([
    "TypeError", "AbortError", "in an object", "5", "null", "undefined",
  ]);
  const silent = new Error();
  Object.defineProperty(silent, "message", { get: () => { throw new Error("no"); } });
  expect([silent, Object.create(null), { toString: () => { throw 0; } }].map(words)).toEqual(["Error", "Error", "Error"]);
});

test("an answer is read from its text where the host dropped the structure", () => {
  expect(answerOf({ structuredContent: { a: 1 } })).toEqual({ a: 1 });
  expect(answerOf({ content: [{ type: "text", text: '{"a":1}' }] })).toEqual({ a: 1 });
  expect(answerOf({ content: [{ type: "text", text: "no" }] })).toBeUndefined();
});
