import { expect, test } from "vitest";
import type { ToolResult } from "./model";
import { play, type Progress, type Stage, type Story } from "./story";

const STORY: Story = {
  title: "t",
  steps: [
    { caption: "list", list: true },
    { caption: "get", tool: "get" },
    { caption: "remove", tool: "remove", otherwise: "kept" },
  ],
};

const noPause = async (): Promise<void> => {};

/** A stage that records calls; the tools in `failing` answer with an error. */
function stageOf(failing: string[] = []): { stage: Stage; calls: string[] } {
  const calls: string[] = [];
  const stage: Stage = {
    list: async () => (calls.push("list"), []),
    call: async (name): Promise<ToolResult> => {
      calls.push(name);
      return { isError: failing.includes(name), texts: ["no"], structured: undefined };
    },
  };
  return { stage, calls };
}

async function played(stage: Stage, signal = new AbortController().signal): Promise<Progress[]> {
  const told: Progress[] = [];
  await play(STORY, stage, (progress) => told.push(progress), signal, noPause);
  return told;
}

test("the steps run in order, to the end", async () => {
  const { stage, calls } = stageOf();
  const told = await played(stage);
  expect(calls).toEqual(["list", "get", "remove"]);
  expect(told.at(-1)).toEqual({ state: "done", step: 2 });
});

test("an error ends the story with its words", async () => {
  const { stage, calls } = stageOf(["get"]);
  expect((await played(stage)).at(-1)).toEqual({ state: "failed", step: 1, problem: "no" });
  expect(calls).toEqual(["list", "get"]);
});

test("a step that foresees an error goes on with another caption", async () => {
  const told = await played(stageOf(["remove"]).stage);
  expect(told.slice(-2)).toEqual([
    { state: "running", step: 2, note: "kept no" },
    { state: "done", step: 2 },
  ]);
});

test("a stopped story calls nothing more", async () => {
  const controller = new AbortController();
  const { stage, calls } = stageOf();
  const stopping: Stage = { ...stage, list: async (signal) => (controller.abort(), stage.list(signal)) };
  expect((await played(stopping, controller.signal)).at(-1)).toEqual({ state: "stopped", step: 0 });
  expect(calls).toEqual(["list"]);
});

test("a call that ends because the story was stopped is no failure", async () => {
  const controller = new AbortController();
  const cut = (): Promise<never> => (controller.abort(), Promise.reject(new Error("aborted")));
  const told = await played({ ...stageOf().stage, call: cut }, controller.signal);
  expect(told.at(-1)).toEqual({ state: "stopped", step: 1 });
});
