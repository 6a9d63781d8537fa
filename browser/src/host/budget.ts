/** The message budget of a page: a burst, and a refill per second (token bucket). */
export class Budget {
  private readonly burst: number;
  private readonly perSecond: number;
  private left: number;
  private last: number;

  constructor(burst: number, perSecond: number, now: number) {
    this.burst = burst;
    this.perSecond = perSecond;
    this.left = burst;
    this.last = now;
  }

  /** Spend `cost` at `now` (milliseconds); false if the budget is exceeded. */
  take(cost: number, now: number): boolean {
    this.left = Math.min(this.burst, this.left + ((now - this.last) / 1000) * this.perSecond);
    this.last = now;
    if (cost > this.left) return false;
    this.left -= cost;
    return true;
  }
}
