/** Events of AG-UI: the activities of its middleware for MCP Apps, and plain tool calls. */
import { EventType, type AGUIEvent, type ActivityMessage, type Message } from "@ag-ui/core";
import { EventSchema } from "@ag-ui/core/schemas";
import { expect, test, vi } from "vitest";
import { activityItems, MCP_APPS_ACTIVITY } from "./ag-ui";
import type { McpAppItem } from "./item";
import { applyPatch } from "./json-patch";
import type { AdapterOptions } from "./tool-calls";

const RESULT = { content: [{ type: "text", text: "ok" }], structuredContent: { n: 1 }, _meta: { launch: "x" } };
const CONTENT = { resourceUri: "ui://shop/cart.html", serverHash: "h", serverId: "shop", toolInput: { city: "Paris" }, result: RESULT };
const TOOLS: AdapterOptions = { tools: [{ name: "show_cart", title: "Cart", _meta: { ui: { resourceUri: "ui://shop/cart.html" } } }] };

/** The items that each event changed; every event is valid for AG-UI itself. */
function follow(options: AdapterOptions, events: AGUIEvent[]): McpAppItem[][] {
  const source = activityItems(options);
  return events.map((event) => {
    EventSchema.parse(event);
    return [...source.receive(event)];
  });
}

const CALL: AGUIEvent[] = [
  { type: EventType.TOOL_CALL_START, toolCallId: "c1", toolCallName: "show_cart" },
  { type: EventType.TOOL_CALL_ARGS, toolCallId: "c1", delta: '{"city":"Pa' },
  { type: EventType.TOOL_CALL_ARGS, toolCallId: "c1", delta: 'ris"}' },
  { type: EventType.TOOL_CALL_END, toolCallId: "c1" },
];
const ANSWER: AGUIEvent[] = [
  { type: EventType.TOOL_CALL_RESULT, messageId: "m1", toolCallId: "c1", content: "ok" },
  { type: EventType.ACTIVITY_SNAPSHOT, messageId: "a1", activityType: MCP_APPS_ACTIVITY, content: CONTENT, replace: true },
];

test("an activity is the item of the call before it, with the whole result", () => {
  const items = follow({}, [...CALL, ...ANSWER]);
  expect(items.slice(0, 5).flat()).toEqual([]);
  expect(items[5]).toMatchObject([
    { mcp_app_id: "c1", tool_call_id: "c1", tool_name: "show_cart", resource_uri: "ui://shop/cart.html", tool_input: { city: "Paris" }, tool_result: RESULT },
  ]);
});

test("with the list of tools, the app is there while the model writes, and stays one item", () => {
  const items = follow(TOOLS, [...CALL, ...ANSWER]);
  expect(items.map(([item]) => item?.mcp_app_id)).toEqual(Array(6).fill("c1"));
  expect(items.slice(0, 4).map(([item]) => item?.tool_input_partial ?? item?.tool_input)).toEqual([undefined, { city: "Pa" }, { city: "Paris" }, { city: "Paris" }]);
  expect(items[5]).toMatchObject([{ title: "Cart", tool_result: RESULT }]);
});

test("chunks continue the call before them, and a cancelled run cancels it", () => {
  const items = follow(TOOLS, [
    { type: EventType.TOOL_CALL_CHUNK, toolCallId: "c1", toolCallName: "show_cart", delta: '{"a":1,' },
    { type: EventType.TOOL_CALL_CHUNK, delta: '"b":2}' },
    { type: EventType.RUN_FINISHED, threadId: "t", runId: "r", outcome: { type: "cancelled" } },
  ]);
  expect(items[1]).toMatchObject([{ tool_input_partial: { a: 1, b: 2 } }]);
  expect(items[2]).toMatchObject([{ tool_cancelled: "The run was cancelled." }]);
  const failed = follow(TOOLS, [CALL[0]!, { type: EventType.RUN_ERROR, message: "no credit" }]);
  expect(failed[1]).toMatchObject([{ tool_cancelled: "no credit" }]);
});

test("an activity changes by patches; one that does not fit changes nothing", () => {
  const warn = vi.spyOn(console, "warn").mockImplementation(() => {});
  const snapshot: AGUIEvent = { type: EventType.ACTIVITY_SNAPSHOT, messageId: "a1", activityType: MCP_APPS_ACTIVITY, content: { resourceUri: "ui://x", serverHash: "h" } };
  const delta = (patch: object[]): AGUIEvent => ({ type: EventType.ACTIVITY_DELTA, messageId: "a1", activityType: MCP_APPS_ACTIVITY, patch: patch as never });
  const items = follow({}, [
    snapshot,
    delta([{ op: "add", path: "/toolInput", value: { city: "Pa" } }]),
    delta([{ op: "replace", path: "/missing/city", value: "Paris" }]),
    delta([{ op: "add", path: "/result", value: RESULT }]),
    { ...snapshot, replace: false },
  ]);
  expect(items.map((changed) => changed.length)).toEqual([1, 1, 0, 1, 0]);
  expect(warn).toHaveBeenCalledOnce();
  warn.mockRestore();
  expect(items[1]).toMatchObject([{ tool_input_partial: { city: "Pa" } }]);
  expect(items[3]).toMatchObject([{ mcp_app_id: "a1", tool_input: { city: "Pa" }, tool_result: RESULT }]);
});

test("a stored conversation has the items of then", () => {
  const stored: Message[] = [
    { id: "u", role: "user", content: "the cart" },
    { id: "s", role: "assistant", toolCalls: [{ id: "c1", type: "function", function: { name: "show_cart", arguments: '{"city":"Paris"}' } }] },
    { id: "t", role: "tool", toolCallId: "c1", content: "ok" },
    { id: "a1", role: "activity", activityType: MCP_APPS_ACTIVITY, content: CONTENT } satisfies ActivityMessage,
    { id: "a2", role: "activity", activityType: MCP_APPS_ACTIVITY, content: CONTENT },
    { id: "a3", role: "activity", activityType: "PLAN", content: { steps: [] } },
  ];
  const source = activityItems();
  source.receive({ type: EventType.MESSAGES_SNAPSHOT, messages: stored });
  expect(source.items.map((item) => [item.mcp_app_id, item.tool_input, item.tool_result])).toEqual([
    ["c1", { city: "Paris" }, RESULT],
    ["a2", { city: "Paris" }, RESULT],
  ]);
});

const DOCUMENT = { a: [1, 2, { "b/c": 3 }], "~": null };

test.each([
  [[{ op: "add", path: "/a/1", value: 9 }], { ...DOCUMENT, a: [1, 9, 2, { "b/c": 3 }] }],
  [[{ op: "add", path: "/a/-", value: 9 }], { ...DOCUMENT, a: [1, 2, { "b/c": 3 }, 9] }],
  [[{ op: "remove", path: "/a/2/b~1c" }], { ...DOCUMENT, a: [1, 2, {}] }],
  [[{ op: "move", from: "/~0", path: "/x" }], { a: DOCUMENT.a, x: null }],
  [[{ op: "copy", from: "/a/0", path: "/x" }], { ...DOCUMENT, x: 1 }],
  [[{ op: "test", path: "/a/2", value: { "b/c": 3 } }, { op: "replace", path: "", value: 5 }], 5],
])("the patch %j is applied (RFC 6902)", (patch, result) => {
  expect(applyPatch(DOCUMENT, patch)).toEqual(result);
});

test.each([
  [{ op: "add", path: "/a/9", value: 1 }],
  [{ op: "remove", path: "/b" }],
  [{ op: "replace", path: "a", value: 1 }],
  [{ op: "test", path: "/a/0", value: 2 }],
  [{ op: "add", path: "/~0/x", value: 1 }],
  [{ op: "add", path: "/__proto__/x", value: 1 }],
  [{ op: "fly", path: "/a" }],
])("the patch %j does not fit", (operation) => {
  expect(() => applyPatch(DOCUMENT, [operation])).toThrow(TypeError);
});
