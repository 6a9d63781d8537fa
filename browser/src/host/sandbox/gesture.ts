/** How long ago a person's gesture was, as far as a proxy can know: it sees that there was one lately, not when. */

const LONGEST = 5000;

/** Remembers when there was last no gesture in effect; times are in milliseconds. */
export class Gestures {
  private lastInactive: number;

  constructor(now: number) {
    this.lastInactive = now;
  }

  /** Look: `active` is `navigator.userActivation.isActive`. */
  look(active: boolean, now: number): void {
    if (!active) this.lastInactive = now;
  }

  /** Look, and say at most how long ago the gesture was; null where none is in effect. */
  age(active: boolean, now: number): number | null {
    this.look(active, now);
    return active ? Math.min(Math.ceil(now - this.lastInactive), LONGEST) : null;
  }
}
