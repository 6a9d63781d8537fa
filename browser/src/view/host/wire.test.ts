import { expect, test, vi } from "vitest";
import type { Natives } from "../natives";
import { openWire, HANDLED, type Wire } from "./wire";

/** A window and its parent; `say` sends the parent's message, `posted` are the messages to it with their origins. */
function wired() {
  const parent = { postMessage: () => undefined } as unknown as Window;
  const posted: unknown[][] = [];
  const seen: unknown[] = [];
  let hear = (_: MessageEvent): void => undefined;
  let wire: Wire | undefined;
  const natives = {
    parent,
    postToParent: (...given: unknown[]) => posted.push(given),
    listen: (listener: typeof hear) => (hear = listener),
    dispatch: (_: unknown, event: MessageEvent) => seen.push(event.data),
    stop: () => undefined,
    eventMessage: ({ data }: MessageEvent) => data as unknown,
    eventSource: ({ source }: MessageEvent) => source,
    eventOrigin: ({ origin }: MessageEvent) => origin,
    eventPorts: () => [],
    ownProperty: () => undefined,
    isMember: () => false,
    MessageEvent,
  } as unknown as Natives;
  openWire({} as Window, natives, (given) => {
    wire = given;
    return { fromHost: (message) => (message === "secret" ? HANDLED : message), fromPage: () => false };
  });
  const say = (data: unknown, origin: string, source: unknown = parent): void => hear({ data, origin, source } as MessageEvent);
  return { posted, seen, say, wire: wire! };
}

test("what goes to the host is for the origin that it spoke from, as soon as that is known", () => {
  const { posted, say, wire } = wired();
  wire.toHost("first");
  say("hello", "https://host.example");
  wire.toHost("second");
  expect(posted).toEqual([
    ["first", "*", [expect.any(MessagePort)]],
    ["second", "https://host.example", []],
  ]);
});

test("a host without an origin can only be told by its window", () => {
  const { posted, say, wire } = wired();
  say("hello", "null");
  wire.toHost("first");
  expect(posted).toEqual([["first", "*", [expect.any(MessagePort)]]]);
});

test("the page hears its parent alone, and not what the runtime keeps", () => {
  const { posted, seen, say, wire } = wired();
  say("hello", "https://host.example");
  say("secret", "https://host.example");
  say("lie", "https://evil.example", {});
  wire.toHost("answer");
  expect(seen).toEqual(["hello"]);
  expect(posted).toEqual([["answer", "https://host.example", [expect.any(MessagePort)]]]);
});

test("the page hears its host at the port, too, and not what the runtime keeps", async () => {
  const { posted, seen, say, wire } = wired();
  wire.toHost("first");
  say("hello", "https://host.example");
  const [port] = posted[0]![2] as MessagePort[];
  for (const message of ["secret", "answer"]) port!.postMessage(message);
  await vi.waitFor(() => expect(seen).toEqual(["hello", "answer"]));
  port!.close();
});
