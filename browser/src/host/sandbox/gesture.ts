/** The age of a person's gesture, as far as a proxy can know: it sees that there was one recently, not when. */

const MAX_AGE = 5000;
/** Milliseconds for which a reported gesture need not be reported again: the gateway counts it for a second. */
const REPORT_INTERVAL = 250;

/** Stores when there was last no gesture in effect; times are in milliseconds. */
export class Gestures {
  private lastInactive: number;
  private lastReport = { gesture: NaN, at: NaN };

  constructor(now: number) {
    this.lastInactive = now;
  }

  /** Update: `active` is `navigator.userActivation.isActive`. */
  update(active: boolean, now: number): void {
    if (!active) this.lastInactive = now;
  }

  /** Update, and return the maximum age of the gesture; null if none is in effect, or this one was just reported. */
  age(active: boolean, now: number): number | null {
    this.update(active, now);
    const { lastReport, lastInactive } = this;
    if (!active || (lastReport.gesture === lastInactive && now - lastReport.at < REPORT_INTERVAL)) return null;
    this.lastReport = { gesture: lastInactive, at: now };
    return Math.min(Math.ceil(now - lastInactive), MAX_AGE);
  }
}
