/** Timers longer than 24.8 days, after which those of browsers fire at once. */

const MAX_TIMEOUT = 2 ** 31 - 1;

interface Timers {
  later(run: () => void, milliseconds: number): number;
  cancelTimer(timer: number | undefined): void;
}

/** Calls `run` after `milliseconds`, unless the returned function is called before. */
export function setLongTimer({ later, cancelTimer }: Timers, run: () => void, milliseconds: number): () => void {
  let timer: number;
  const schedule = (left: number): void => {
    timer = later(() => (left > MAX_TIMEOUT ? schedule(left - MAX_TIMEOUT) : run()), Math.min(left, MAX_TIMEOUT));
  };
  schedule(milliseconds);
  return () => cancelTimer(timer);
}
