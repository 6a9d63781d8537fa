/** When the person last acted in the page: the view's own word, for hosts that attest nothing. */

/** How long after a gesture a request may still be its doing, in milliseconds. */
const LONGEST = 5000;

export interface Gestures {
  /**
   * The gesture that the page acts on at this moment, as a function that gives its age in whole milliseconds, as long
   * as it is young enough. One that the browser no longer counts is none.
   */
  take(): () => number | undefined;
}

interface Ends {
  now(): number;
  /** Whether the browser counts the page as activated by the person; false where it does not say. */
  activated(): boolean;
  /** `seen` is told the time of each event that the person caused, on `now`'s clock. */
  watch(seen: (at: number) => void): void;
}

export function createGestures({ now, activated, watch }: Ends): Gestures {
  let last = -Infinity;
  watch((at) => (last = at));
  return {
    take() {
      const at = activated() ? last : -Infinity;
      return () => {
        const age = Math.max(0, Math.ceil(now() - at));
        return age <= LONGEST ? age : undefined;
      };
    },
  };
}
