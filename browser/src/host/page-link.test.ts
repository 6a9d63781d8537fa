import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { PageLink } from "./page-link";

const ORIGIN = "https://sandbox.example";
const envelope = (payload: unknown) => ({ channel: "mcp-iframe", type: "mcp", direction: "server-to-client", payload });
const rpc = (id: number, method: string) => ({ jsonrpc: "2.0", id, method, params: {} });
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
let hear: ((event: { source: unknown; origin: string; data: unknown }) => void) | undefined;

const say = (data: unknown, source: unknown = page, origin = ORIGIN) => hear?.({ source, origin, data });

beforeEach(() => {
  vi.useFakeTimers();
  [posted, heard, ports] = [[], [], []];
  vi.stubGlobal("window", {
    addEventListener: (_: string, listener: typeof hear) => (hear = listener),
    removeEventListener: () => (hear = undefined),
  });
  const note = (name: string) => (...given: unknown[]) => void heard.push([name, ...given]);
  link = new PageLink(page, ORIGIN, {
    webmcp: note("webmcp"), gesture: note("gesture"), reloaded: note("reloaded"), emptied: note("emptied"), left: note("left"), flooded: note("flooded"),
  });
});

afterEach(() => {
  link.close();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

/** Takes up the ui protocol; what comes there. */
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

test("the page's tools are heard once they answered, and hear what waited", () => {
  say(envelope("mcp-server-ready")); // nobody has asked
  link.sendWebmcp(rpc(1, "initialize"));
  link.startChecking();
  vi.advanceTimersByTime(300); // the proxy is not there
  say(ready);
  say(envelope(rpc(9, "ping")));
  expect([heard, posted]).toEqual([[], []]);
  vi.advanceTimersByTime(300);
  say(envelope("mcp-server-ready"));
  say(envelope(rpc(9, "ping")));
  expect(heard).toEqual([["webmcp", rpc(9, "ping")]]);
  const sent = (payload: unknown) => [{ ...envelope(payload), direction: "client-to-server" }, ORIGIN];
  expect(posted).toEqual([sent("mcp-check-ready"), sent(rpc(1, "initialize"))]);
});

test("tools that answer at the port which came with the question are spoken with there alone", async () => {
  link.startChecking();
  say(ready);
  vi.advanceTimersByTime(600);
  const [first, second] = ports as [MessagePort, MessagePort];
  const came: unknown[] = [];
  const next = (port: MessagePort) => new Promise<void>((goOn) => (port.onmessage = ({ data }) => goOn(void came.push(data))));
  link.sendWebmcp(rpc(1, "initialize"));
  const atFirst = next(first);
  first.postMessage(envelope("mcp-server-ready"));
  await atFirst;
  // The second question was on its way, and the page answers there from now on.
  const atSecond = next(second);
  second.postMessage(envelope("mcp-server-ready"));
  second.postMessage(envelope(rpc(9, "ping")));
  second.postMessage(rpc(2, "tools/call"));
  await vi.waitFor(() => expect(heard).toEqual([["webmcp", rpc(9, "ping")]]));
  link.sendWebmcp(rpc(3, "tools/list"));
  await atSecond;
  const sent = (payload: unknown) => ({ ...envelope(payload), direction: "client-to-server" });
  expect(came).toEqual([sent(rpc(1, "initialize")), sent(rpc(3, "tools/list"))]);
  expect(posted).toEqual([[sent("mcp-check-ready"), ORIGIN], [sent("mcp-check-ready"), ORIGIN]]);
  expect(await ui()).toEqual([ready]);
});

test("a page that never answers, or by its window, keeps no ports", async () => {
  link.startChecking();
  say(ready);
  vi.advanceTimersByTime(300 * 65);
  ports[0]!.postMessage(envelope("mcp-server-ready"));
  ports[64]!.postMessage({ jsonrpc: "2.0", method: "ui/notifications/sandbox-gesture", params: { age: 3 } });
  say(envelope("mcp-server-ready"));
  ports[1]!.postMessage(envelope(rpc(1, "ping")));
  say(envelope(rpc(2, "ping")));
  vi.useRealTimers();
  await new Promise((goOn) => setTimeout(goOn, 50));
  expect(heard).toEqual([["webmcp", rpc(2, "ping")]]);
});

test("a page that says too much at a port is heard no more", async () => {
  link.startChecking();
  say(ready);
  vi.advanceTimersByTime(300);
  vi.useRealTimers();
  for (let count = 0; count < 10_000; count++) ports[0]!.postMessage(null);
  await vi.waitFor(() => expect(heard).toEqual([["flooded"]]));
});

test("what a port brings of the page before is not heard", async () => {
  link.startChecking();
  say(ready);
  vi.advanceTimersByTime(300);
  ports[0]!.postMessage(envelope("mcp-server-ready"));
  link.startChecking();
  vi.advanceTimersByTime(300);
  ports[1]!.postMessage(envelope("mcp-server-ready"));
  ports[0]!.postMessage(envelope(rpc(1, "ping")));
  ports[1]!.postMessage(envelope(rpc(2, "ping")));
  await vi.waitFor(() => expect(heard).toEqual([["webmcp", rpc(2, "ping")]]));
});

test("of a page that loads again nothing that the one before said is left", async () => {
  say(rpc(0, "ui/initialize"));
  expect(await ui()).toEqual([rpc(0, "ui/initialize")]);
  link.sendWebmcp(rpc(1, "initialize"));
  say(rpc(0, "ui/initialize"));
  say(rpc(1, "tools/call"));
  say({ ...rpc(0, "ui/initialize"), params: { again: true } });
  expect(heard).toEqual([["reloaded"], ["reloaded"]]);
  expect(await ui()).toEqual([{ ...rpc(0, "ui/initialize"), params: { again: true } }]);
  say(envelope("mcp-server-ready"));
  expect(posted).toEqual([]);
});

test("a proxy that says twice that it is there was loaded again", () => {
  say(ready);
  expect(heard).toEqual([]);
  say(ready);
  expect(heard).toEqual([["emptied"]]);
});

test("what a page says before anybody takes up the ui protocol is held, so much of it", async () => {
  for (let id = 0; id < 300; id++) say(rpc(id, "tools/call"));
  expect(await ui()).toHaveLength(256);
});

test("a page that says too much is heard no more", () => {
  for (let count = 0; count < 5001; count++) say(null);
  say(gesture);
  expect(heard).toEqual([["flooded"]]);
});
