import { expect, test } from "vitest";
import { callTool, stageOf, toolsOf, type Target } from "./callers";
import { Model } from "./model";
import type { JsonObject, LiveView, ViewTool } from "./types";

const TOOL: ViewTool = {
  name: "cart_get_cart",
  page_name: "get_cart",
  title: "",
  description: "",
  input_schema: { type: "object" },
  annotations: {},
};
const SIGNAL = new AbortController().signal;

function view(id: string, app = "cart"): LiveView {
  return { id, app, opened: 1, tools: [TOOL] };
}

/** A model, with the params of the calls that its server received. */
function modelAndCalls(): { model: Model; calls: JsonObject[] } {
  const calls: JsonObject[] = [];
  const model = new Model("http://gateway.localhost/mcp/cart", "1.0", async (_input, init) => {
    const { id, params } = JSON.parse(String(init?.body)) as { id: number; params: JsonObject };
    calls.push({ name: params["name"] ?? null, arguments: params["arguments"] ?? null });
    return Response.json({ jsonrpc: "2.0", id, result: { content: [] } });
  });
  return { model, calls };
}

test("the only view of an app is called by the model's name for the tool", async () => {
  const { model, calls } = modelAndCalls();
  await callTool(model, { view: "a", app: "cart", views: [view("a"), view("w", "wiki")] }, TOOL, { n: 1 }, SIGNAL);
  expect(calls).toEqual([{ name: "cart_get_cart", arguments: { n: 1 } }]);
});

test("one of several views is called by its handle", async () => {
  const { model, calls } = modelAndCalls();
  await callTool(model, { view: "b", app: "cart", views: [view("a"), view("b")] }, TOOL, { n: 1 }, SIGNAL);
  expect(calls).toEqual([{ name: "call_view_tool", arguments: { view: "b", tool: "get_cart", arguments: { n: 1 } } }]);
});

test("a story finds its tools by the page's names, in the view that is shown at that moment", async () => {
  const { model, calls } = modelAndCalls();
  let target: Target = { view: "a", app: "cart", views: [view("a")] };
  const stage = stageOf(
    () => model,
    () => target,
  );
  await stage.call("get_cart", {}, SIGNAL);
  expect(calls).toHaveLength(1);
  target = { ...target, views: [] };
  expect(toolsOf(target)).toEqual([]);
  await expect(stage.call("get_cart", {}, SIGNAL)).rejects.toThrow("get_cart");
});
