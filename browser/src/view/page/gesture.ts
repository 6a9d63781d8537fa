/** The person's last gesture in the page, as the view itself reports it, for hosts that attest none. */

/** Milliseconds after a gesture in which a request may still be caused by it. */
const MAX_AGE = 5000;

export interface Gestures {
  /**
   * The current gesture of the page, as a function that returns its age in whole milliseconds, while it is recent.
   *
   * A gesture that the browser no longer counts is ignored.
   */
  take(): () => number | undefined;
}

interface GestureDependencies {
  now(): number;
  /** Whether the browser counts the page as activated by the person; false if it does not report that. */
  isActivated(): boolean;
  /** `seen` receives the time of each event that the person caused, on `now`'s clock. */
  watch(seen: (at: number) => void): void;
}

export function createGestures({ now, isActivated, watch }: GestureDependencies): Gestures {
  let last = -Infinity;
  watch((at) => (last = at));
  return {
    take() {
      const at = isActivated() ? last : -Infinity;
      return () => {
        const age = Math.max(0, Math.ceil(now() - at));
        return age <= MAX_AGE ? age : undefined;
      };
    },
  };
}
