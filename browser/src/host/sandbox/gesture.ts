/** The age of a person's gesture, as far as a proxy can know: it sees that there was one recently, not when. */

const LONGEST = 5000;
/** Milliseconds for which a reported gesture need not be reported again: the gateway counts it for a second. */
const AGAIN = 250;

/** Stores when there was last no gesture in effect; times are in milliseconds. */
export class Gestures {
  private lastInactive: number;
  private told = { gesture: NaN, at: NaN };

  constructor(now: number) {
    this.lastInactive = now;
  }

  /** Update: `active` is `navigator.userActivation.isActive`. */
  look(active: boolean, now: number): void {
    if (!active) this.lastInactive = now;
  }

  /** Update, and return the maximum age of the gesture; null if none is in effect, or this one was just reported. */
  age(active: boolean, now: number): number | null {
    this.look(active, now);
    const { told, lastInactive } = this;
    if (!active || (told.gesture === lastInactive && now - told.at < AGAIN)) return null;
    this.told = { gesture: lastInactive, at: now };
    return Math.min(Math.ceil(now - lastInactive), LONGEST);
  }
}
