import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { PageLink } from "./page-link";

const ORIGIN = "https://sandbox.example";
const envelope = (payload: unknown) => ({ channel: "mcp-iframe", type: "mcp", direction: "server-to-client", payload });
const rpc = (id: number, method: string) => ({ jsonrpc: "2.0", id, method, params: {} });
const gesture = { jsonrpc: "2.0", method: "ui/notifications/sandbox-gesture", params: { age: 3 } };
const ready = { jsonrpc: "2.0", method: "ui/notifications/sandbox-proxy-ready", params: {} };

const page = { postMessage: (message: unknown, origin: string) => posted.push([message, origin]) } as unknown as Window;
let posted: unknown[][];
let heard: unknown[][];
let link: PageLink;
let hear: ((event: { source: unknown; origin: string; data: unknown }) => void) | undefined;

const say = (data: unknown, source: unknown = page, origin = ORIGIN) => hear?.({ source, origin, data });

beforeEach(() => {
  vi.useFakeTimers();
  [posted, heard] = [[], []];
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
