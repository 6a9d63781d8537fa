/** When a proxy considers the app's document gone. */
import { beforeEach, expect, test, vi } from "vitest";
import { Presence } from "./presence";

const ask = vi.fn();
const left = vi.fn();
let presence: Presence;

beforeEach(() => {
  vi.useFakeTimers();
  vi.resetAllMocks();
  presence = new Presence(ask, left);
});

test("an app that loads, or loads again and answers, is there", () => {
  presence.messageReceived();
  presence.documentLoaded();
  expect(ask).not.toHaveBeenCalled();
  presence.documentLoaded();
  expect(ask).toHaveBeenCalledOnce();
  presence.messageReceived();
  vi.runAllTimers();
  expect(left).not.toHaveBeenCalled();
});

test("what loads after an app and is silent is another document", () => {
  presence.documentLoaded();
  presence.messageReceived();
  presence.documentLoaded();
  expect(left).not.toHaveBeenCalled();
  vi.runAllTimers();
  expect(left).toHaveBeenCalledOnce();
});

test("a page that never spoke may load as often as it likes", () => {
  presence.documentLoaded();
  presence.documentLoaded();
  vi.runAllTimers();
  expect(left).not.toHaveBeenCalled();
});

test("what loads after an address was refused is the browser's own page, even in place of the first", () => {
  presence.block();
  expect(left).not.toHaveBeenCalled();
  presence.documentLoaded();
  expect(left).toHaveBeenCalledOnce();
});

test("who is to know of an app that loads again hears of that once it speaks", () => {
  const again = vi.fn();
  presence = new Presence(ask, left, again);
  presence.documentLoaded();
  presence.messageReceived();
  presence.documentLoaded();
  expect(again).not.toHaveBeenCalled();
  presence.messageReceived();
  presence.messageReceived();
  expect(again).toHaveBeenCalledOnce();
});
