import { expect, test } from "vitest";
import { evidenceWords, initiatorWord } from "./initiators";

test.each(["no-view-proof", "no-view", "unproven-view"])("of %s nobody knows who sent it", (evidence) => {
  expect(evidenceWords(evidence)).toBe("the gateway cannot tell whether the app or a model sent this");
});

test.each(["model-call", "model-call-reported", "attested-gesture", "no-gesture", "app-origin", "console", "file"])(
  "%s has plain words",
  (evidence) => expect(evidenceWords(evidence)).toMatch(/^[a-z']+( [a-z']+,?){2,}$/),
);

test("a gesture that only the view tells of is called so", () => {
  expect(evidenceWords("view-gesture")).toBe("the view says that a person acted");
});

test.each(["another-kind", "constructor"])("evidence without words, as %s, is shown as it is", (evidence) => {
  expect(evidenceWords(evidence)).toBe(evidence);
});

test("what no page in a frame did is not called the page's", () => {
  expect(["no-gesture", "app-origin", "file"].map((evidence) => initiatorWord("page", evidence))).toEqual([
    "Page",
    "Site",
    "Gateway",
  ]);
  expect(initiatorWord("model", "app-origin")).toBe("Model");
});
