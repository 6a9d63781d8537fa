/** Coalesces all calls of a moment into one run. */

export function coalesce(run: () => void, schedule: (run: () => void) => unknown = queueMicrotask): () => void {
  let waiting = false;
  return () => {
    if (!waiting) schedule(() => {
      waiting = false;
      run();
    });
    waiting = true;
  };
}
