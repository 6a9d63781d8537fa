import { expect, test } from "vitest";
import { heading } from "./problems-banner";

test.each([
  [1, "1 upstream fails, or offers tools that changed."],
  [2, "2 upstreams fail, or offer tools that changed."],
])("of %i upstreams the banner speaks in their number", (number, words) => {
  expect(heading("upstream", number)).toBe(words);
});
