import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { PageLink } from "./page-link";

const ORIGIN = "https://sandbox.example";
const envelope = (payload: unknown) => ({ channel: "mcp-iframe", type: "mcp", direction: "server-to-client", payload });
const rpc = (id: number, method: string, params = {}) => ({ jsonrpc: "2.0", id, method, params });
const toolCall = (id: number) => rpc(id, "tools/call", { name: "http_request" });
const gesture = { jsonrpc: "2.0", method: "ui/notifications/sandbox-gesture", params: { age: 3 } };
const ready = { jsonrpc: "2.0", method: "ui/notifications/sandbox-proxy-ready", params: {} };

const page = {
  postMessage: (message: unknown, origin: string, given: unknown[]) => {
    posted.push([message, origin]);
    for (const one of given) if (one instanceof MessagePort) ports.push(one);
  },
} as unknown as Window;
let ports: MessagePort[];
let posted: unknown[][];
let heard: unknown[][];
let link: PageLink;
let hear: ((event: { source: unknown; origin: string; data: unknown; ports: MessagePort[] }) => void) | undefined;

const say = (data: unknown, source: unknown = page, origin = ORIGIN, given: MessagePort[] = []) => hear?.({ source, origin, data, ports: given });

beforeEach(() => {
  vi.useFakeTimers();
  [posted, heard, ports] = [[], [], []];
  vi.stubGlobal("window", {
    addEventListener: (_: string, listener: typeof hear) => (hear = listener),
    removeEventListener: () => (hear = undefined),
  });
  const note = (name: string) => (...given: unknown[]) => void heard.push([name, ...given]);
  link = new PageLink(page, ORIGIN, {
    onWebmcp: note("webmcp"), onInitialize: () => {}, onGesture: note("gesture"), onReload: note("reloaded"), onEmpty: note("emptied"), onLeave: note("left"), onDocumentWanted: note("document-wanted"), onBlocked: note("blocked"), onFlood: note("flooded"),
  });
});

afterEach(() => {
  link.close();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

/** Starts the ui protocol; returns the received messages. */
async function ui(): Promise<unknown[]> {
  const messages: unknown[] = [];
  const transport = link.uiTransport();
  transport.onmessage = (message) => void messages.push(message);
  await transport.start();
  return messages;
}

test("a page is heard from its own window and origin alone", () => {
  say(gesture, {});
  say(gesture, page, "https://elsewhere.example");
  say(gesture, page, "null");
  expect(heard).toEqual([]);
  say(gesture);
  expect(heard).toEqual([["gesture", 3]]);
});

const asked = (payload: unknown) => ({ ...envelope(payload), direction: "client-to-server" });
const check = [asked("mcp-check-ready"), ORIGIN];

/** The page announces its tools; returns the port of the readiness check. */
function announced(): MessagePort {
  link.expectTools();
  say(ready);
  say(envelope("mcp-server-ready"));
  return ports.at(-1)!;
}

test("a page that announces no tools is told nothing of them", async () => {
  link.expectTools();
  say(ready);
  say(rpc(0, "ui/initialize"));
  say({ jsonrpc: "2.0", method: "ui/notifications/initialized" });
  link.sendWebmcp(rpc(1, "initialize"));
  say(envelope(rpc(9, "ping"))); // unsolicited
  vi.advanceTimersByTime(60_000);
  expect([heard, posted]).toEqual([[], []]);
  expect(await ui()).toHaveLength(3);
});

test("tools that announce themselves are asked once, and hear what waited when they answered", () => {
  say(ready);
  say(envelope("mcp-server-ready")); // before they are wanted
  link.sendWebmcp(rpc(1, "initialize"));
  expect(posted).toEqual([]);
  link.expectTools();
  say(envelope(rpc(9, "ping")));
  expect([heard, posted]).toEqual([[], [check]]);
  say(envelope("mcp-server-ready"));
  say(envelope(rpc(9, "ping")));
  expect(heard).toEqual([["webmcp", rpc(9, "ping")]]);
  vi.advanceTimersByTime(60_000);
  expect(posted).toEqual([check, [asked(rpc(1, "initialize")), ORIGIN]]);
});

test("tools that answer at the port which came with the question are spoken with there alone", async () => {
  const port = announced();
  const came: unknown[] = [];
  const next = () => new Promise<void>((goOn) => (port.onmessage = ({ data }) => goOn(void came.push(data))));
  link.sendWebmcp(rpc(1, "initialize"));
  const first = next();
  port.postMessage(envelope("mcp-server-ready"));
  await first;
  port.postMessage(envelope(rpc(9, "ping")));
  port.postMessage(rpc(2, "tools/call"));
  say(envelope("mcp-server-ready")); // an unsolicited announcement has no effect
  await vi.waitFor(() => expect(heard).toEqual([["webmcp", rpc(9, "ping")]]));
  const second = next();
  link.sendWebmcp(rpc(3, "tools/list"));
  await second;
  expect(came).toEqual([asked(rpc(1, "initialize")), asked(rpc(3, "tools/list"))]);
  expect(posted).toEqual([check]);
  expect(await ui()).toEqual([ready]);
});

test("a page that answers by its window keeps no port", async () => {
  const port = announced();
  say(envelope("mcp-server-ready"));
  port.postMessage(envelope(rpc(1, "ping")));
  say(envelope(rpc(2, "ping")));
  vi.useRealTimers();
  await new Promise((goOn) => setTimeout(goOn, 50));
  expect(heard).toEqual([["webmcp", rpc(2, "ping")]]);
});

test("tools that stop are asked again when they announce themselves again", () => {
  announced();
  say(envelope("mcp-server-ready"));
  say(envelope("mcp-server-stopped"));
  link.sendWebmcp(rpc(1, "initialize"));
  expect(posted).toEqual([check]);
  say(envelope("mcp-server-ready"));
  expect(posted).toEqual([check, check]);
});

test("a page whose view is another now is asked at once: it has announced its tools", () => {
  announced();
  say(envelope("mcp-server-ready"));
  link.expectTools();
  expect(posted).toEqual([check, check]);
});

test("a page that says too much at a port is heard no more", async () => {
  const port = announced();
  vi.useRealTimers();
  for (let count = 0; count < 10_000; count++) port.postMessage(null);
  await vi.waitFor(() => expect(heard).toEqual([["flooded"]]));
});

test("what a port brings of the page before is not heard", async () => {
  const before = announced();
  before.postMessage(envelope("mcp-server-ready"));
  link.expectTools();
  const now = ports.at(-1)!;
  now.postMessage(envelope("mcp-server-ready"));
  before.postMessage(envelope(rpc(1, "ping")));
  now.postMessage(envelope(rpc(2, "ping")));
  await vi.waitFor(() => expect(heard).toEqual([["webmcp", rpc(2, "ping")]]));
});

test("of a page that loads again nothing that the one before said is left", async () => {
  say(rpc(0, "ui/initialize"));
  expect(await ui()).toEqual([rpc(0, "ui/initialize")]);
  link.sendWebmcp(rpc(1, "initialize"));
  say(rpc(0, "ui/initialize"));
  say(toolCall(1));
  say({ ...rpc(0, "ui/initialize"), params: { again: true } });
  expect(heard).toEqual([["reloaded"], ["reloaded"]]);
  expect(await ui()).toEqual([{ ...rpc(0, "ui/initialize"), params: { again: true } }]);
  say(envelope("mcp-server-ready"));
  say(envelope("mcp-server-ready"));
  expect(posted).toEqual([check]); // messages for the previous page are dropped
});

test("an initialized page that transferred a port hears this host there, until it loads again", async () => {
  const { port1, port2 } = new MessageChannel();
  const arrived: unknown[] = [];
  const transport = link.uiTransport();
  await transport.start();
  const answer = (id: number) => ({ jsonrpc: "2.0" as const, id, result: {} });
  say(rpc(0, "ui/initialize"), page, ORIGIN, [port2]);
  await transport.send(answer(0));
  say({ jsonrpc: "2.0", method: "ui/notifications/initialized" });
  const heardByPort = new Promise((go) => (port1.onmessage = ({ data }) => arrived.push(data) === 2 && go(true)));
  const body = new Uint8Array([1, 2]).buffer;
  await transport.send(answer(1));
  await transport.send({ ...answer(2), result: { structuredContent: { body } } });
  await heardByPort;
  expect(arrived).toEqual([answer(1), { ...answer(2), result: { structuredContent: { body: new Uint8Array([1, 2]).buffer } } }]);
  expect(body.byteLength).toBe(0); // transferred
  say(rpc(0, "ui/initialize"));
  await transport.send(answer(0));
  expect(posted).toEqual([[answer(0), ORIGIN], [answer(0), ORIGIN]]);
});

test("a proxy that says twice that it is there was loaded again", () => {
  say(ready);
  expect(heard).toEqual([]);
  say(ready);
  expect(heard).toEqual([["emptied"]]);
});

test("what a page says before anybody takes up the ui protocol is held, so much of it", async () => {
  for (let id = 0; id < 300; id++) say(toolCall(id));
  expect(await ui()).toHaveLength(256);
});

test("a page that says too much is heard no more", () => {
  for (let count = 0; count < 5001; count++) say(null);
  say(gesture);
  expect(heard).toEqual([["flooded"]]);
});
