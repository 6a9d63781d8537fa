/** Functions of the browser that no later change of a page can reach. */

/** `method` as a function of its `this`, which no later change of `Function.prototype` can reach. */
export function uncurried<This, Arguments extends unknown[], Result>(
  method: (this: This, ...rest: Arguments) => Result,
): (self: This, ...rest: Arguments) => Result {
  return Function.prototype.call.bind(method) as (self: This, ...rest: Arguments) => Result;
}
