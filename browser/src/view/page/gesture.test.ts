import { beforeEach, expect, test } from "vitest";
import { createGestures, type Gestures } from "./gesture";

let now: number;
let active: boolean;
let act: (at: number) => void;
let gestures: Gestures;

beforeEach(() => {
  now = 1000;
  active = true;
  gestures = createGestures({ now: () => now, isActivated: () => active, watch: (seen) => (act = seen) });
});

test("a gesture has an age in whole milliseconds, for five seconds", () => {
  act(999.7);
  const age = gestures.take();
  expect(age()).toBe(1);
  now = 5999.7;
  expect(age()).toBe(5000);
  now = 5999.8;
  expect(age()).toBeUndefined();
});

test("without one, or once the browser counts it no more, there is none", () => {
  expect(gestures.take()()).toBeUndefined();
  act(990);
  active = false;
  expect(gestures.take()()).toBeUndefined();
});

test("what was begun before a gesture is not its doing", () => {
  const before = gestures.take();
  act(1001);
  now = 1002;
  expect(before()).toBeUndefined();
  expect(gestures.take()()).toBe(1);
});

test("an event that is younger than the clock's last tick is no time ago", () => {
  act(1000.4);
  expect(gestures.take()()).toBe(0);
});
