/** The writes to a socket, whose peer reads only on request of the test. */
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { decode, encode, type Channel, type Frame } from "../mux";
import { MAX_BUFFERED, Outbox } from "./outbox";

const VIEW = "A".repeat(22);
const LARGE = 200 * 1024;

class SlowSocket {
  bufferedAmount = 0;
  readonly sent: string[] = [];

  send(text: string): void {
    this.sent.push(text);
    this.bufferedAmount += new TextEncoder().encode(text).length;
  }
}

let socket: SlowSocket;
let outbox: Outbox;

function put(frame: Frame): void {
  outbox.put(encode(frame), frame);
}

function say(channel: Channel, id: string, size = 0, letter = "x"): void {
  put({ type: "message", view: VIEW, channel, message: { jsonrpc: "2.0", id, result: { text: letter.repeat(size) } } });
}

/** The peer reads everything; returns what it read. */
function taken(): unknown[] {
  socket.bufferedAmount = 0;
  return socket.sent.splice(0).map((text) => {
    const frame = decode(text);
    return frame.type === "message" ? frame.message["id"] : frame;
  });
}

beforeEach(() => {
  vi.useFakeTimers();
  socket = new SlowSocket();
  outbox = new Outbox(socket);
});
afterEach(() => vi.useRealTimers());

test("what there is room for goes at once", () => {
  say("ui", "first");
  say("webmcp", "second");
  expect(taken()).toEqual(["first", "second"]);
});

test("an answer to a model stands behind no more than the socket may hold", () => {
  for (const id of ["1", "2", "3", "4"]) say("ui", id, LARGE);
  say("webmcp", "answer");
  expect(socket.sent.map((text) => text.length < LARGE)).toEqual([false, true]);
  expect(taken()).toEqual(["1", "answer"]);
});

test("what the socket may hold is counted in bytes, in whatever script a text is written", () => {
  for (const id of ["1", "2", "3"]) say("ui", id, LARGE / 4, "中");
  expect(socket.bufferedAmount).toBeLessThanOrEqual(MAX_BUFFERED);
  expect(taken()).toEqual(["1"]);
});

test("the rest follows in its order as the far side takes it, and nothing is lost", () => {
  const ids = ["1", "2", "3", "4"];
  for (const id of ids) say("ui", id, LARGE);
  const all = taken();
  for (let looks = 0; looks < 10; looks++) {
    vi.advanceTimersByTime(10);
    expect(socket.bufferedAmount).toBeLessThanOrEqual(MAX_BUFFERED);
    all.push(...taken());
  }
  expect(all).toEqual(ids);
  expect(vi.getTimerCount()).toBe(0);
});

test("one text that is larger than all that may be held goes alone", () => {
  say("ui", "small");
  say("ui", "huge", MAX_BUFFERED * 2);
  expect(taken()).toEqual(["small"]);
  outbox.drain();
  expect(taken()).toEqual(["huge"]);
});

test("a gesture keeps its place, and is as old as it is when it is told", () => {
  say("ui", "1", LARGE);
  say("ui", "2", LARGE);
  put({ type: "gesture", view: VIEW, age: 40 });
  taken();
  socket.bufferedAmount = MAX_BUFFERED;
  vi.advanceTimersByTime(1000);
  taken();
  outbox.drain();
  expect(taken()).toEqual(["2", { type: "gesture", view: VIEW, age: 1040 }]);
});

test("a gesture that waited too long is not told", () => {
  say("ui", "1", LARGE);
  say("ui", "2", LARGE);
  put({ type: "gesture", view: VIEW, age: 40 });
  socket.bufferedAmount = MAX_BUFFERED;
  vi.advanceTimersByTime(5000);
  taken();
  outbox.drain();
  expect(taken()).toEqual(["2"]);
});

test("nothing is sent after the end", () => {
  say("ui", "1", LARGE);
  say("ui", "2", LARGE);
  outbox.clear();
  taken();
  vi.advanceTimersByTime(1000);
  expect([taken(), vi.getTimerCount()]).toEqual([[], 0]);
});
