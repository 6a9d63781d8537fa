/** The bridge client against the gateway's end of the core, over a fake wire. */
import { afterEach, expect, test, vi } from "vitest";
import { Connection, type Frame, type JsonObject } from "../mux";
import { Bridge, type Socket } from "./bridge";
import { GatewayRefusal } from "./gateway-http";
import type { BridgeView, ViewEvents } from "./bridge-view";

const VIEW = "A".repeat(22);
const running: Bridge[] = [];

/** A wire whose other end is this test. */
class FakeSocket implements Socket {
  bufferedAmount = 0;
  onopen: Socket["onopen"] = null;
  onmessage: Socket["onmessage"] = null;
  onclose: Socket["onclose"] = null;
  readonly gateway = new Connection("gateway");
  readonly told: Frame[] = [];

  send(text: string): void {
    this.told.push(...this.gateway.receiveData(text));
    this.flush();
  }

  close(): void {
    this.onclose?.call(this as unknown as WebSocket, {} as CloseEvent);
  }

  say(frame: Frame): void {
    this.gateway.send(frame);
    this.flush();
  }

  last(): Frame | undefined {
    return this.told.at(-1);
  }

  private flush(): void {
    for (const data of this.gateway.pendingOutput()) {
      this.onmessage?.call(this as unknown as WebSocket, { data } as MessageEvent);
    }
  }
}

class World {
  readonly sockets: FakeSocket[] = [];
  readonly bodies = new Map<string, string>();
  readonly bytes = new Map<string, ArrayBuffer>();
  readonly events: string[] = [];
  readonly webmcp: JsonObject[] = [];
  readonly bridge: Bridge;
  /** The answer to requests for a ticket. */
  refusal: Error | null = null;
  putBody = async (id: string, text: string, _?: AbortSignal): Promise<void> => void this.bodies.set(id, text);
  putBytes = async (id: string, bytes: Blob, _?: AbortSignal): Promise<void> => void this.bytes.set(id, await bytes.arrayBuffer());

  constructor() {
    this.bridge = new Bridge({
      apps: ["cart"],
      csrf: "",
      base: new URL("http://gateway.localhost/"),
      http: {
        ticket: async () => {
          if (this.refusal) throw this.refusal;
          return "ticket";
        },
        putBody: (id, text, signal) => this.putBody(id, text, signal),
        takeBody: async (id) => this.bodies.get(id) ?? Promise.reject(new Error("no such body")),
        putBytes: (id, bytes, signal) => this.putBytes(id, bytes, signal),
        takeBytes: async (id) => this.bytes.get(id) ?? Promise.reject(new Error("no such bytes")),
      },
      connect: () => {
        const socket = new FakeSocket();
        this.sockets.push(socket);
        queueMicrotask(() => socket.onopen?.call(socket as unknown as WebSocket, {} as Event));
        return socket;
      },
      pause: () => new Promise((resolve) => setTimeout(resolve)),
      onstate: (state) => this.events.push(state),
    });
    running.push(this.bridge);
    void this.bridge.run();
  }

  get socket(): FakeSocket {
    const socket = this.sockets.at(-1);
    if (!socket) throw new Error("not connected");
    return socket;
  }

  async open(view = VIEW): Promise<BridgeView> {
    const events: ViewEvents = {
      webmcp: (message) => this.webmcp.push(message),
      notification: (message) => this.events.push(String(message["method"])),
      closed: (reason) => this.events.push(`closed: ${reason}`),
      lost: () => this.events.push("lost"),
    };
    const opening = this.bridge.open("cart", events);
    await vi.waitFor(() => expect(this.socket.last()).toMatchObject({ type: "open" }));
    const { ref } = this.socket.last() as { ref: string };
    this.socket.say({ type: "opened", ref, view, resource: "ui://cart/x", links: [], resume: "r-1" });
    return opening;
  }

  /** Drop the wire, and wait for the next one to receive `type`. */
  async dropUntil(type: Frame["type"]): Promise<void> {
    const { length } = this.sockets;
    this.socket.close();
    await vi.waitFor(() => expect([this.sockets.length, this.socket.last()?.type]).toEqual([length + 1, type]));
  }

  /** Answer the newest call. */
  answer(result: JsonObject): void {
    const frame = this.socket.last();
    if (frame?.type !== "message") throw new Error("no call");
    this.say("ui", { jsonrpc: "2.0", id: frame.message["id"] ?? null, result });
  }

  say(channel: "ui" | "webmcp", message: JsonObject): void {
    this.socket.say({ type: "message", view: VIEW, channel, message });
  }
}

afterEach(() => running.splice(0).forEach((bridge) => bridge.close()));

test("hello comes first, then the view, then its call and the answer", async () => {
  const world = new World();
  const view = await world.open();
  const call = view.call("tools/call", { name: "x" });
  world.answer({ content: [] });
  expect(await call).toEqual({ content: [] });
  expect(world.socket.told.map(({ type }) => type)).toEqual(["hello", "open", "message"]);
});

test("a refused view rejects with what the gateway said", async () => {
  const world = new World();
  const opening = world.bridge.open("cart", {} as ViewEvents);
  await vi.waitFor(() => expect(world.socket.last()).toMatchObject({ type: "open" }));
  world.socket.say({ type: "error", ref: "1", code: "unknown-app", detail: "no such app" });
  await expect(opening).rejects.toThrow("unknown-app: no such app");
});

test("a call in flight fails with the connection, and is not sent again", async () => {
  const world = new World();
  const view = await world.open();
  const call = view.call("tools/call", { name: "x" });
  const failed = expect(call).rejects.toThrow("connection-lost");
  await world.dropUntil("resume");
  await failed;
  expect(world.socket.told.map(({ type }) => type)).toEqual(["hello", "resume"]);
});

test("a view is taken up with the newest token, each once", async () => {
  const world = new World();
  await world.open();
  await world.dropUntil("resume");
  expect(world.socket.last()).toEqual({ type: "resume", view: VIEW, token: "r-1" });
  world.socket.say({ type: "resume", view: VIEW, token: "r-2" });
  await world.dropUntil("resume");
  expect(world.socket.last()).toEqual({ type: "resume", view: VIEW, token: "r-2" });
});

test("between two connections a call fails at once", async () => {
  const world = new World();
  const view = await world.open();
  await world.dropUntil("resume");
  await expect(view.call("tools/call", { name: "x" })).rejects.toThrow("connection-lost");
  view.gesture(5);
  expect(world.socket.last()).toMatchObject({ type: "resume" });
});

test("a view that the gateway forgot is lost, once", async () => {
  const world = new World();
  await world.open();
  await world.dropUntil("resume");
  world.socket.say({ type: "error", view: VIEW, code: "unknown-view", detail: "" });
  await world.dropUntil("hello");
  expect(world.events.filter((event) => event === "lost")).toEqual(["lost"]);
});

test("an opening that the connection did not live to see is asked again", async () => {
  const world = new World();
  const opening = world.bridge.open("cart", {} as ViewEvents);
  await vi.waitFor(() => expect(world.sockets.length).toBe(1));
  await world.dropUntil("open");
  world.socket.say({ type: "opened", ref: "1", view: VIEW, resource: "ui://cart/x", links: [], resume: "r-1" });
  expect((await opening).id).toBe(VIEW);
});

test("a gateway that lets the page open nothing any more ends its views, and what waits to be opened", async () => {
  const world = new World();
  await world.open();
  const waiting = world.bridge.open("cart", { webmcp: () => undefined, notification: () => undefined, closed: () => undefined, lost: () => undefined });
  world.refusal = new GatewayRefusal(400, "apps: a list of board.");
  world.socket.close();
  await expect(waiting).rejects.toThrow("apps: a list of board.");
  expect(world.events).toContain("lost");
  world.refusal = null;
  await vi.waitFor(() => expect(world.sockets).toHaveLength(2));
  expect((await world.open("B".repeat(22))).id).toBe("B".repeat(22));
});

test("an abort cancels the call at the gateway", async () => {
  const world = new World();
  const view = await world.open();
  const abort = new AbortController();
  const call = view.call("tools/call", { name: "x" }, { signal: abort.signal });
  abort.abort();
  await expect(call).rejects.toThrow(/abort/i);
  expect(world.socket.last()).toMatchObject({ message: { method: "notifications/cancelled" } });
});

test("progress reaches its call alone", async () => {
  const world = new World();
  const view = await world.open();
  const heard: JsonObject[] = [];
  const call = view.call("tools/call", { name: "x", _meta: { a: 1 } }, { onprogress: (params) => heard.push(params) });
  const sent = world.socket.last() as unknown as { message: { id: string; params: { _meta: JsonObject } } };
  expect(sent.message.params._meta).toEqual({ a: 1, progressToken: sent.message.id });
  for (const progressToken of [sent.message.id, "other"]) {
    world.say("ui", { jsonrpc: "2.0", method: "notifications/progress", params: { progressToken, progress: 1 } });
  }
  world.answer({});
  await call;
  expect(heard).toHaveLength(1);
});

test("one call too many waits for an answer to another, or until it is given up", async () => {
  const world = new World();
  const view = await world.open();
  const call = (signal?: AbortSignal): Promise<JsonObject> => view.call("tools/call", { name: "x" }, { ...(signal && { signal }) });
  const calls = Array.from({ length: 64 }, () => call());
  for (const one of calls) one.catch(() => undefined);
  const control = new AbortController();
  const [givenUp, last] = [call(control.signal), call()];
  control.abort(new Error("given up"));
  await expect(givenUp).rejects.toThrow("given up");
  const sent = (): number => world.socket.told.filter(({ type }) => type === "message").length;
  const before = sent();
  for (let answered = 0; sent() < 65; answered++) {
    expect(answered).toBeLessThan(10);
    world.answer({ answered });
    await vi.waitFor(() => expect(sent()).toBeGreaterThan(before + answered));
  }
  world.answer({ last: true });
  expect(await last).toEqual({ last: true });
});

test("a large call is handed over before its frame, and a large answer is fetched", async () => {
  const world = new World();
  const view = await world.open();
  const body = "x".repeat(300_000);
  const call = view.call("tools/call", { body });
  await vi.waitFor(() => expect(world.socket.last()).toMatchObject({ type: "message" }));
  const [[id, text]] = [...world.bodies] as [[string, string]];
  expect(world.socket.last()).toMatchObject({ message: { params: { $body: id } } });
  expect(JSON.parse(text)).toEqual({ body });
  world.bodies.set("b".repeat(22), '{"large":true}');
  world.answer({ $body: "b".repeat(22) });
  expect(await call).toEqual({ large: true });
});

test.each([
  ["texts", (): JsonObject => ({ body: "x".repeat(300_000) })],
  ["bytes", () => ({ arguments: { body: new Blob(["up"]) } }) as unknown as JsonObject],
])("%s of the page leave room for what a model waits for", async (_, params) => {
  const world = new World();
  const view = await world.open();
  let handedOver = 0;
  world.putBody = world.putBytes = () => ((handedOver += 1), new Promise(() => undefined));
  for (let sent = 0; sent < 9; sent++) void view.call("tools/call", params()).catch(() => undefined);
  await vi.waitFor(() => expect(handedOver).toBe(2));
  world.say("webmcp", { jsonrpc: "2.0", id: 7, method: "tools/call", params: {} });
  view.sendWebmcp({ jsonrpc: "2.0", id: 7, result: { text: "x".repeat(300_000) } });
  await vi.waitFor(() => expect(handedOver).toBe(3));
});

test.each([
  ["texts", (): JsonObject => ({ body: "x".repeat(300_000) })],
  ["bytes", () => ({ arguments: { body: new Blob(["up"]) } }) as unknown as JsonObject],
])("%s that a closed view was sending leave their place to those of others", async (_, params) => {
  const world = new World();
  const [closed, open] = [await world.open(), await world.open("B".repeat(22))];
  const ended: string[] = [];
  let handedOver = 0;
  world.putBody = world.putBytes = (_id: string, _body: unknown, signal?: AbortSignal) =>
    new Promise((_resolve, reject) => {
      handedOver += 1;
      if (signal?.aborted) reject(signal.reason);
      signal?.addEventListener("abort", () => reject(signal.reason));
    });
  for (let sent = 0; sent < 3; sent++) closed.call("tools/call", params()).catch((error: Error) => ended.push(error.message));
  await vi.waitFor(() => expect(handedOver).toBe(2));
  void open.call("tools/call", params()).catch(() => undefined);
  closed.close("the person closed it");
  await vi.waitFor(() => expect([handedOver, ended.length]).toEqual([4, 3]));
});

test("a Blob goes beside its call, and the bytes of an answer come into it", async () => {
  const world = new World();
  const view = await world.open();
  const call = view.call("tools/call", { arguments: { url: "/x", body: new Blob(["up"]) }, $bytes: "not the page's" } as unknown as JsonObject);
  await vi.waitFor(() => expect(world.socket.last()).toMatchObject({ type: "message" }));
  const [[id, bytes]] = [...world.bytes] as [[string, ArrayBuffer]];
  expect(world.socket.last()).toMatchObject({ message: { params: { arguments: { url: "/x" }, $bytes: id } } });
  expect(new TextDecoder().decode(bytes)).toBe("up");
  const down = new Uint8Array([1, 2]).buffer;
  world.bytes.set("b".repeat(22), down);
  world.answer({ structuredContent: { status: 200 }, _meta: { "webmcp-gateway/bytes": "b".repeat(22) } });
  expect(await call).toEqual({ structuredContent: { status: 200, body: down } });
});

test("a page can not name bytes that it did not send", async () => {
  const world = new World();
  const view = await world.open();
  void view.call("tools/call", { arguments: {}, $bytes: "b".repeat(22) }).catch(() => undefined);
  expect(JSON.stringify(world.socket.last())).not.toContain("$bytes");
});

test("a large call whose connection went while it was handed over is not sent on the next", async () => {
  const world = new World();
  const view = await world.open();
  let handedOver = (): void => undefined;
  world.putBody = () => new Promise((resolve) => (handedOver = resolve));
  const failed = expect(view.call("tools/call", { body: "x".repeat(300_000) })).rejects.toThrow("connection-lost");
  await world.dropUntil("resume");
  world.socket.say({ type: "resume", view: VIEW, token: "r-2" });
  handedOver();
  await failed;
  expect(world.socket.last()).toMatchObject({ type: "resume" });
});

test("a call that the page serves is cancelled there when the connection goes", async () => {
  const world = new World();
  const view = await world.open();
  world.say("webmcp", { jsonrpc: "2.0", id: 7, method: "tools/call", params: {} });
  world.say("webmcp", { jsonrpc: "2.0", id: 8, method: "tools/call", params: {} });
  view.sendWebmcp({ jsonrpc: "2.0", id: 7, result: {} });
  await world.dropUntil("resume");
  expect(world.webmcp.at(-1)).toMatchObject({ method: "notifications/cancelled", params: { requestId: 8 } });
  expect(world.webmcp).toHaveLength(3);
});

test("the gateway closes a view", async () => {
  const world = new World();
  const view = await world.open();
  const failed = expect(view.call("tools/call", {})).rejects.toThrow("connection-lost");
  world.socket.say({ type: "close", view: VIEW, reason: "policy" });
  await failed;
  expect(world.events).toContain("closed: policy");
  await world.dropUntil("hello");
});

test("a gateway that writes nonsense is left, and tried again", async () => {
  vi.spyOn(console, "error").mockReturnValue(undefined);
  const world = new World();
  await world.open();
  world.socket.onmessage?.call(world.socket as unknown as WebSocket, { data: "{" } as MessageEvent);
  await vi.waitFor(() => expect(world.sockets).toHaveLength(2));
});

test("the page's own calls wait while the wire is full, an answer to a model does not, and the end sends all", async () => {
  const world = new World();
  const view = await world.open();
  const { told } = world.socket;
  world.say("webmcp", { jsonrpc: "2.0", id: 7, method: "tools/call", params: {} });
  world.socket.bufferedAmount = 300_000;
  void view.call("tools/call", { name: "x" }).catch(() => undefined);
  view.sendWebmcp({ jsonrpc: "2.0", id: 7, result: {} });
  expect(world.socket.last()).toMatchObject({ channel: "webmcp", message: { id: 7 } });
  world.bridge.close();
  expect(told.at(-1)).toMatchObject({ channel: "ui", message: { method: "tools/call" } });
});

test("a page that nobody sees hands its calls on when it hears something", async () => {
  const world = new World();
  const view = await world.open();
  world.socket.bufferedAmount = 300_000;
  void view.call("tools/call", { name: "x" }).catch(() => undefined);
  world.socket.bufferedAmount = 0;
  world.say("ui", { jsonrpc: "2.0", method: "notifications/tools/list_changed" });
  expect(world.socket.last()).toMatchObject({ channel: "ui", message: { method: "tools/call" } });
});

test("a closed bridge stays closed", async () => {
  const world = new World();
  await world.open();
  world.bridge.close();
  await expect(world.bridge.open("cart", {} as ViewEvents)).rejects.toThrow("closed");
  expect([world.events.at(-1), world.sockets.length]).toEqual(["closed", 1]);
});
