/** What the browser would do by itself at the end of an event, done in another way. */

export type Later = (run: () => void, milliseconds: number) => unknown;

/** What is done in place of that, by the path of the event; nothing where the browser does what may be. `stopped` tells that others may hear of it yet. */
export type Find = (path: EventTarget[], event: Event, stopped?: boolean) => (() => void) | false | null | undefined;

/** What is called once an event goes no further, by the event. */
export function watchStops(): WeakMap<Event, () => void> {
  const ends = new WeakMap<Event, () => void>();
  for (const stop of ["stopPropagation", "stopImmediatePropagation"] as const) {
    const native = Event.prototype[stop];
    Event.prototype[stop] = function () {
      native.call(this);
      ends.get(this)?.();
    };
  }
  return ends;
}

/** Each `find` is asked once an event of its type has been everywhere, and nobody prevented its default. */
export function createDefaults(later: Later): (type: string, find: Find) => void {
  const ends = watchStops();
  return (type, find) => addEventListener(type, (event) => {
    const path = event.composedPath();
    const found = (stopped?: boolean): (() => void) | undefined => (!event.defaultPrevented && find(path, event, stopped)) || undefined;
    const taken = (stopped?: boolean): (() => void) | undefined => {
      ends.delete(event);
      removeEventListener(type, end);
      const run = found(stopped);
      if (run) event.preventDefault();
      return run;
    };
    const end = (seen: Event): unknown => seen === event && taken()?.();
    // The last of all listeners, where it comes that far; some are added on the way down to be that (Turbo's).
    document.addEventListener(type, () => addEventListener(type, end), { capture: true, once: true });
    ends.set(event, () => {
      if (!taken(true)) return;
      // Others may hear of it here, and still prevent what the browser must not do in any case.
      let prevented = false;
      event.preventDefault = () => void (prevented = true);
      Object.defineProperty(event, "defaultPrevented", { configurable: true, get: () => prevented });
      later(() => found()?.(), 0);
    });
  }, true);
}
