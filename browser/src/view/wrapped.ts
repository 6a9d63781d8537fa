/** Replaces or extends methods of the browser. */

/** `made` with the name and the length of `native`, which it replaces. */
export function named<Made extends Function>(native: Function, made: Made): Made {
  const { name, length } = Object.getOwnPropertyDescriptors(native);
  return Object.defineProperties(made, { name, length });
}

/** Replaces `owner`'s method `name` by `made`, which receives the native call, the instance, and the arguments. */
export function wrap<Self>(owner: object, name: string, made: (native: () => unknown, self: Self, given: unknown[]) => unknown): void {
  const native = Reflect.get(owner, name) as Function;
  Reflect.set(owner, name, named(native, function (this: Self, ...given: unknown[]) {
    // Without an object, it is the window's.
    return made(() => native.apply(this, given), this ?? (window as Self), given);
  }));
}
