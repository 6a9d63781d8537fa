/** When an approval may be answered: after the person had it in sight, undisturbed, for 800 ms. No elements, no clock. */

export const SETTLE_TIME = 800;

/** The conditions that must hold until the answer. */
export interface Sight {
  /** The question and its buttons lie within the window. */
  inView: boolean;
  /** The document has the focus and its tab is the one shown. */
  focused: boolean;
  /** Nothing is in full screen or in a picture-in-picture window. */
  uncovered: boolean;
}

export class AnswerGuard {
  private since: number | undefined;
  private pressed = false;

  /** Report the conditions at `now` (milliseconds); any that fails restarts the time. */
  observeSight(sight: Sight, now: number): void {
    if (!(sight.inView && sight.focused && sight.uncovered)) this.restart();
    else this.since ??= now;
  }

  /** The question moved, or another one came or went: the pointer may be over another button now. */
  restart(): void {
    this.since = undefined;
    this.pressed = false;
  }

  armed(now: number): boolean {
    return this.since !== undefined && now - this.since >= SETTLE_TIME;
  }

  /** Milliseconds until it is armed; undefined while a condition fails. */
  wait(now: number): number | undefined {
    return this.since === undefined ? undefined : Math.max(0, SETTLE_TIME - (now - this.since));
  }

  press(event: Press, now: number): void {
    this.pressed = event.isTrusted && event.pointerType !== "" && this.armed(now);
  }

  /** Whether this click is a person's answer: begun and ended with a pointer, both while armed. */
  accepts(event: Press & { detail: number }, now: number): boolean {
    const begun = this.pressed;
    this.pressed = false;
    // Enter and Space cause clicks without a pointer type and with detail 0.
    return begun && event.isTrusted && event.pointerType !== "" && event.detail > 0 && this.armed(now);
  }
}

interface Press {
  isTrusted: boolean;
  pointerType: string;
}
