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
  presence.heard();
  presence.loaded();
  expect(ask).not.toHaveBeenCalled();
  presence.loaded();
  expect(ask).toHaveBeenCalledOnce();
  presence.heard();
  vi.runAllTimers();
  expect(left).not.toHaveBeenCalled();
});

test("what loads after an app and is silent is another document", () => {
  presence.loaded();
  presence.heard();
  presence.loaded();
  expect(left).not.toHaveBeenCalled();
  vi.runAllTimers();
  expect(left).toHaveBeenCalledOnce();
});

test("a page that never spoke may load as often as it likes", () => {
  presence.loaded();
  presence.loaded();
  vi.runAllTimers();
  expect(left).not.toHaveBeenCalled();
});

test("what loads after an address was refused is the browser's own page, even in place of the first", () => {
  presence.blocked();
  expect(left).not.toHaveBeenCalled();
  presence.loaded();
  expect(left).toHaveBeenCalledOnce();
});

test("who is to know of an app that loads again hears of that once it speaks", () => {
  const again = vi.fn();
  presence = new Presence(ask, left, again);
  presence.loaded();
  presence.heard();
  presence.loaded();
  expect(again).not.toHaveBeenCalled();
  presence.heard();
  presence.heard();
  expect(again).toHaveBeenCalledOnce();
});
