/** Runs a function, and returns undefined if it throws. */

export function attempt<Value>(run: () => Value): Value | undefined {
  try {
    return run();
  } catch {
    return undefined;
  }
}
