import { expect, test } from "vitest";
import { ApiError } from "./api";
import { linkOpener, type Opening } from "./links";
import type { LinkDecision } from "./types";

const URL = "https://shop.example.com/tea";
const ASK: LinkDecision = { decision: "ask", message: "Open the shop?", url: URL };

/** The calls, in order; `told` are the gateway's answers, in order. */
function opening(told: (LinkDecision | ApiError)[], person: Partial<Opening> = {}) {
  const done: unknown[][] = [];
  const by: Opening = {
    isActive: () => true,
    decide: async (...asked) => {
      done.push(["decide", ...asked]);
      const answer = told.shift();
      if (!answer || answer instanceof Error) throw answer;
      return answer;
    },
    ask: async (...asked) => done.push(["ask", ...asked]) > 0,
    refuse: (words) => done.push(["refuse", words]),
    closed: new AbortController().signal,
    open: (url) => done.push(["open", url]),
    ...person,
  };
  return { done, open: linkOpener(by) };
}

test("a link that the policy allows opens", async () => {
  const { done, open } = opening([{ decision: "open" }]);
  expect(await open(URL)).toBe(true);
  expect(done).toEqual([
    ["decide", URL],
    ["open", URL],
  ]);
});

test("without a gesture the gateway is not even asked", async () => {
  const { done, open } = opening([{ decision: "open" }], { isActive: () => false });
  expect(await open(URL)).toBe(false);
  expect(done).toEqual([]);
});

test("a refused link opens nothing, and the person is told why", async () => {
  const { done, open } = opening([new ApiError(403, "The policy does not open this link.")]);
  expect(await open(URL)).toBe(false);
  expect(done.slice(1)).toEqual([["refuse", "The policy does not open this link."]]);
});

test("a person who says yes is told to the gateway before anything opens", async () => {
  const { done, open } = opening([ASK, { decision: "open" }]);
  expect(await open(URL)).toBe(true);
  expect(done).toEqual([
    ["decide", URL],
    ["ask", "Open the shop?", URL],
    ["decide", URL, true],
    ["open", URL],
  ]);
});

test("a person who says no is told to the gateway too", async () => {
  const { done, open } = opening([ASK, { decision: "declined" }], { ask: async () => false });
  expect(await open(URL)).toBe(false);
  expect(done.at(-1)).toEqual(["decide", URL, false]);
});

test("of a question whose app is closed nothing is told to the gateway", async () => {
  const { done, open } = opening([ASK], { ask: async () => false, closed: AbortSignal.abort() });
  expect(await open(URL)).toBe(false);
  expect(done).toEqual([["decide", URL]]);
});

test("a yes that the gateway does not take opens nothing", async () => {
  const { done, open } = opening([ASK, new ApiError(403, "The policy changed.")]);
  expect(await open(URL)).toBe(false);
  expect(done.at(-1)).toEqual(["refuse", "The policy changed."]);
});

test("one link at a time: a second one during a question is not opened", async () => {
  let answer = (_: boolean): void => undefined;
  const asked = new Promise<boolean>((resolve) => (answer = resolve));
  const { done, open } = opening([ASK, { decision: "open" }, { decision: "open" }], { ask: () => asked });
  const first = open(URL);
  expect(await open("https://shop.example.com/other")).toBe(false);
  answer(true);
  expect(await first).toBe(true);
  expect(await open("https://shop.example.com/other")).toBe(true);
  expect(done.filter(([what]) => what === "open")).toHaveLength(2);
});
