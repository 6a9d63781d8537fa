import { expect, test } from "vitest";
import { createGate } from "./gate";

test("so many run at a time, the others in their order, and a failure makes room", async () => {
  const gate = createGate(2);
  const began: number[] = [];
  const ends: (() => void)[] = [];
  const all = [0, 1, 2, 3].map((number) =>
    gate(async () => {
      began.push(number);
      await new Promise<void>((end) => (ends[number] = end));
      if (number === 0) throw new Error("no");
      return number;
    }).catch(() => -1),
  );
  await Promise.resolve();
  expect(began).toEqual([0, 1]);
  ends[0]?.();
  expect(await all[0]).toBe(-1);
  expect(began).toEqual([0, 1, 2]);
  ends[1]?.();
  ends[2]?.();
  expect(await all[2]).toBe(2);
  ends[3]?.();
  expect(await Promise.all(all)).toEqual([-1, 1, 2, 3]);
});
