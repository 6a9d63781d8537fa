import { expect, test } from "vitest";
import { createUi, type Parts } from "./ui";
import { HANDLED } from "./wire";

const rpc = { jsonrpc: "2.0" };
const LAUNCH = { "webmcp-gateway/launch": "SECRET", other: 1 };

/** The channel with parts that record their calls; `open` and `pageClients` are of the handshake. */
function channel({ open = true, pageClients = 0 } = {}) {
  const told: unknown[][] = [];
  const note = (name: string, gives?: unknown) => (...given: unknown[]) => (told.push([name, ...given]), gives);
  const parts = {
    appTools: { receive: note("appTools.receive"), cancel: (id: unknown) => id === "tool" },
    calls: { sendFromPage: note("calls.sendFromPage"), cancelFromPage: (id: unknown) => id === "held", readAnswer: (message: unknown) => message },
    envelope: { receive: note("envelope.receive") },
    handshake: { isOpen: () => open, pageClients: () => pageClients, receiveAnswer: () => undefined, storeNotification: note("storeNotification"), receiveInitialize: note("receiveInitialize"), receiveInitialized: note("receiveInitialized") },
    pageTools: { runIfClosed: () => undefined, update: note("update"), receive: () => false },
    proof: { setLaunchValue: note("setLaunchValue") },
    relay: { close: note("relay.close") },
    reports: { acknowledge: note("acknowledge") },
    requests: { receive: ({ id, params }: { id?: unknown; params?: { progressToken?: unknown } }) => (id ?? params?.progressToken) === "own" },
  } as unknown as Parts;
  const ui = createUi({ toHost: note("toHost"), toPage: note("toPage") }, parts);
  return { ...ui, told };
}

test("the page sees neither answers to the runtime's own requests nor what is told of these", () => {
  const { fromHost } = channel();
  const progress = (progressToken: string) => ({ ...rpc, method: "notifications/progress", params: { progressToken, progress: 1 } });
  expect(fromHost({ ...rpc, id: "own", result: {} })).toBe(HANDLED);
  expect(fromHost(progress("own"))).toBe(HANDLED);
  for (const message of [{ ...rpc, id: 1, result: {} }, progress("page's")]) expect(fromHost(message)).toBe(message);
});

test("a launch value is taken from the result of a tool alone, and the page sees none", () => {
  const { fromHost, told } = channel();
  const seen = { _meta: { other: 1 } };
  for (const method of ["ui/notifications/tool-input", "ui/notifications/tool-result"]) {
    expect(fromHost({ ...rpc, method, params: { _meta: LAUNCH } })).toEqual({ ...rpc, method, params: seen });
  }
  expect(fromHost({ ...rpc, id: 1, result: { _meta: LAUNCH } })).toEqual({ ...rpc, id: 1, result: seen });
  expect(told.filter(([what]) => what === "setLaunchValue")).toEqual([["setLaunchValue", "SECRET"]]);
});

test("what a host asks before the view is initialized is for the page", () => {
  const { fromHost, told } = channel({ open: false });
  for (const method of ["tools/list", "tools/call", "ping", "ui/resource-teardown"]) {
    const message = { ...rpc, id: 1, method };
    expect(fromHost(message)).toBe(message);
  }
  expect(told).toEqual([]);
});

test("a client of the page is asked too, but for tools", () => {
  const { fromHost, told } = channel({ pageClients: 1 });
  const ping = { ...rpc, id: 1, method: "ping" };
  expect(fromHost(ping)).toBe(ping);
  expect(fromHost({ ...rpc, id: 2, method: "tools/list" })).toBe(HANDLED);
  expect(told.map(([what]) => what)).toEqual(["appTools.receive"]);
});

test("of what the page says the host hears all but the runtime's own part", () => {
  const { fromPage, told } = channel();
  const cancelled = (requestId: string) => ({ ...rpc, method: "notifications/cancelled", params: { requestId } });
  const call = (name: string) => ({ ...rpc, id: 1, method: "tools/call", params: { name } });
  const dealt = [
    { ...rpc, id: 0, method: "ui/initialize" }, { ...rpc, method: "ui/notifications/initialized" }, call("http_request"), cancelled("held"),
    { channel: "mcp-iframe", type: "mcp", direction: "server-to-client", payload: "mcp-server-ready" },
  ];
  expect(dealt.map(fromPage)).toEqual(dealt.map(() => true));
  expect([call("add"), cancelled("sent"), { ...rpc, id: 1, result: {} }, "a word of its own"].map(fromPage)).toEqual([false, false, false, false]);
  expect(told.map(([what]) => what)).toEqual(["receiveInitialize", "receiveInitialized", "update", "calls.sendFromPage"]);
});
