import { beforeEach, expect, test, vi } from "vitest";
import { createEnvelope, type Envelope } from "./envelope";
import type { Params } from "../host/json-rpc";
import { createRegistry, type Registry, type Tool } from "./registry";

let registry: Registry;
let sent: unknown[];
let envelope: Envelope;
let held: string[];
let settled: Promise<void>;

const tool = (name: string, execute: Tool["execute"] = () => name): Tool => ({
  definition: { name, description: "d", inputSchema: { type: "object" } },
  execute,
});
const receive = (payload: unknown) => envelope.receive({ direction: "client-to-server", payload });
const ask = (id: number, method: string, params: Params = {}) => receive({ jsonrpc: "2.0", id, method, params });
const moment = () => new Promise((resolve) => setTimeout(resolve, 5));

beforeEach(() => {
  registry = createRegistry();
  sent = [];
  held = [];
  settled = Promise.resolve();
  envelope = createEnvelope(registry, {
    app: "cart",
    send: ({ payload }) => sent.push(payload),
    isOffered: (name) => !held.includes(name),
    whenSettled: () => settled,
    beginCall: () => () => undefined,
    onFirstRequest: () => undefined,
  });
});

function open(): void {
  envelope.announce();
  ask(0, "initialize", { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "t", version: "1" } });
  receive({ jsonrpc: "2.0", method: "notifications/initialized" });
  sent.length = 0;
}

test("it answers nothing before it is ready, then says so once", () => {
  receive("mcp-check-ready");
  ask(1, "ping");
  expect(sent).toEqual([]);
  envelope.announce();
  envelope.announce();
  expect(sent).toEqual(["mcp-server-ready"]);
  receive("mcp-check-ready");
  expect(sent).toEqual(["mcp-server-ready", "mcp-server-ready"]);
});

test("a host whose question was lost hears that it is there all the same", () => {
  envelope.announce();
  expect(sent).toEqual(["mcp-server-ready"]);
  ask(1, "ping");
  expect(sent.pop()).toMatchObject({ id: 1, result: {} });
});

test("whoever asks with a port is answered there, until somebody asks without one", async () => {
  const { port1, port2 } = new MessageChannel();
  const came: unknown[] = [];
  port1.onmessage = ({ data }) => came.push(data);
  const wrapped = (payload: unknown, direction = "server-to-client") => ({ channel: "mcp-iframe", type: "mcp", direction, payload });
  envelope.receive({ direction: "client-to-server", payload: "mcp-check-ready" }, port2);
  envelope.announce();
  for (const garbage of [null, 5, "x", {}, wrapped({ jsonrpc: "2.0", id: 1, method: "ping" })]) port1.postMessage(garbage);
  port1.postMessage(wrapped({ jsonrpc: "2.0", id: 2, method: "ping" }, "client-to-server"));
  await vi.waitFor(() => expect(came).toEqual([wrapped("mcp-server-ready"), wrapped({ jsonrpc: "2.0", id: 2, result: {} })]));
  expect(sent).toEqual([]);
  receive("mcp-check-ready");
  ask(3, "ping");
  expect(sent).toEqual(["mcp-server-ready", { jsonrpc: "2.0", id: 3, result: {} }]);
  port1.close();
});

test("beyond that it never begins by itself", async () => {
  envelope.announce();
  registry.add(tool("a"));
  await moment();
  expect(sent).toEqual(["mcp-server-ready"]);
});

test("a host that lists and calls at once waits until the offered tools are known", async () => {
  let settle = (): void => {};
  settled = new Promise((go) => (settle = go));
  open();
  registry.add(tool("a"));
  held.push("a");
  await moment();
  sent.length = 0;
  ask(1, "tools/list");
  ask(2, "tools/call", { name: "a" });
  ask(3, "tools/call", { name: "a" });
  receive({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 3 } });
  await moment();
  expect(sent).toEqual([]);
  held.length = 0;
  settle();
  await moment();
  expect(sent).toMatchObject([{ id: 1, result: { tools: [{ name: "a" }] } }, { id: 2, result: { content: [{ text: "a" }] } }]);
});

test("initialize, list and call", async () => {
  envelope.announce();
  registry.add(tool("a", ({ x }) => ({ got: x })));
  ask(1, "initialize", { protocolVersion: "2025-11-25" });
  expect(sent.pop()).toMatchObject({ id: 1, result: { protocolVersion: "2025-11-25", capabilities: { tools: { listChanged: true } } } });
  ask(2, "tools/list");
  await moment();
  expect(sent.pop()).toMatchObject({ id: 2, result: { tools: [{ name: "a", description: "d" }] } });
  ask(3, "tools/call", { name: "a", arguments: { x: 1 } });
  await moment();
  expect(sent.pop()).toMatchObject({ id: 3, result: { structuredContent: { got: 1 } } });
});

test("of very many tools the first are listed: no host would carry all", async () => {
  open();
  held.push("t0");
  for (let count = 0; count < 20_000; count++) registry.add(tool(`t${count}`));
  sent.length = 0;
  ask(1, "tools/list");
  await moment();
  const { tools } = (sent.pop() as { result: { tools: { name: string }[] } }).result;
  expect([tools.length, tools[0]!.name, tools.at(-1)!.name]).toEqual([200, "t1", "t200"]);
});

test("what is unknown, held, or comes before initialize is refused", async () => {
  envelope.announce();
  ask(1, "tools/list");
  expect(sent.pop()).toMatchObject({ id: 1, error: { code: -32600 } });
  open();
  registry.add(tool("secret"));
  held.push("secret");
  await moment();
  sent.length = 0;
  ask(2, "tools/call", { name: "secret" });
  ask(3, "tools/call", { name: "none" });
  ask(4, "resources/list");
  await moment();
  expect(sent).toMatchObject([
    { id: 4, error: { code: -32601 } },
    { id: 2, error: { code: -32602, message: expect.stringContaining("through the gateway") } },
    { id: 3, error: { code: -32602 } },
  ]);
});

test("a thrown error is an isError result with its message", async () => {
  open();
  registry.add(tool("a", () => { throw new Error("boom"); }));
  await moment();
  sent.length = 0;
  ask(1, "tools/call", { name: "a" });
  await moment();
  expect(sent).toMatchObject([{ id: 1, result: { isError: true, content: [{ type: "text", text: "boom" }] } }]);
});

test("a cancelled call aborts the page's signal and is not answered", async () => {
  open();
  let signal: AbortSignal | undefined;
  registry.add(tool("slow", (_, client) => new Promise((resolve) => {
    signal = client.signal;
    setTimeout(() => resolve("late"), 20);
  })));
  await moment();
  sent.length = 0;
  ask(7, "tools/call", { name: "slow" });
  await moment();
  receive({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 7, reason: "no more" } });
  await new Promise((resolve) => setTimeout(resolve, 40));
  expect(signal?.reason).toMatchObject({ name: "AbortError", message: "no more" });
  expect(sent).toEqual([]);
});

test("a second call under an id that runs is refused: the first has the answer", async () => {
  open();
  registry.add(tool("slow", async () => "once"));
  await moment();
  sent.length = 0;
  ask(7, "tools/call", { name: "slow" });
  ask(7, "tools/call", { name: "slow" });
  await moment();
  expect(sent).toMatchObject([{ id: 7, error: { message: "Call 7 is running" } }, { id: 7, result: { content: [{ text: "once" }] } }]);
});

test("no change is told before the peer is initialized", async () => {
  envelope.announce();
  ask(0, "initialize", { protocolVersion: "2025-11-25" });
  sent.length = 0;
  registry.add(tool("a"));
  await moment();
  expect(sent).toEqual([]);
});

test("changes of a moment are one list_changed", async () => {
  open();
  registry.add(tool("a"));
  registry.add(tool("b"));
  await moment();
  expect(sent).toEqual([{ jsonrpc: "2.0", method: "notifications/tools/list_changed", params: {} }]);
});

test("garbage and its own direction are ignored", () => {
  open();
  for (const payload of [null, 5, "x", [], {}, { jsonrpc: "1.0", id: 1, method: "ping" }, { jsonrpc: "2.0", id: {}, method: "ping" }]) receive(payload);
  envelope.receive({ direction: "server-to-client", payload: { jsonrpc: "2.0", id: 1, method: "ping" } });
  expect(sent).toEqual([]);
});
