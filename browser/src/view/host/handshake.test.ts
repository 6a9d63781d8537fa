import { beforeEach, expect, test } from "vitest";
import { createHandshake, type Handshake } from "./handshake";
import type { Message, Params, Request } from "./json-rpc";

let toHost: Message[];
let toPage: Message[];
let asked: Params[];
let answer: ((result: Params) => void) | undefined;
let timers: (() => void)[];
let handshake: Handshake;

const result = { protocolVersion: "2026-01-26", hostCapabilities: { serverTools: {} }, hostContext: { "webmcp-gateway": { bridge: true } } };
const initialize = (id: number, appCapabilities: Params = {}): Request => ({
  jsonrpc: "2.0", id, method: "ui/initialize", params: { appInfo: { name: "p", version: "1" }, appCapabilities, protocolVersion: "2026-01-26" },
});
const initialized = { jsonrpc: "2.0" as const, method: "ui/notifications/initialized" };
const moment = () => new Promise((resolve) => setTimeout(resolve, 1));

beforeEach(() => {
  [toHost, toPage, asked, timers] = [[], [], [], []];
  handshake = createHandshake({
    app: "cart",
    title: "Cart",
    toHost: (message) => toHost.push(message),
    toPage: (message) => toPage.push(message),
    send: (_, params) => new Promise((resolve) => { asked.push(params); answer = resolve; }),
    later: (run) => timers.push(run),
  });
});

test("alone it initializes once, and says initialized", async () => {
  handshake.begin();
  handshake.begin();
  expect(asked).toEqual([{ appInfo: { name: "cart", title: "Cart", version: "1" }, appCapabilities: { tools: { listChanged: true } }, protocolVersion: "2026-01-26" }]);
  answer?.(result);
  expect(await handshake.host()).toEqual({ capabilities: { serverTools: {} }, ours: true, showsApprovals: false });
  expect(toHost).toEqual([{ ...initialized, params: {} }]);
});

test("it goes along with the page's own initialize, and adds the tools to it", async () => {
  handshake.receiveInitialize(initialize(0, { availableDisplayModes: ["inline"] }));
  handshake.begin();
  expect(asked).toEqual([]);
  expect(toHost).toMatchObject([{ id: 0, params: { appCapabilities: { availableDisplayModes: ["inline"], tools: { listChanged: true } } } }]);
  handshake.receiveAnswer({ jsonrpc: "2.0", id: 1, result: { hostContext: {} } });
  handshake.receiveAnswer({ jsonrpc: "2.0", id: 0, result });
  expect(handshake.isOpen()).toBe(false);
  handshake.receiveInitialized(initialized);
  expect(await handshake.host()).toMatchObject({ ours: true });
  expect(toHost[1]).toEqual(initialized);
  expect([handshake.pageClients(), handshake.pageHasTools()]).toEqual([1, false]);
});

test("a page that comes late gets the same answer, and what was sent once; the host hears nothing", async () => {
  handshake.begin();
  answer?.(result);
  await handshake.host();
  const shown = { jsonrpc: "2.0" as const, method: "ui/notifications/tool-result", params: { content: [] } };
  handshake.storeNotification(shown);
  handshake.storeNotification({ jsonrpc: "2.0", method: "notifications/other" });
  toHost.length = 0;
  handshake.receiveInitialize(initialize(0, { tools: {} }));
  await moment();
  handshake.receiveInitialized(initialized);
  expect(toPage).toEqual([{ jsonrpc: "2.0", id: 0, result }, shown]);
  expect(toHost).toEqual([]);
  expect(handshake.pageHasTools()).toBe(true);
});

test("what a page has heard itself is not told again to a second client of it", async () => {
  handshake.receiveInitialize(initialize(0));
  handshake.receiveAnswer({ jsonrpc: "2.0", id: 0, result });
  handshake.receiveInitialized(initialized);
  handshake.storeNotification({ jsonrpc: "2.0", method: "ui/notifications/tool-result", params: { content: [] } });
  handshake.receiveInitialized(initialized);
  expect(toPage).toEqual([]);
});

test("what the host turned out to be without is tried again after a while, and when its context changes", async () => {
  handshake.begin();
  answer?.(result);
  await handshake.host();
  const can = [() => timers.at(-1)?.(), () => handshake.storeNotification({ jsonrpc: "2.0", method: "ui/notifications/host-context-changed", params: {} })].map((again) => {
    handshake.withdraw("serverTools");
    const without = handshake.can("serverTools");
    again();
    return [without, handshake.can("serverTools")];
  });
  expect(can).toEqual([[false, true], [false, true]]);
});

test("after a script of the page that blocks all of the first timer, an answer that waits is still taken", async () => {
  handshake.begin();
  const host = handshake.host();
  timers[0]?.();
  await moment();
  answer?.(result);
  expect(await host).toMatchObject({ ours: true });
});

test("five seconds of silence mean that there is no host; a late answer makes one", async () => {
  handshake.begin();
  timers[0]?.();
  timers[1]?.();
  expect(await handshake.host()).toBeUndefined();
  answer?.(result);
  await moment();
  expect(await handshake.host()).toMatchObject({ ours: true });
});
