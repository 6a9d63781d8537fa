import { expect, test } from "vitest";
import { bodySize, count, countdown, duration, size, visible, visibleLine } from "./format";

test.each([
  [0.2, "<1 ms"],
  [12.4, "12 ms"],
  [1500, "1.5 s"],
  [15_200, "15 s"],
  [125_000, "2 min 5 s"],
])("%d ms is %s", (milliseconds, words) => {
  expect(duration(milliseconds)).toBe(words);
});

test.each([
  [119.2, "2:00"],
  [9, "0:09"],
  [-3, "0:00"],
  [3599, "59:59"],
  [3600, "1:00:00"],
  [86_399.5, "24:00:00"],
])("%d s left is %s", (seconds, words) => {
  expect(countdown(seconds)).toBe(words);
});

test("sizes and counts have their unit", () => {
  expect([size(12), size(2048), size(3 * 1024 * 1024)]).toEqual(["12 B", "2.0 KiB", "3.0 MiB"]);
  expect([count(1, "tool", "tools"), count(0, "tool", "tools")]).toEqual(["1 tool", "0 tools"]);
});

test("hidden and direction-changing characters are shown as their code", () => {
  expect(visible("pay\u202e 1€\u200b\n")).toBe("pay⟨U+202E⟩ 1€⟨U+200B⟩\n");
});

test("what must stay on one line cannot begin another", () => {
  expect(visibleLine("a\r\nb\tc\u{e0101}")).toBe("a⟨U+000D⟩⟨U+000A⟩b⟨U+0009⟩c⟨U+E0101⟩");
});

test("small bodies are told to the byte", () => {
  expect([bodySize(1), bodySize(1023), bodySize(65_536)]).toEqual(["1 byte", "1023 bytes", "64.0 KiB"]);
});
