/** The maximum age of a gesture. */
import { expect, test } from "vitest";
import { Gestures } from "./gesture";

test("without a gesture there is no age", () => {
  expect(new Gestures(0).age(false, 100)).toBeNull();
});

test("the age counts from the last look that saw none", () => {
  const gestures = new Gestures(0);
  gestures.update(false, 1000);
  gestures.update(true, 1200);
  expect([gestures.age(true, 1250), gestures.age(true, 2000.5)]).toEqual([250, 1001]);
});

test("a gesture that never seemed to end is five seconds old at most", () => {
  expect(new Gestures(0).age(true, 60_000)).toBe(5000);
});

test("a relay looks too", () => {
  const gestures = new Gestures(0);
  gestures.age(false, 900);
  expect(gestures.age(true, 1000)).toBe(100);
});

test("a gesture that was just told of is not told again, another one is", () => {
  const gestures = new Gestures(0);
  expect([100, 200, 349, 350].map((now) => gestures.age(true, now))).toEqual([100, null, null, 350]);
  gestures.update(false, 360);
  expect(gestures.age(true, 400)).toBe(40);
});

test("of two clicks within five seconds the age is the first one's; after a pause it is the next one's", () => {
  const gestures = new Gestures(0);
  gestures.update(false, 900);
  expect(gestures.age(true, 1000)).toBe(100); // while a model's call runs
  expect(gestures.age(true, 4500)).toBe(3600); // the person clicked again at 4400, which no window outside of the page can see
  expect(gestures.age(true, 9000)).toBe(5000); // and at 8900
  gestures.update(false, 14_000);
  expect(gestures.age(true, 14_150)).toBe(150);
});
