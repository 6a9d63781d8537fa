import { expect, test } from "vitest";
import { headerValue, paramHeaders } from "./mcp-headers";
import { Model } from "./model";

interface Seen {
  headers: Record<string, string>;
  body: { id: number; method: string; params: Record<string, unknown> };
}

interface Said {
  status?: number;
  type: string;
  body: string;
}

/** A model whose server has scripted answers to each POST, with the requests that it received. */
function meet(answer: (seen: Seen) => Said): { model: Model; seen: Seen[] } {
  const seen: Seen[] = [];
  const server: typeof fetch = async (input, init) => {
    const request = new Request(input, init);
    const one = { headers: Object.fromEntries(request.headers), body: (await request.json()) as Seen["body"] };
    seen.push(one);
    const { status, type, body } = answer(one);
    return new Response(body, { status: status ?? 200, headers: { "content-type": type } });
  };
  return { model: new Model("http://gateway.localhost/mcp/cart", "1.0", server), seen };
}

function json(seen: Seen, result: object): Said {
  return { type: "application/json", body: JSON.stringify({ jsonrpc: "2.0", id: seen.body.id, result }) };
}

test("a call carries the headers and the envelope of protocol 2026-07-28", async () => {
  const { model, seen } = meet((one) =>
    json(one, { content: [{ type: "text", text: "done" }], structuredContent: { n: 1 } }),
  );
  const result = await model.callTool("cart_add_to_cart", { item_id: "mug" });
  expect(result).toEqual({ isError: false, texts: ["done"], structured: { n: 1 } });
  expect(seen[0]?.headers).toMatchObject({
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": "cart_add_to_cart",
    accept: "application/json, text/event-stream",
  });
  expect(seen[0]?.body.params).toMatchObject({
    name: "cart_add_to_cart",
    arguments: { item_id: "mug" },
    _meta: {
      "io.modelcontextprotocol/protocolVersion": "2026-07-28",
      "io.modelcontextprotocol/clientCapabilities": {},
    },
  });
});

test("an answer as event stream is read up to its own message", async () => {
  const note = { jsonrpc: "2.0", method: "notifications/progress", params: {} };
  const { model } = meet((one) => ({
    type: "text/event-stream",
    body: `: ping\r\n\r\nevent: message\r\ndata: ${JSON.stringify(note)}\r\n\r\ndata: ${json(one, { content: [], isError: true }).body}\r\n\r\n`,
  }));
  expect((await model.callTool("t", {})).isError).toBe(true);
});

test("all pages of the list are read", async () => {
  const { model } = meet((one) =>
    one.body.params["cursor"]
      ? json(one, { tools: [{ name: "b" }] })
      : json(one, { tools: [{ name: "a" }], nextCursor: "2" }),
  );
  expect((await model.listTools()).map((tool) => tool.name)).toEqual(["a", "b"]);
});

test("a JSON-RPC error and a problem document are errors with their own words", async () => {
  const error = { jsonrpc: "2.0", id: 1, error: { code: -32602, message: "pass view" } };
  const first = meet(() => ({ status: 400, type: "application/json", body: JSON.stringify(error) }));
  await expect(first.model.callTool("t", {})).rejects.toMatchObject({ code: -32602, message: "pass view" });
  const problem = { title: "Forbidden", detail: "This origin may not." };
  const second = meet(() => ({ status: 403, type: "application/problem+json", body: JSON.stringify(problem) }));
  await expect(second.model.callTool("t", {})).rejects.toMatchObject({ code: 403, message: "This origin may not." });
});

test("a gateway that is not there is said in words", async () => {
  const nothing = () => Promise.reject(new TypeError("Failed to fetch"));
  const model = new Model("http://gateway.localhost/mcp/cart", "1.0", nothing);
  await expect(model.listTools()).rejects.toThrow("The gateway does not answer.");
});

test("header values outside printable ASCII are wrapped", () => {
  expect(headerValue("cart_add")).toBe("cart_add");
  expect(headerValue("Größe")).toBe("=?base64?R3LDtsOfZQ==?=");
  expect(headerValue(" a")).toBe("=?base64?IGE=?=");
});

test("arguments that the schema marks are mirrored as headers", () => {
  const schema = {
    properties: {
      region: { type: "string", "x-mcp-header": "Region" },
      at: { properties: { n: { "x-mcp-header": "N" } } },
      other: {},
    },
  };
  expect(paramHeaders(schema, { region: "eu", at: { n: 3 }, other: 1 })).toEqual({
    "mcp-param-Region": "eu",
    "mcp-param-N": "3",
  });
});
