/** Functions of the browser that are protected from later changes by the page. */

/** `method` as a function of its `this`, independent of later changes of `Function.prototype`. */
export function uncurryThis<This, Arguments extends unknown[], Result>(
  method: (this: This, ...rest: Arguments) => Result,
): (self: This, ...rest: Arguments) => Result {
  return Function.prototype.call.bind(method) as (self: This, ...rest: Arguments) => Result;
}
