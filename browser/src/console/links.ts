/** A link that an app asks to open: only after a gesture, as the gateway decides, and as the person answers. */
import { ApiError } from "./api";
import type { LinkDecision } from "./types";

/** The dependencies of opening a link. */
export interface Opening {
  /** Whether a person has just acted on the page: an app may not open windows by itself. */
  isActive(): boolean;
  decide(url: string, answered?: boolean): Promise<LinkDecision>;
  ask(message: string, url: string): Promise<boolean>;
  /** Aborts once the app is closed, and the answer no longer matters. */
  closed: AbortSignal;
  /** Inform the person why nothing opens. */
  refuse(words: string): void;
  open(url: string): void;
}

/** Opens one link at a time; concurrent ones, and those without a gesture, are not opened. */
export function linkOpener(by: Opening): (url: string) => Promise<boolean> {
  const run = singleTask(by.refuse);
  return async (url) => by.isActive() && run(() => openLink(url, by));
}

/** Runs one task at a time; false while another runs, and after an error of the gateway, which `refuse` reports. */
export function singleTask(refuse: (words: string) => void): (task: () => Promise<boolean>) => Promise<boolean> {
  let busy = false;
  return async (task) => {
    if (busy) return false;
    busy = true;
    try {
      return await task();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      refuse(error.message);
      return false;
    } finally {
      busy = false;
    }
  };
}

async function openLink(url: string, by: Opening): Promise<boolean> {
  let told = await by.decide(url);
  if (told.decision === "ask") {
    const answered = await by.ask(told.message, url);
    if (by.closed.aborted) return false;
    told = await by.decide(url, answered);
  }
  if (told.decision === "open") by.open(url);
  return told.decision === "open";
}
