/** A scripted model: a story is data, and is played through the same client as any other model's calls. */
import type { ListedTool, ToolResult } from "./model";
import type { JsonObject } from "./types";

/** One step: a short caption, and the model's action (nothing, list its tools, or call one). */
export interface Step {
  caption: string;
  list?: true;
  tool?: string;
  arguments?: JsonObject;
  /** The person's task meanwhile, and the final caption if the tool answers with an error. */
  needs?: string;
  otherwise?: string;
}

/** From the file that the configuration names for an app (`apps.<name>.story`). */
export interface Story {
  title: string;
  steps: readonly Step[];
}

export type Progress =
  | { state: "running"; step: number; note?: string }
  | { state: "done" | "stopped"; step: number }
  | { state: "failed"; step: number; problem: string };

/** Calls a page's tool by the page's name; the model's name may differ. */
export interface Stage {
  list(signal: AbortSignal): Promise<ListedTool[]>;
  call(pageName: string, args: JsonObject, signal: AbortSignal): Promise<ToolResult>;
}

/** Milliseconds for which a caption is shown before its step, and its outcome after. */
const CAPTION_TIME = 1600;
const RESULT_TIME = 1400;

/** Play to the end, to a failure, or until `signal` aborts; never throws. */
export async function play(
  story: Story,
  stage: Stage,
  tell: (progress: Progress) => void,
  signal: AbortSignal,
  pause: (milliseconds: number, signal: AbortSignal) => Promise<void> = sleep,
): Promise<void> {
  for (const [index, step] of story.steps.entries()) {
    tell({ state: "running", step: index });
    const problem = await pause(CAPTION_TIME, signal)
      .then(() => runStep(step, stage, signal))
      .catch((error: unknown) => (error instanceof Error ? error.message : String(error)));
    if (signal.aborted) return tell({ state: "stopped", step: index });
    if (problem && !step.otherwise) return tell({ state: "failed", step: index, problem });
    if (problem && step.otherwise) tell({ state: "running", step: index, note: `${step.otherwise} ${problem}` });
    await pause(RESULT_TIME, signal).catch(() => {});
    if (signal.aborted) return tell({ state: "stopped", step: index });
  }
  tell({ state: "done", step: story.steps.length - 1 });
}

/** Run one step; returns the error, if any. */
async function runStep(step: Step, stage: Stage, signal: AbortSignal): Promise<string | undefined> {
  if (step.list) await stage.list(signal);
  if (!step.tool) return undefined;
  const result = await stage.call(step.tool, step.arguments ?? {}, signal);
  return result.isError ? result.texts.join(" ") || "The tool answered with an error." : undefined;
}

function sleep(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason as Error);
    });
  });
}
