/** How long ago a person's gesture was, as far as a proxy can know: it sees that there was one lately, not when. */

const LONGEST = 5000;
/** Milliseconds for which a gesture that was told of need not be told again: the gateway counts it for a second. */
const AGAIN = 250;

/** Remembers when there was last no gesture in effect; times are in milliseconds. */
export class Gestures {
  private lastInactive: number;
  private told = { gesture: NaN, at: NaN };

  constructor(now: number) {
    this.lastInactive = now;
  }

  /** Look: `active` is `navigator.userActivation.isActive`. */
  look(active: boolean, now: number): void {
    if (!active) this.lastInactive = now;
  }

  /** Look, and say at most how long ago the gesture was; null where none is in effect, or this one was just told of. */
  age(active: boolean, now: number): number | null {
    this.look(active, now);
    const { told, lastInactive } = this;
    if (!active || (told.gesture === lastInactive && now - told.at < AGAIN)) return null;
    this.told = { gesture: lastInactive, at: now };
    return Math.min(Math.ceil(now - lastInactive), LONGEST);
  }
}
