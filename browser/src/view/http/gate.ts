/** Limits concurrent calls; the others wait in FIFO order, as in a browser's connection pool. */

export function createGate(free: number): <Value>(run: () => Promise<Value>) => Promise<Value> {
  const waiting: (() => void)[] = [];
  return async (run) => {
    if (free > 0) free--;
    else await new Promise<void>((go) => waiting.push(go));
    try {
      return await run();
    } finally {
      const next = waiting.shift();
      if (next) next();
      else free++;
    }
  };
}
