/** Replaces the browser's default action at the end of an event. */

import { wrap } from "../wrap";

export type Later = (run: () => void, milliseconds: number) => unknown;

/** The replacement by the path of the event, if any. `stopped`: other listeners may still run. */
export type FindAction = (path: EventTarget[], event: Event, stopped?: boolean) => (() => void) | false | null | undefined;

/** The callbacks for the moment when an event's propagation stops, by event. */
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

/** Calls each `find` once an event of its type has reached all listeners, and its default was not prevented. */
export function createDefaults(later: Later): (type: string, find: FindAction) => void {
  const ends = watchStops();
  const { prototype } = Event;
  const { preventDefault } = prototype;
  const nativePrevented = Object.getOwnPropertyDescriptor(prototype, "defaultPrevented")!;
  /** Events whose default the browser must never run: whether the page prevented it. */
  const prevented = new WeakMap<Event, boolean>();
  wrap<Event>(prototype, "preventDefault", (native, event) => {
    if (prevented.has(event)) prevented.set(event, true);
    else native();
  });
  Object.defineProperty(prototype, "defaultPrevented", {
    ...nativePrevented,
    get(this: Event) {
      return prevented.get(this) ?? nativePrevented.get!.call(this);
    },
  });

  return (type, find) => {
    const onEvent = (event: Event): void => {
      if (ends.has(event)) return;
      const path = event.composedPath();
      const place = event.currentTarget!;
      const findAction = (stopped?: boolean): (() => void) | undefined => (!event.defaultPrevented && find(path, event, stopped)) || undefined;
      const takeAction = (stopped?: boolean): (() => void) | undefined => {
        ends.delete(event);
        place.removeEventListener(type, end);
        const run = findAction(stopped);
        if (run) {
          preventDefault.call(event);
          prevented.set(event, false);
        }
        return run;
      };
      const end = (seen: Event): unknown => seen === event && takeAction()?.();
      const listenLast = (): void => place.addEventListener(type, end);
      // The last of all listeners, if the event gets there; some listeners are added during capture to be last
      // (Turbo's).
      if (place === window) document.addEventListener(type, listenLast, { capture: true, once: true });
      else listenLast();
      // Other listeners may run here, and still prevent it.
      ends.set(event, () => takeAction(true) && later(() => findAction()?.(), 0));
    };
    addEventListener(type, onEvent, true);
    // Pages save files by links outside of the document.
    for (const [owner, name] of [[EventTarget.prototype, "dispatchEvent"], [HTMLElement.prototype, "click"]] as const) {
      wrap<Node>(owner, name, (native, place) => {
        if (place.isConnected === false) place.getRootNode().addEventListener(type, onEvent, true);
        return native();
      });
    }
  };
}
