/** What the browser would do by itself at the end of an event, done in another way. */

import { wrap } from "./wrapped";

export type Later = (run: () => void, milliseconds: number) => unknown;

/** What is done in place of that, by the path of the event; nothing where the browser does what may be. `stopped` tells that others may hear of it yet. */
export type Find = (path: EventTarget[], event: Event, stopped?: boolean) => (() => void) | false | null | undefined;

/** What is called once an event goes no further, by the event. */
export function watchStops(): WeakMap<Event, () => void> {
  const ends = new WeakMap<Event, () => void>();
  for (const stop of ["stopPropagation", "stopImmediatePropagation"]) {
    wrap<Event>(Event.prototype, stop, (native, event) => {
      native();
      ends.get(event)?.();
    });
  }
  return ends;
}

/** Each `find` is asked once an event of its type has been everywhere, and nobody prevented its default. */
export function createDefaults(later: Later): (type: string, find: Find) => void {
  const ends = watchStops();
  const { prototype } = Event;
  const { preventDefault } = prototype;
  const told = Object.getOwnPropertyDescriptor(prototype, "defaultPrevented")!;
  /** Of those whose default the browser must not have in any case: whether the page prevented it. */
  const prevented = new WeakMap<Event, boolean>();
  wrap<Event>(prototype, "preventDefault", (native, event) => {
    if (prevented.has(event)) prevented.set(event, true);
    else native();
  });
  Object.defineProperty(prototype, "defaultPrevented", {
    ...told,
    get(this: Event) {
      return prevented.get(this) ?? told.get!.call(this);
    },
  });

  return (type, find) => {
    const hear = (event: Event): void => {
      if (ends.has(event)) return;
      const path = event.composedPath();
      const place = event.currentTarget!;
      const found = (stopped?: boolean): (() => void) | undefined => (!event.defaultPrevented && find(path, event, stopped)) || undefined;
      const taken = (stopped?: boolean): (() => void) | undefined => {
        ends.delete(event);
        place.removeEventListener(type, end);
        const run = found(stopped);
        if (run) {
          preventDefault.call(event);
          prevented.set(event, false);
        }
        return run;
      };
      const end = (seen: Event): unknown => seen === event && taken()?.();
      const last = (): void => place.addEventListener(type, end);
      // The last of all listeners, where it comes that far; some are added on the way down to be that (Turbo's).
      if (place === window) document.addEventListener(type, last, { capture: true, once: true });
      else last();
      // Others may hear of it here, and still prevent it.
      ends.set(event, () => taken(true) && later(() => found()?.(), 0));
    };
    addEventListener(type, hear, true);
    // Links outside of the document are how pages save files.
    for (const [owner, name] of [[EventTarget.prototype, "dispatchEvent"], [HTMLElement.prototype, "click"]] as const) {
      wrap<Node>(owner, name, (native, place) => {
        if (place.isConnected === false) place.getRootNode().addEventListener(type, hear, true);
        return native();
      });
    }
  };
}
