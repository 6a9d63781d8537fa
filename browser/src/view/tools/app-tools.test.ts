import { beforeEach, expect, test } from "vitest";
import { createAppTools, type AppTools } from "./app-tools";
import type { Message } from "../host/json-rpc";
import { createRegistry, type Registry } from "./registry";

let registry: Registry;
let sent: Message[];
let runs: number;
let settle: () => void;
let tools: AppTools;

const moment = () => new Promise((resolve) => setTimeout(resolve, 5));
const add = (name: string) => registry.add({ definition: { name, description: "d", inputSchema: { type: "object" } }, execute: () => ++runs });
const ask = (id: number, method: string, params = {}) => tools.receive({ jsonrpc: "2.0", id, method, params });

beforeEach(() => {
  registry = createRegistry();
  sent = [];
  runs = 0;
  const settled = new Promise<void>((go) => (settle = go));
  tools = createAppTools(registry, {
    send: (message) => sent.push(message),
    isOffered: (name) => name !== "guarded",
    whenSettled: () => settled,
    beginCall: () => () => undefined,
    onFirstRequest: () => undefined,
  });
});

test("a call that is cancelled while it waits is neither run nor answered", async () => {
  add("add");
  ask(1, "tools/call", { name: "add" });
  ask(2, "tools/call", { name: "add" });
  expect(tools.cancel(1)).toBe(true);
  settle();
  await moment();
  expect([runs, sent.map(({ id }) => id)]).toEqual([1, [2]]);
  expect(tools.cancel(3)).toBe(false);
});

test("a host hears of changes of the tools that it may be given, also when the last one goes", async () => {
  add("guarded");
  tools.notifyChange();
  await moment();
  expect(sent).toEqual([]);
  add("add");
  tools.notifyChange();
  await moment();
  registry.remove(registry.get("add")!);
  tools.notifyChange();
  await moment();
  tools.notifyChange();
  await moment();
  expect(sent.map(({ method }) => method)).toEqual(Array(2).fill("notifications/tools/list_changed"));
});
