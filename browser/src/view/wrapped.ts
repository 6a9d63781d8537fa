/** Methods of the browser that do more, or something else. */

/** `made` with the name and the length of `native`, in whose place it stands. */
export function named<Made extends Function>(native: Function, made: Made): Made {
  const { name, length } = Object.getOwnPropertyDescriptors(native);
  return Object.defineProperties(made, { name, length });
}

/** `made` stands in place of `owner`'s method `name`, and is told what does as the browser does, the owner's instance, and what was given. */
export function wrap<Self>(owner: object, name: string, made: (native: () => unknown, self: Self, given: unknown[]) => unknown): void {
  const native = Reflect.get(owner, name) as Function;
  Reflect.set(owner, name, named(native, function (this: Self, ...given: unknown[]) {
    // Called alone, it is the window's.
    return made(() => native.apply(this, given), this ?? (window as Self), given);
  }));
}
