import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { UnprovenError } from "../http/calls";
import type { Params } from "./json-rpc";
import { createRegistry, type Registry } from "../tools/registry";
import { createRelay, type Relay } from "./relay";

const CALL = { number: 1, call: "c1", tool: "ping", arguments: {} };

let registry: Registry;
let relay: Relay;
let asked: { name: string; args: Params; answer: (result: Params) => void; fail: (error: Error) => void }[];
let inFlight: Set<unknown>;
let hidden: boolean;
let ran: number;

const polls = (): typeof asked => asked.filter(({ name }) => name === "webmcp_poll");
const told = (...events: Params[]): Params => ({ structuredContent: { events, overtaken: false } });
const answerAll = (...events: Params[]): void => asked.splice(0).forEach(({ answer }) => answer(told(...events)));
const pass = (milliseconds: number): Promise<unknown> => vi.advanceTimersByTimeAsync(milliseconds);

beforeEach(() => {
  vi.useFakeTimers();
  [registry, asked, inFlight, hidden, ran] = [createRegistry(), [], new Set(), false, 0];
  const inputSchema = { type: "object" };
  registry.add({ definition: { name: "ping", description: "", inputSchema }, execute: () => void ran++ });
  relay = createRelay(registry, {
    callTool: (name, args, signal) =>
      new Promise((answer, fail) => {
        asked.push({ name, args, answer, fail });
        signal?.addEventListener("abort", () => fail(signal.reason as Error));
      }),
    isOffered: () => true,
    inFlight,
    later: (run, milliseconds) => setTimeout(run, milliseconds) as unknown as number,
    now: () => performance.now(),
    isHidden: () => hidden,
  });
});

afterEach(() => vi.useRealTimers());

/** A host that runs one call at a time: the view has detected that, and no call is pending. */
async function oneAtATime(): Promise<void> {
  relay.start();
  for (let left = 100; left > 0; left--) {
    await pass(5);
    // In order, each after the previous one.
    asked.shift()?.answer(told());
  }
  while (asked.length) asked.shift()?.answer(told());
  await pass(0);
}

test("no poll begins within a moment of a request of the page, or of a person's gesture", async () => {
  await oneAtATime();
  relay.giveWay();
  await pass(90);
  expect(polls()).toHaveLength(0);
  await pass(60);
  expect(polls()).toHaveLength(1);
});

test("nor while the host has one, but at once when its answer tells of calls", async () => {
  await oneAtATime();
  inFlight.add("request");
  relay.giveWay();
  await pass(500);
  expect(polls()).toHaveLength(0);
  relay.hurry();
  await pass(0);
  expect(polls()).toHaveLength(1);
});

test("a poll that is under way when the page makes a request is heard all the same", async () => {
  await oneAtATime();
  while (!polls().length) await pass(5);
  relay.giveWay();
  answerAll(CALL);
  await pass(0);
  expect(ran).toBe(1);
  expect(asked.at(-1)).toMatchObject({ name: "webmcp_result", args: { call: "c1" } });
});

test("a call that is told twice runs once", async () => {
  await oneAtATime();
  for (let twice = 0; twice < 2; twice++) {
    while (!polls().length) await pass(5);
    answerAll(CALL);
    await pass(0);
  }
  expect(ran).toBe(1);
});

test("a hidden tab says so, and asks once a second", async () => {
  await oneAtATime();
  hidden = true;
  while (!polls().length) await pass(5);
  expect(polls()[0]?.args["hidden"]).toBe(true);
  answerAll();
  await pass(900);
  expect(polls()).toHaveLength(0);
  await pass(200);
  expect(polls()).toHaveLength(1);
});

test("a view that proves nothing any more stops, until it is attached again", async () => {
  await oneAtATime();
  while (!polls().length) await pass(5);
  asked.shift()?.fail(new UnprovenError());
  await pass(60_000);
  expect(asked).toHaveLength(0);
  relay.restart();
  await pass(0);
  expect(polls()[0]?.args).toMatchObject({ after: 0, tools: [{ name: "ping" }] });
});

test("a host that fails is asked again, less and less often", async () => {
  await oneAtATime();
  const gaps: number[] = [];
  for (let last = performance.now(), left = 4; left > 0; left--) {
    while (!asked.length) await pass(5);
    gaps.push(performance.now() - last);
    last = performance.now();
    asked.splice(0).forEach(({ fail }) => fail(new Error()));
  }
  expect(gaps.slice(1)).toEqual([...gaps.slice(1)].sort((one, other) => one - other));
  expect(gaps[3]).toBeGreaterThan(1000);
});

test("a view that is closed says so, also one whose tools have gone before", async () => {
  await oneAtATime();
  registry.remove(registry.get("ping")!);
  relay.notifyChange();
  for (let left = 20; left > 0; left--) {
    await pass(100);
    answerAll();
  }
  expect(polls()).toHaveLength(0);
  relay.close();
  relay.close();
  expect(asked.map(({ args }) => args)).toEqual([{ closing: true }]);
});

test("a page that was to go, and stays, asks for calls again", async () => {
  await oneAtATime();
  while (!polls().length) await pass(5);
  const before = asked.splice(0);
  relay.unload();
  before.forEach(({ fail }) => fail(new Error("aborted")));
  await pass(0);
  expect(asked.map(({ args }) => args)).toEqual([{ leaving: true }]);
  await pass(500);
  expect(asked).toHaveLength(1);
  await pass(1000);
  expect(polls()[1]?.args).toMatchObject({ after: 0, tools: [{ name: "ping" }] });
});

test("one that never asked for calls does not", async () => {
  registry.remove(registry.get("ping")!);
  relay.start();
  await pass(1000);
  relay.close();
  expect(asked).toHaveLength(0);
});

test("what is taken back while a poll waits is told at once, and what no poll carried is told again", async () => {
  registry.onChange(relay.notifyChange);
  relay.start();
  await pass(0);
  asked.splice(0).forEach(({ answer }) => answer({ structuredContent: { events: [], overtaken: true } }));
  await pass(50);
  const list = (): unknown => (polls().at(-1)?.args["tools"] as Params[] | undefined)?.map(({ name }) => name);
  answerAll();
  await pass(1000);
  const late = { definition: { name: "late", description: "", inputSchema: {} }, execute: () => 0 };
  for (let twice = 0; twice < 2; twice++) {
    registry.add(late);
    await pass(1000);
    expect(list()).toEqual(["ping", "late"]);
    registry.remove(late);
    await pass(1000);
    expect(list()).toEqual(["ping"]);
  }
  asked.splice(0).at(-1)?.fail(new Error("the host lost it"));
  await pass(1000);
  expect(list()).toEqual(["ping"]);
});
