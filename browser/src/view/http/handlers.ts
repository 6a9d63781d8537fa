/** `on…` attributes of our own `EventTarget`s (HTML, 8.1.8.1). */

const { addEventListener } = EventTarget.prototype;

type Handler = object | null;

/** A handler keeps its place among the listeners until it is set to null. */
export function defineHandler(prototype: EventTarget, type: string): void {
  const handlers = new WeakMap<EventTarget, { now: Handler; handleEvent(event: Event): void }>();
  const handlerOf = (target: EventTarget) => {
    // Throws for anything but an event target, and adds nothing.
    addEventListener.call(target, type, null);
    if (!Object.prototype.isPrototypeOf.call(prototype, target)) throw new TypeError("Illegal invocation");
    return handlers.get(target);
  };
  const added = {
    get [`on${type}`](): Handler {
      return handlerOf(this as never)?.now ?? null;
    },
    set [`on${type}`](value: unknown) {
      const target = this as unknown as EventTarget;
      // Any object, which is called if it is a function (Web IDL, [LegacyTreatNonObjectAsNull]).
      const now = Object(value) === value ? (value as Handler) : null;
      const held = handlerOf(target);
      if (held && now) held.now = now;
      else if (held) {
        handlers.delete(target);
        target.removeEventListener(type, held);
      } else if (now) {
        const made = { now, handleEvent: (event: Event) => typeof made.now === "function" && made.now.call(target, event) === false && event.preventDefault() };
        handlers.set(target, made);
        target.addEventListener(type, made);
      }
    },
  };
  Object.defineProperties(prototype, Object.getOwnPropertyDescriptors(added));
}

/** Sets the name of a class for scripts. */
export function defineClass(of: { prototype: object }, className: string): void {
  Object.defineProperty(of, "name", { value: className });
  Object.defineProperty(of.prototype, Symbol.toStringTag, { value: className, configurable: true });
}

/** Defines constants as WebIDL does: on the class and on its prototype. */
export function defineConstants(of: { prototype: object }, ...names: string[]): void {
  names.forEach((name, value) => {
    for (const owner of [of, of.prototype]) Object.defineProperty(owner, name, { value, enumerable: true });
  });
}
