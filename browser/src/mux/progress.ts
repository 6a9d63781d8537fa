/** The states of a connection and its views, changed by the frames of both ends. */
import { MuxError } from "./errors";
import type { Frame } from "./frames";
import { CLOSED_REMEMBERED, TRANSITIONS, type Role, type State } from "./rules";

type OpeningFrame = Extract<Frame, { type: "open" | "opened" | "error" }>;

/** The state of one connection. `advance` throws MuxError `unexpected` for a frame that is out of turn. */
export class Progress {
  ended = false;
  private greeted = false;
  private readonly opening = new Set<string>();
  private readonly views = new Map<string, State>();
  private readonly closed = new Set<string>();

  /** The views that are open. */
  get openViews(): string[] {
    return [...this.views.keys()].filter((view) => this.isOpen(view));
  }

  /** Whether messages may pass. */
  isOpen(view: string): boolean {
    return this.views.get(view) === "open";
  }

  /** Apply a frame of `speaker`; false if it crossed with a close, and must be dropped. */
  advance(speaker: Role, frame: Frame): boolean {
    if (frame.type === "error" && frame.ref === undefined && frame.view === undefined && speaker === "gateway") {
      this.ended = true;
      return true;
    }
    if (frame.type === "hello" || !this.greeted) {
      if (this.greeted || frame.type !== "hello" || speaker !== "host") {
        throw unexpected("hello comes first, once, from the host");
      }
      this.greeted = true;
      return true;
    }
    if (frame.type === "open" || frame.type === "opened") return this.advanceReference(speaker, frame, frame.ref);
    if (frame.type !== "error") return this.advanceView(speaker, frame, frame.view);
    if (frame.ref !== undefined) return this.advanceReference(speaker, frame, frame.ref);
    if (frame.view !== undefined) return this.advanceView(speaker, frame, frame.view);
    throw unexpected("only the gateway ends a connection by an error");
  }

  private advanceReference(speaker: Role, frame: OpeningFrame, reference: string): true {
    const state = this.opening.has(reference) ? "opening" : "absent";
    if (nextState(speaker, frame, state) === "opening") {
      this.opening.add(reference);
      return true;
    }
    if (frame.type === "opened") {
      if (this.views.has(frame.view) || this.closed.has(frame.view)) {
        throw unexpected("opened names a view that was there before");
      }
      this.views.set(frame.view, "open");
    }
    this.opening.delete(reference);
    return true;
  }

  private advanceView(speaker: Role, frame: Frame, view: string): boolean {
    const state = this.views.get(view) ?? (this.closed.has(view) ? "closed" : "absent");
    const next = nextState(speaker, frame, state);
    if (state === "closed") return false;
    if (next === "open" || next === "resuming") {
      this.views.set(view, next);
      return true;
    }
    this.views.delete(view);
    if (next === "closed") this.rememberClosed(view);
    return true;
  }

  private rememberClosed(view: string): void {
    this.closed.add(view);
    const [oldest] = this.closed;
    if (this.closed.size > CLOSED_REMEMBERED && oldest !== undefined) this.closed.delete(oldest);
  }
}

function nextState(speaker: Role, frame: Frame, state: State): State {
  const next = TRANSITIONS[speaker][state]?.[frame.type];
  if (next === undefined) throw unexpected(`the ${speaker} may not send ${frame.type} where the view is ${state}`);
  return next;
}

function unexpected(detail: string): MuxError {
  return new MuxError("unexpected", detail);
}
