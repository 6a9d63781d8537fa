/** Events with a member that browsers reject because the runtime made it: a `Storage`, or the parent of a view. */

import { wrapGetter } from "./entries";
import { withIdentityOf, withGetter } from "../wrap";

/** Permits `ours` as `member` of events of the class `of`: in its constructor and in `init`, at the argument index `at`. */
export function overrideMember<Made extends Event>(of: "MessageEvent" | "StorageEvent", member: keyof Made & string, init: keyof Made, at: number, ours: unknown): void {
  type Class = new (type: string, init?: object) => Made;
  const classes = window as unknown as { [name: string]: Class };
  const native = classes[of]!;
  const prototype = native.prototype as Made & { [key in keyof Made]: Function };
  const told = new WeakSet<Made>();

  const made = (classes[of] = new Proxy(native, {
    construct(_, given: [string, { [name: string]: unknown }?], target: Function) {
      const [type, values] = given;
      // The other members are read as usual, also inherited ones.
      const whole = Object(values) === values ? withGetter(values!, member, value) : values;
      let isOurs = false;
      function value(): unknown {
        const said = values![member];
        isOurs = said === ours;
        return isOurs ? null : said;
      }
      const event = Reflect.construct(native, given.length > 1 ? [type, whole] : given, target) as Made;
      if (isOurs) told.add(event);
      return event;
    },
  }));
  prototype.constructor = made;
  const initialize = prototype[init] as Function;
  Object.assign(prototype, {
    [init]: withIdentityOf(initialize, function (this: Made, ...given: unknown[]) {
      const isOurs = given[at] === ours;
      if (isOurs) given[at] = null;
      initialize.apply(this, given);
      // It does nothing while the event is dispatched (DOM, 2.2).
      if (!this.eventPhase) told[isOurs ? "add" : "delete"](this);
    }),
  });
  wrapGetter(prototype as Made, member, (event, value) => (told.has(event) ? (ours as never) : value));
}
