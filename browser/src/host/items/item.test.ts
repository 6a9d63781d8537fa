/** The check of message items, and the reading of arguments that are still written. */
import { expect, test } from "vitest";
import { McpAppItemError, parseMcpAppItem } from "./item";
import { parsePartialObject } from "./partial-json";

const GOOD = { response_type: "mcp_app", title: "Cart", mcp_app_id: "cart-1", resource_uri: "ui://cart/app.html" };

test.each([
  GOOD,
  { ...GOOD, resource_uri: undefined, app: "cart" },
  { ...GOOD, resource_uri: null, resource_html: "<p>hi" },
  { ...GOOD, resource_uri: "mcp-app://cart", display_mode: "pip", tool_call_id: "1", tool_input: {}, tool_result: { structuredContent: {} } },
  { ...GOOD, user_defined: { any: 1 } },
])("%j is an item", (item) => {
  expect(parseMcpAppItem(item)).toBe(item);
});

test.each([
  [null, "item: is null; give an object"],
  [{ ...GOOD, response_type: "text" }, 'response_type: is "text"; write "mcp_app"'],
  [{ ...GOOD, title: " " }, "title: is \" \"; write the app's name, which heads its panel and workspace"],
  [{ ...GOOD, mcp_app_id: undefined }, "mcp_app_id: is missing; write an id that stays the same when the conversation is loaded again"],
  [{ ...GOOD, aria_label: 7 }, "aria_label: is the number 7; write a string, or leave it out"],
  [{ ...GOOD, resource_uri: "https://evil.test/" }, 'resource_uri: is "https://evil.test/"; write the ui:// or mcp-app:// address of the tool\'s `_meta.ui.resourceUri`'],
  [{ ...GOOD, resource_uri: undefined }, "resource_uri: is missing; write it, or `resource_html`, or `app` with the id of an app of the gateway"],
  [{ ...GOOD, resource_html: "" }, "resource_html: is empty; write the page, or leave the field out and write `resource_uri`"],
  [{ ...GOOD, display_mode: "full" }, 'display_mode: is "full"; write "inline", "fullscreen" or "pip"'],
  [{ ...GOOD, tool_input: [] }, "tool_input: is an array; write the arguments of the call as an object"],
  [{ ...GOOD, tool_result: "done" }, "tool_result: is no result of a tool; write an object with `content`, an array, or `structuredContent`, an object"],
])("%j is refused", (item, line) => {
  expect(() => parseMcpAppItem(item)).toThrow(new McpAppItemError([{ field: line.split(":")[0]!, message: line.slice(line.indexOf(":") + 2) }]));
});

test("a refusal has a line for each fault", () => {
  try {
    parseMcpAppItem({ response_type: "mcp_app" });
    expect.unreachable();
  } catch (error) {
    expect((error as McpAppItemError).problems.map(({ field }) => field)).toEqual(["title", "mcp_app_id", "resource_uri"]);
    expect((error as Error).message.split("\n")).toHaveLength(4);
  }
});

const WHOLE = '{"name": "Ada \\"L\\" \\\\u12 \\u00e9\\ud83d\\ude00 😀", "n": [1, -2.5e3, true, null, {"a": ""}], "last": false}';

test("each beginning of the arguments reads as a part of the whole", () => {
  const whole = JSON.parse(WHOLE) as Record<string, unknown>;
  expect(parsePartialObject(WHOLE)).toEqual(whole);
  for (let end = 1; end < WHOLE.length; end += 1) {
    const { name, n, last, ...rest } = parsePartialObject(WHOLE.slice(0, end)) as { name?: string; n?: unknown[]; last?: boolean };
    expect(rest).toEqual({});
    if (name !== undefined) expect(String(whole["name"]).startsWith(name) && !/[\ud800-\udbff]$/.test(name)).toBe(true);
    if (n?.length) expect(n.slice(0, 4)).toEqual((whole["n"] as unknown[]).slice(0, Math.min(n.length, 4)));
    if (last !== undefined) expect(last).toBe(false);
  }
});

test.each(["", "[1]", '"a', "x", "{'a': 1}", '{"a": 1 2', '{"a": tru1', '{"a": 01', "{".repeat(3), '{"a":'.repeat(200), '{"a": "\n"'])("%j is no object, or not yet", (text) => {
  const read = parsePartialObject(text);
  expect(read === null || Object.keys(read).length === 0).toBe(true);
});

test("a member named __proto__ is one like any other", () => {
  const read = parsePartialObject('{"__proto__": {"polluted": 1}, "b')!;
  expect(Object.keys(read)).toEqual(["__proto__"]);
  expect((read as { polluted?: number }).polluted).toBeUndefined();
});

test("a long text is read", () => {
  const text = `{"a": "${"x".repeat(3_000_000)}`;
  expect((parsePartialObject(text)!["a"] as string).length).toBe(3_000_000);
});
