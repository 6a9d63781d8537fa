import { beforeEach, expect, test } from "vitest";
import { createActivity, type Activity } from "../tools/activity";
import { createCalls, NoHostError, type Calls } from "./calls";
import type { Gestures } from "../page/gesture";
import { createHandshake, type Handshake } from "../host/handshake";
import { METHOD_NOT_FOUND, type Answer, type Message, type Params } from "../host/json-rpc";
import type { Proof } from "../host/proof";
import { createRequests, type Requests } from "../host/requests";

let now: number;
let toHost: Message[];
let toPage: Message[];
let notices: string[];
let requests: Requests;
let handshake: Handshake;
let calls: Calls;
let number: number;
let activity: Activity;
let calling: Activity;
let gesture: number | undefined;

const gestures: Gestures = {
  take() {
    const taken = gesture;
    return () => taken;
  },
};
const moment = () => new Promise((resolve) => setTimeout(resolve, 5));
const pending = { status: 202, headers: { "gateway-pending": "p1" }, body: { id: "p1", message: "Delete it?", url: "http://c/approvals/p1" } };
const last = (): Message & { params: Params & { name: string; arguments: Params } } => toHost.at(-1) as never;
const reply = (structuredContent: Params) =>
  requests.receive({ jsonrpc: "2.0", id: last().id as string, result: { content: [], structuredContent } });

beforeEach(() => {
  now = 0;
  activity = createActivity(() => now);
  calling = createActivity(() => now);
  number = 0;
  gesture = undefined;
  toHost = [];
  toPage = [];
  notices = [];
  const later = (run: () => void, milliseconds: number) => (milliseconds < 1000 && setTimeout(run, 1), 0);
  requests = createRequests({ prefix: "own-", post: (message) => toHost.push(message), later, cancelTimer: () => undefined });
  handshake = createHandshake({
    app: "cart",
    title: "Cart",
    toHost: (message) => toHost.push(message),
    toPage: (message) => toPage.push(message),
    send: async () => ({ hostCapabilities: { serverTools: {} }, hostContext: {} }),
    later,
  });
  handshake.begin();
  const proof = { sign: async () => `v.${++number}.s`, maxMessageSize: () => 150_000 } as Proof;
  const notice = ({ message }: { message: string }) => {
    notices.push(message);
    return () => void notices.pop();
  };
  calls = createCalls({ calling, handshake, proof, activity, gestures, requests, notice, later, toHost: (m) => toHost.push(m), toPage: (m) => toPage.push(m), hurry: () => undefined, onSend: () => undefined });
});

test("a request carries the proof, and nothing that the page put in its place", async () => {
  void calls.http(async () => ({ url: "/x", _view: "forged", _initiator: "person", _gesture: 1 }));
  await moment();
  expect(last()).toMatchObject({ method: "tools/call", params: { name: "http_request", arguments: { url: "/x", _view: "v.1.s" } } });
  expect(Object.keys(last().params.arguments)).toEqual(["url", "_view"]);
});

test("while a model's call runs, and two seconds after, requests say so", async () => {
  const marks: unknown[] = [];
  const ask = async () => {
    void calls.http(async () => ({ url: "/x" }));
    await moment();
    marks.push(last().params.arguments["_initiator"]);
  };
  const ended = activity.begin();
  await ask();
  ended();
  now += 1999;
  await ask();
  now += 2;
  await ask();
  expect(marks).toEqual(["model", "model", undefined]);
});

test("a request is the model's where a call of it ran when the page asked, and where one runs when it leaves", async () => {
  const mark = async (begin: () => void) => {
    begin();
    await moment();
    return last().params.arguments["_initiator"];
  };
  const whenAsked = await mark(() => {
    const ended = activity.begin();
    void calls.http(async () => ({ url: "/x" }));
    ended();
    now += 2001;
  });
  const between = await mark(() => void calls.http(async () => ({ url: "/x" })));
  const whenItLeaves = await mark(() => {
    void calls.http(async () => ({ url: "/x" }));
    activity.begin();
  });
  expect([whenAsked, between, whenItLeaves]).toEqual(["model", undefined, "model"]);
});

test("the gesture that the page acted on goes along, of a fetch and of the page's own call", async () => {
  gesture = 120;
  void calls.http(async () => ({ url: "/x" }));
  calls.sendFromPage({ jsonrpc: "2.0", id: 7, method: "tools/call", params: { name: "http_request", arguments: { url: "/y", _gesture: 0 } } });
  gesture = 0;
  await moment();
  const sent = toHost.filter((message) => message.method === "tools/call");
  expect(sent.map(({ params }) => (params?.["arguments"] as Params)["_gesture"])).toEqual([120, 120]);
});

test("our own host attests gestures itself", async () => {
  const ours: Handshake = { ...handshake, host: async () => ({ capabilities: { serverTools: {} }, ours: true, showsApprovals: false }) };
  const proof = { sign: async () => undefined } as Proof;
  const pending = { notice: () => () => undefined, later: () => 0 };
  const bridged = createCalls({ calling, handshake: ours, proof, activity, gestures, requests, ...pending, toHost: () => 0, toPage: () => 0, hurry: () => undefined, onSend: () => undefined });
  gesture = 120;
  void bridged.http(async () => ({ url: "/x" }));
  await moment();
  expect(last().params.arguments).toEqual({ url: "/x" });
});

test("an answer that waits for an approval is asked for until it is the real one", async () => {
  const running = calls.http(async () => ({ url: "/x" }));
  await moment();
  reply(pending);
  await moment();
  expect(notices).toEqual(["Delete it?"]);
  expect(last().params).toEqual({ name: "http_stream", arguments: { id: "p1", _view: "v.2.s" } });
  reply(pending);
  await moment();
  await moment();
  reply({ status: 200, body: "done" });
  expect((await running)["structuredContent"]).toMatchObject({ status: 200 });
  expect(notices).toEqual([]);
});

test("no other status waits for an approval, whatever headers it has", async () => {
  const running = calls.http(async () => ({ url: "/x" }));
  await moment();
  reply({ ...pending, status: 200 });
  expect((await running)["structuredContent"]).toMatchObject({ status: 200 });
  expect(notices).toEqual([]);
});

test("an abort while a person is asked gives the question up", async () => {
  const controller = new AbortController();
  const running = calls.http(async () => ({ url: "/x" }), controller.signal);
  await moment();
  reply(pending);
  await moment();
  controller.abort("no more");
  await expect(running).rejects.toBe("no more");
  await moment();
  expect(last().params).toMatchObject({ name: "http_stream", arguments: { id: "p1", cancel: true } });
  expect(notices).toEqual([]);
});

test("parts of a stream are told as they come, and only until the answer", async () => {
  const told: unknown[] = [];
  const running = calls.stream({ id: "s" }, undefined, (part) => told.push(part["body"]));
  await moment();
  const { id, params } = last();
  expect(params).toMatchObject({ name: "http_stream", _meta: { progressToken: id } });
  const progress = (params?: Params): boolean => requests.receive({ jsonrpc: "2.0", method: "notifications/progress", ...(params && { params }) });
  const part = (body: string): Params => ({ progressToken: id, progress: 1, _meta: { "webmcp-gateway/part": { body } } });
  expect([progress(part("one")), progress({ progressToken: 1 }), progress()]).toEqual([true, false, false]);
  reply({ status: 200 });
  await running;
  progress(part("late"));
  expect(told).toEqual(["one"]);
});

test("an abort on the way cancels the host's call", async () => {
  const controller = new AbortController();
  const running = calls.http(async () => ({ url: "/x" }), controller.signal);
  await moment();
  const { id } = last();
  controller.abort();
  await expect(running).rejects.toMatchObject({ name: "AbortError" });
  expect(last()).toMatchObject({ method: "notifications/cancelled", params: { requestId: id } });
});

test("the page's own call is proven too, and waits for its approval", async () => {
  const message = { jsonrpc: "2.0" as const, id: 7, method: "tools/call", params: { name: "http_request", arguments: { url: "/x" }, _meta: { progressToken: 7 } } };
  calls.sendFromPage(message);
  await moment();
  expect(last()).toEqual({ ...message, params: { ...message.params, arguments: { url: "/x", _view: "v.1.s" } } });
  const waiting: Answer = { jsonrpc: "2.0", id: 7, result: { content: [], structuredContent: pending } };
  expect(calls.readAnswer(waiting)).toBeUndefined();
  await moment();
  reply({ status: 204 });
  await moment();
  expect(toPage).toMatchObject([{ id: 7, result: { structuredContent: { status: 204 } } }]);
});

const FAILURES: [size: number, message: string, status?: number][] = [[100_000, "HTTP 413", 413], [200_000, "failed", 413], [100_000, "failed"], [10, "HTTP 413"]];

test.each(FAILURES)("of a body of %i the host says %s: by an error, or by a failed result, to the page's fetch and to its own call", async (size, message, status) => {
  const args = { url: "/x", body: "x".repeat(size) };
  const refused = { structuredContent: { status: 413, headers: { "gateway-reason": "request-too-large" }, body: { status: 413 } } };
  const failed = { content: [{ type: "text", text: message }], isError: true };
  const error = { code: -32000, message };
  for (const answer of [{ error }, { result: failed }]) {
    const asked = calls.http(async () => args);
    await moment();
    requests.receive({ jsonrpc: "2.0", id: last().id as string, ...answer });
    if (status) expect(await asked).toMatchObject(refused);
    else if (answer.error) await expect(asked).rejects.toThrow(message);
    else expect(await asked).toBe(failed);
    calls.sendFromPage({ jsonrpc: "2.0", id: 9, method: "tools/call", params: { name: "http_request", arguments: args } });
    await moment();
    const own: Answer = { jsonrpc: "2.0", id: 9, ...answer };
    expect(calls.readAnswer(own)).toMatchObject(status ? { id: 9, result: refused } : own);
  }
});

test("a call of the page that it cancels before it left never leaves", async () => {
  calls.sendFromPage({ jsonrpc: "2.0", id: 8, method: "tools/call", params: { name: "http_request", arguments: {} } });
  expect(calls.cancelFromPage(8)).toBe(true);
  const before = toHost.length;
  await moment();
  expect(toHost.length).toBe(before);
});

test("a server that has no tool of some name carries requests all the same", async () => {
  const missing = calls.callTool("gone", {});
  await moment();
  requests.receive({ jsonrpc: "2.0", id: last().id as string, error: { code: METHOD_NOT_FOUND, message: "Unknown tool: gone" } });
  await expect(missing).rejects.toThrow("Unknown tool: gone");
  expect(handshake.can("serverTools")).toBe(true);
});

test("a host without serverTools is no host for requests", async () => {
  const bare = createHandshake({ app: "a", title: "A", toHost: () => 0, toPage: () => 0, send: async () => ({ hostCapabilities: {} }), later: () => 0 });
  bare.begin();
  const alone = createCalls({ calling, handshake: bare, proof: {} as Proof, activity, gestures, requests, notice: () => () => undefined, later: () => 0, toHost: () => 0, toPage: () => 0, hurry: () => undefined, onSend: () => undefined });
  await expect(alone.http(async () => ({ url: "/x" }))).rejects.toBeInstanceOf(NoHostError);
});

test("of many calls a few leave at once; slow ones make room, and so do those that are answered or aborted", async () => {
  const slow: (() => void)[] = [];
  const proof = { sign: async () => undefined } as Proof;
  const pending = { notice: () => () => undefined, later: (run: () => void) => slow.push(run) };
  const many = createCalls({ calling, handshake, proof, activity, gestures, requests, ...pending, toHost: () => 0, toPage: () => 0, hurry: () => undefined, onSend: () => undefined });
  const left = () => toHost.filter(({ method }) => method === "tools/call");
  const controller = new AbortController();
  const all = Array.from({ length: 60 }, (_, at) => many.http(async () => ({ url: `/${at}` }), at ? new AbortController().signal : controller.signal));
  await moment();
  expect(left().length).toBe(4);
  reply({ status: 200 });
  await moment();
  expect(left().length).toBe(5);
  const time = async (): Promise<void> => {
    for (let turns = 0; turns < 20; turns++) {
      slow.splice(0).forEach((run) => run());
      await moment();
    }
  };
  await time();
  // The answered one, and as many as the gateway accepts.
  expect(left().length).toBe(49);
  controller.abort();
  await expect(all[0]).rejects.toBe(controller.signal.reason);
  await time();
  expect(left().length).toBe(50);
  expect((await all[3])?.["structuredContent"]).toEqual({ status: 200 });
});

test("while a model calls, and two seconds after, fewer leave at once, and nothing that they ask for is the model's", async () => {
  const proof = { sign: async () => undefined } as Proof;
  const pending = { notice: () => () => undefined, later: () => 0 };
  const many = createCalls({ calling, handshake, proof, activity, gestures, requests, ...pending, toHost: () => 0, toPage: () => 0, hurry: () => undefined, onSend: () => undefined });
  const left = () => toHost.filter(({ method }) => method === "tools/call");
  const ask = async (): Promise<void> => {
    for (let at = 0; at < 10; at++) void many.http(async () => ({ url: `/${at}` }));
    await moment();
  };
  const ended = calling.begin();
  await ask();
  expect(left().length).toBe(2);
  expect(last().params.arguments).not.toHaveProperty("_initiator");
  ended();
  await ask();
  expect(left().length).toBe(2);
  now += 2001;
  await ask();
  expect(left().length).toBe(6);
});
