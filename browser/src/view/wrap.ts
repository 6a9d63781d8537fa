/** Replaces or extends methods of the browser. */

/** `made` with the name and the length of `native`, which it replaces. */
export function withIdentityOf<Made extends Function>(native: Function, made: Made): Made {
  const { name, length } = Object.getOwnPropertyDescriptors(native);
  return Object.defineProperties(made, { name, length });
}

/**
 * The members of the dictionary `given`, with another `value` of `name`. Each is read of `given` itself: it may be a
 * `Request` or an event, whose getters accept no other object.
 */
export function withGetter(given: object, name: string, value: () => unknown): object {
  return new Proxy({}, { get: (_, key) => (key === name ? value() : Reflect.get(given, key)) });
}

/** Replaces `owner`'s method `name` by `made`, which receives the native call, the instance, and the arguments. */
export function wrap<Self>(owner: object, name: string, made: (native: () => unknown, self: Self, given: unknown[]) => unknown): void {
  const native = Reflect.get(owner, name) as Function;
  Reflect.set(owner, name, withIdentityOf(native, function (this: Self, ...given: unknown[]) {
    // Without an object, it is the window's.
    return made(() => native.apply(this, given), this ?? (window as Self), given);
  }));
}
