/** OpenAI-style tool calls, on the wire of Chat Completions and of Responses. */
import { expect, test } from "vitest";
import type { McpAppItem } from "./item";
import { toolCallItems } from "./openai";

const TOOLS = { tools: [{ name: "show_cart", title: "Cart", _meta: { ui: { resourceUri: "ui://shop/cart.html" } } }] };
const chunk = (delta: object, finish_reason: string | null = null) => ({ id: "x", object: "chat.completion.chunk", choices: [{ index: 0, delta, finish_reason }] });
const calls = (...tool_calls: object[]) => chunk({ tool_calls });

const last = (items: readonly McpAppItem[]) => items.at(-1);

test("chunks of Chat Completions, with two calls in turn", () => {
  const source = toolCallItems(TOOLS);
  expect(source.receive(chunk({ role: "assistant", content: "" }))).toEqual([]);
  source.receive(calls({ index: 0, id: "c1", type: "function", function: { name: "show_cart", arguments: "" } }));
  const partial = source.receive(calls({ index: 0, function: { arguments: '{"city":"Pa' } }));
  expect(partial).toMatchObject([{ mcp_app_id: "c1", title: "Cart", tool_input_partial: { city: "Pa" } }]);
  source.receive(calls({ index: 0, function: { arguments: 'ris"}' } }, { index: 1, id: "c2", function: { name: "weather", arguments: "{}" } }));
  expect(source.receive(chunk({}, "tool_calls"))).toMatchObject([{ tool_input: { city: "Paris" } }]);
  expect(source.receive({ role: "tool", tool_call_id: "c2", content: "rain" })).toEqual([]);
  const done = source.receive({ role: "tool", tool_call_id: "c1", content: '{"content":[{"type":"text","text":"2 items"}],"structuredContent":{"n":2}}' });
  expect(done).toMatchObject([{ tool_result: { structuredContent: { n: 2 } }, fallback_text: "2 items" }]);
  expect(source.items).toHaveLength(1);
});

test("each completion has its own indices", () => {
  const source = toolCallItems(TOOLS);
  for (const id of ["c1", "c2"]) {
    source.receive({ ...calls({ index: 0, id, function: { name: "show_cart", arguments: '{"n":1}' } }), id });
    source.receive({ ...chunk({}, "tool_calls"), id });
  }
  expect(source.items.map(({ tool_input: input }) => input)).toEqual([{ n: 1 }, { n: 1 }]);
});

test("stored messages have the items of then, and a call without an answer is cancelled", () => {
  const source = toolCallItems(TOOLS);
  source.receive({ role: "assistant", content: null, tool_calls: [{ id: "c1", type: "function", function: { name: "show_cart", arguments: '{"city":"Paris"}' } }] });
  source.receive({ role: "tool", tool_call_id: "c1", content: [{ type: "text", text: "2 items" }] });
  expect(last(source.items)).toMatchObject({ tool_input: { city: "Paris" }, tool_result: { content: [{ type: "text", text: "2 items" }] } });
  source.receive({ choices: [{ message: { role: "assistant", tool_calls: [{ id: "c2", function: { name: "show_cart", arguments: "no JSON" } }] } }] });
  expect(source.cancel()).toMatchObject([{ mcp_app_id: "c2", tool_input: {}, tool_cancelled: "The call was stopped." }]);
});

test("events of Responses: a function of the host, and a call at an MCP server", () => {
  const source = toolCallItems(TOOLS);
  const item = { type: "function_call", id: "fc_1", call_id: "c1", name: "show_cart", arguments: "" };
  source.receive({ type: "response.output_item.added", output_index: 0, item });
  const partial = source.receive({ type: "response.function_call_arguments.delta", item_id: "fc_1", delta: '{"city":"Pa' });
  expect(partial).toMatchObject([{ tool_input_partial: { city: "Pa" } }]);
  source.receive({ type: "response.function_call_arguments.done", item_id: "fc_1", arguments: '{"city":"Paris"}' });
  source.receive({ type: "response.output_item.done", item: { ...item, arguments: '{"city":"Paris"}' } });
  const done = source.receive({ type: "function_call_output", call_id: "c1", output: [{ type: "input_text", text: "2 items" }] });
  expect(done).toMatchObject([{ mcp_app_id: "c1", tool_input: { city: "Paris" }, tool_result: { content: [{ type: "text", text: "2 items" }] } }]);
  const call = { type: "mcp_call", id: "mcp_1", name: "show_cart", server_label: "shop", arguments: "{}" };
  source.receive({ type: "response.output_item.done", item: { ...call, output: "ok" } });
  source.receive({ type: "response.output_item.done", item: { ...call, id: "mcp_2", error: "no such city" } });
  expect(source.items.slice(1).map(({ tool_result: result }) => result)).toEqual([
    { content: [{ type: "text", text: "ok" }] },
    { content: [{ type: "text", text: "no such city" }], isError: true },
  ]);
});

test("a response that failed cancels its calls, and nonsense is ignored", () => {
  const source = toolCallItems(TOOLS);
  for (const nonsense of [null, 1, "x", [], {}, { choices: [null, {}] }, { role: "assistant", tool_calls: [1, {}] }, { type: "response.created" }]) {
    expect(source.receive(nonsense)).toEqual([]);
  }
  source.receive({ type: "response.output_item.added", item: { type: "function_call", id: "i", call_id: "c", name: "show_cart", arguments: "" } });
  expect(source.receive({ type: "response.incomplete", response: {} })).toMatchObject([{ tool_cancelled: "The call was stopped." }]);
});

test("many small pieces are not all read anew for each", () => {
  const source = toolCallItems(TOOLS);
  source.receive(calls({ index: 0, id: "c1", function: { name: "show_cart", arguments: '{"text":"' } }));
  for (let piece = 0; piece < 20_000; piece += 1) source.receive(calls({ index: 0, function: { arguments: "0123456789" } }));
  const read = last(source.items)!.tool_input_partial!["text"] as string;
  expect(read.length).toBeGreaterThan(196_000);
});
