import { beforeEach, expect, test } from "vitest";
import { createReports, type Reports } from "./reports";

let told: string[];
let takes: boolean;
let carries: boolean;
let reports: Reports;

beforeEach(() => {
  told = [];
  takes = true;
  carries = false;
  reports = createReports({
    app: "cart",
    canCallServer: () => carries,
    update: async ({ content }) => {
      if (!takes) throw new Error("no");
      told.push((content as { text: string }[])[0]!.text);
    },
    time: () => "now",
  });
});

/** The ids in the newest report. */
const ids = (): string[] => [...told.at(-1)!.matchAll(/- id: "(a\d+)"/g)].map(([, id]) => id!);

test("each report says all that the model has not read, in order", async () => {
  expect([await reports.add({ action: "one" }), await reports.add({ action: "two" })]).toEqual(["a1", "a2"]);
  expect(ids()).toEqual(["a1", "a2"]);
  reports.acknowledge();
  await reports.add({ action: "three" });
  expect(ids()).toEqual(["a3"]);
});

test("what the host did not take is in no later report, and what it had not taken when the model worked is not lost", async () => {
  takes = false;
  expect(await reports.add({ action: "one" })).toBe(undefined);
  takes = true;
  const two = reports.add({ action: "two" });
  reports.acknowledge();
  await two;
  await reports.add({ action: "three" });
  expect(ids()).toEqual(["a2", "a3"]);
});

test("of very many the oldest go", async () => {
  for (let count = 0; count < 60; count++) await reports.add({ action: "click" });
  expect(ids()).toHaveLength(50);
  expect(ids().at(-1)).toBe("a60");
});

test("what has no words is told to nobody, and fails nobody", async () => {
  const circle: Record<string, unknown> = {};
  circle["itself"] = circle;
  expect(await reports.add({ action: "one", data: circle })).toBe(undefined);
  expect(await reports.add({ action: "two" })).toBe("a2");
  expect(ids()).toEqual(["a2"]);
});

test("where requests reach the server, only what did not is said to have failed", async () => {
  const failed = (): boolean => told.at(-1)!.includes("did not reach its server");
  await reports.add({ action: "one" });
  expect(failed()).toBe(true);
  carries = true;
  await reports.add({ action: "two" });
  expect(failed()).toBe(false);
  await reports.add({ action: "request", path: "/api/cart" });
  expect(failed()).toBe(true);
  await reports.add({ action: "three" });
  expect(failed()).toBe(true);
  reports.acknowledge();
  await reports.add({ action: "four" });
  expect(failed()).toBe(false);
  await reports.add({ action: "call tool", tool: "add" });
  expect(failed()).toBe(true);
});
