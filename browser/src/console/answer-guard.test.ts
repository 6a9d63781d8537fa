import { expect, test } from "vitest";
import { AnswerGuard, SETTLE_TIME } from "./answer-guard";

const GOOD = { inView: true, focused: true, uncovered: true };
const PRESS = { isTrusted: true, pointerType: "mouse" };
const CLICK = { ...PRESS, detail: 1 };

function armedGuard(): AnswerGuard {
  const guard = new AnswerGuard();
  guard.observeSight(GOOD, 0);
  return guard;
}

function answers(guard: AnswerGuard, press: object, click: object, down: number, up: number): boolean {
  guard.press({ ...PRESS, ...press }, down);
  return guard.accepts({ ...CLICK, ...click }, up);
}

test("it is armed 800 ms after everything is in order", () => {
  const guard = armedGuard();
  expect([guard.armed(SETTLE_TIME - 1), guard.armed(SETTLE_TIME), guard.wait(300)]).toEqual([false, true, SETTLE_TIME - 300]);
});

test.each(["inView", "focused", "uncovered"])("the time begins anew when %s is lost", (lost) => {
  const guard = armedGuard();
  guard.observeSight({ ...GOOD, [lost]: false }, 500);
  guard.observeSight(GOOD, 600);
  expect([guard.armed(1300), guard.armed(1400)]).toEqual([false, true]);
});

test("a person's click is an answer once", () => {
  const guard = armedGuard();
  expect(answers(guard, {}, {}, 900, 950)).toBe(true);
  expect(guard.accepts(CLICK, 960)).toBe(false);
});

test("a press before the time does not count, even if released after it", () => {
  expect(answers(armedGuard(), {}, {}, 700, 900)).toBe(false);
});

test("a question that moved between press and release is not answered", () => {
  const guard = armedGuard();
  guard.press(PRESS, 900);
  guard.restart();
  guard.observeSight(GOOD, 901);
  expect(guard.accepts(CLICK, 2000)).toBe(false);
});

test.each([
  ["a script's press", { isTrusted: false }, {}],
  ["a script's click", {}, { isTrusted: false }],
  ["a click without a pointer", {}, { pointerType: "" }],
  ["Enter or Space", {}, { detail: 0 }],
])("%s is no answer", (_name, press, click) => {
  expect(answers(armedGuard(), press, click, 900, 950)).toBe(false);
});
