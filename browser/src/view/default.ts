/** What the browser would do by itself at the end of an event, done in another way. */

export type Later = (run: () => void, milliseconds: number) => unknown;

/** Calls `run` once `event`, which is on its way down, has been everywhere and nobody prevented its default. */
export function insteadOfDefault(event: Event, later: Later, run: () => void): void {
  const { type } = event;
  const prevent = event.preventDefault.bind(event);
  const end = (seen: Event): void => {
    if (seen !== event) return;
    removeEventListener(type, end);
    if (event.defaultPrevented) return;
    prevent();
    run();
  };
  // The last of all listeners, where it comes that far; some are added on the way down to be that (Turbo's).
  document.addEventListener(type, () => addEventListener(type, end), { capture: true, once: true });
  for (const stop of ["stopPropagation", "stopImmediatePropagation"] as const) {
    event[stop] = () => {
      Event.prototype[stop].call(event);
      removeEventListener(type, end);
      if (event.defaultPrevented) return;
      // Others may hear of it here, and still prevent what the browser must not do in any case.
      let prevented = false;
      prevent();
      event.preventDefault = () => void (prevented = true);
      Object.defineProperty(event, "defaultPrevented", { configurable: true, get: () => prevented });
      later(() => prevented || run(), 0);
    };
  }
}
