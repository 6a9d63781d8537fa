/** The budget of a page. */
import { expect, test } from "vitest";
import { Budget } from "./budget";

test("a burst is there at once, and flows back with time", () => {
  const budget = new Budget(10, 5, 0);
  expect([budget.take(10, 0), budget.take(1, 100), budget.take(1, 200)]).toEqual([true, false, true]);
});

test("no more than the burst is saved up", () => {
  const budget = new Budget(10, 5, 0);
  expect([budget.take(11, 1_000_000), budget.take(10, 1_000_000)]).toEqual([false, true]);
});
