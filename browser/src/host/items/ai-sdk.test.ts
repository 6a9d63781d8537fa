/** Tool parts as the AI SDK itself makes them of its stream. */
import { readUIMessageStream, type UIMessageChunk } from "ai";
import { expect, test } from "vitest";
import { toolPartItems } from "./ai-sdk";
import type { McpAppItem } from "./item";

const APP = { app: { resourceUri: "ui://shop/cart.html", mimeType: "text/html;profile=mcp-app" } };
const START = { type: "tool-input-start", toolCallId: "c1", toolName: "show_cart", dynamic: true, title: "Cart", toolMetadata: APP } as const;
const INPUT = { type: "tool-input-available", toolCallId: "c1", toolName: "show_cart", dynamic: true, input: { city: "Paris" }, toolMetadata: APP } as const;

/** The item after each message that the SDK makes of the chunks. */
async function follow(...chunks: UIMessageChunk[]): Promise<McpAppItem[]> {
  const stream = new ReadableStream<UIMessageChunk>({
    start(controller) {
      for (const chunk of [{ type: "start", messageId: "m" } as const, ...chunks]) controller.enqueue(chunk);
      controller.close();
    },
  });
  const source = toolPartItems({ item: { upstream: "shop" } });
  const seen: McpAppItem[] = [];
  for await (const message of readUIMessageStream({ stream })) seen.push(...source.receive(structuredClone(message)));
  return seen;
}

test("the arguments arrive in parts, then whole, then the result", async () => {
  const seen = await follow(
    START,
    { type: "tool-input-delta", toolCallId: "c1", inputTextDelta: '{"city":"Pa' },
    { type: "tool-input-delta", toolCallId: "c1", inputTextDelta: 'ris"}' },
    INPUT,
    { type: "tool-output-available", toolCallId: "c1", output: { content: [{ type: "text", text: "2 items" }], _meta: { x: 1 } } },
  );
  expect(seen.flatMap(({ tool_input_partial: partial }) => (partial ? [partial] : []))).toEqual([{ city: "Pa" }, { city: "Paris" }]);
  expect(seen.at(-1)).toEqual({
    response_type: "mcp_app",
    title: "Cart",
    mcp_app_id: "c1",
    fallback_text: "2 items",
    resource_uri: "ui://shop/cart.html",
    tool_name: "show_cart",
    tool_call_id: "c1",
    tool_input: { city: "Paris" },
    tool_result: { content: [{ type: "text", text: "2 items" }], _meta: { x: 1 } },
    upstream: "shop",
  });
});

test("structured output becomes a result, a preliminary one not yet, and an error a result with isError", async () => {
  const structured = await follow(
    START,
    INPUT,
    { type: "tool-output-available", toolCallId: "c1", output: { n: 1 }, preliminary: true },
    { type: "tool-output-available", toolCallId: "c1", output: { n: 2 } },
  );
  const results = structured.flatMap(({ tool_result: result }) => (result ? [result.structuredContent] : []));
  expect(results).toEqual([{ n: 2 }]);
  const failed = await follow(START, INPUT, { type: "tool-output-error", toolCallId: "c1", errorText: "no such city" });
  expect(failed.at(-1)!.tool_result).toEqual({ content: [{ type: "text", text: "no such city" }], isError: true });
});

test("a denied call is cancelled, and so is one that the person stops", async () => {
  const denied = await follow(
    START,
    INPUT,
    { type: "tool-approval-request", approvalId: "a", toolCallId: "c1" },
    { type: "tool-approval-response", approvalId: "a", approved: false, reason: "not now" },
    { type: "tool-output-denied", toolCallId: "c1" },
  );
  expect(denied.at(-1)).toMatchObject({ tool_input: { city: "Paris" }, tool_cancelled: "not now" });
  const source = toolPartItems();
  source.receive({ type: "tool-show_cart", toolCallId: "c2", state: "input-streaming", input: {}, toolMetadata: APP });
  expect(source.cancel("stopped by the person").map(({ tool_cancelled: reason }) => reason)).toEqual(["stopped by the person"]);
});

test("other tools have no item, a later state keeps the app, and the server's list names apps too", () => {
  const source = toolPartItems({ tools: [{ name: "open_map", title: "Map", _meta: { "ui/resourceUri": "ui://map" } }] });
  const state = { toolCallId: "c1", state: "input-available", input: {} };
  expect(source.receive({ type: "tool-weather", ...state })).toEqual([]);
  expect(source.receive({ type: "text", text: "hi" })).toEqual([]);
  expect(source.receive({ type: "tool-open_map", ...state, toolCallId: "c2" })).toMatchObject([{ title: "Map", resource_uri: "ui://map" }]);
  const metadata = { mcp: APP };
  source.receive({ type: "tool-old", ...state, toolCallId: "c3", callProviderMetadata: metadata });
  const later = source.receive({ type: "tool-old", ...state, toolCallId: "c3", state: "output-available", output: "x" });
  expect(later).toMatchObject([{ resource_uri: "ui://shop/cart.html" }]);
  expect(source.items).toHaveLength(2);
});
