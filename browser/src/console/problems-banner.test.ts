import { expect, test } from "vitest";
import { heading } from "./problems-banner";

test.each([
  [1, "1 upstream fails, or offers tools that changed."],
  [2, "2 upstreams fail, or offer tools that changed."],
])("of %i upstreams the banner speaks in their number", (number, words) => {
  expect(heading("upstream", number)).toBe(words);
});

test.each([
  [1, "1 app in no view: the site of this app works as before."],
  [2, "2 apps in no view: the site of each works as before."],
])("of %i apps that no view can show the banner says that their sites work", (number, words) => {
  expect(heading("view", number)).toBe(words);
});
