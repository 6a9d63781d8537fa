/** Timers longer than 24.8 days, after which those of browsers fire at once. */

const LONGEST = 2 ** 31 - 1;

interface Timers {
  later(run: () => void, milliseconds: number): number;
  cancel(timer: number | undefined): void;
}

/** Calls `run` after `milliseconds`, unless the returned function is called before. */
export function afterLong({ later, cancel }: Timers, run: () => void, milliseconds: number): () => void {
  let timer: number;
  const wait = (left: number): void => {
    timer = later(() => (left > LONGEST ? wait(left - LONGEST) : run()), Math.min(left, LONGEST));
  };
  wait(milliseconds);
  return () => cancel(timer);
}
