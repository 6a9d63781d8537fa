/** Tracks model calls that run in the page without passing through the gateway. */

/** Milliseconds after such a call in which the page's requests still count as the model's. */
const GRACE = 2000;

export interface Activity {
  /** Marks the start of a call; the returned function marks the end, and is called once. */
  begin(): () => void;
  isRunning(): boolean;
}

export function createActivity(now: () => number): Activity {
  let running = 0;
  let until = -Infinity;
  return {
    begin() {
      running += 1;
      return () => {
        running -= 1;
        until = now() + GRACE;
      };
    },
    isRunning: () => running > 0 || now() < until,
  };
}
