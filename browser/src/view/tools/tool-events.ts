/** The events of WebMCP: `toolactivated` and `toolcancel`, and its additions to `submit`. */

import { dictionary, toDomString } from "./conversions";
import { defineClass } from "../http/handlers";

const illegal = (): never => {
  throw new TypeError("Illegal invocation");
};

/** A class of events with a `toolName`. */
function toolEvent(className: string): new (type: string, init?: { toolName?: string } & EventInit) => Event {
  class ToolEvent extends Event {
    #toolName: string;
    constructor(type: string, init?: { toolName?: string } & EventInit) {
      if (!arguments.length) throw new TypeError(`Failed to construct '${className}': 1 argument required, but only 0 present.`);
      const fail = (why: string): never => {
        throw new TypeError(`Failed to construct '${className}': ${why}`);
      };
      const text = toDomString(type, fail);
      const member = dictionary(init, `${className}Init`, fail);
      super(text, init);
      this.#toolName = member("toolName", toDomString) ?? "";
    }
    get toolName(): string {
      return #toolName in this ? this.#toolName : illegal();
    }
  }
  Object.defineProperty(ToolEvent, "length", { value: 1 });
  Object.defineProperty(ToolEvent.prototype, "toolName", { enumerable: true });
  defineClass(ToolEvent, className);
  return ToolEvent;
}

export const ToolActivatedEvent = toolEvent("ToolActivatedEvent");
export const ToolCancelEvent = toolEvent("ToolCancelEvent");

/** `SubmitEvent` with `agentInvoked` and `respondWith`; the events of forms that a model's call submits have their own. */
export function installSubmitEvent(scope: { SubmitEvent: typeof SubmitEvent }): void {
  const { SubmitEvent: Native } = scope;
  const { prototype } = Native;
  if ("agentInvoked" in prototype) return;
  const { get: isSubmitEvent = illegal } = Object.getOwnPropertyDescriptor(prototype, "submitter") ?? {};
  const invoked = new WeakSet<object>();
  const added = {
    get agentInvoked(): boolean {
      isSubmitEvent.call(this);
      return invoked.has(this);
    },
    respondWith(_: unknown): void {
      isSubmitEvent.call(this);
      if (!arguments.length) throw new TypeError("Failed to execute 'respondWith' on 'SubmitEvent': 1 argument required, but only 0 present.");
      throw new DOMException("Failed to execute 'respondWith' on 'SubmitEvent': You can only call respondWith on an submit event that has agentInvoked == true.", "InvalidStateError");
    },
  };
  Object.defineProperties(prototype, Object.getOwnPropertyDescriptors(added));
  const made = new Proxy(Native, {
    construct(target, given: [string, { agentInvoked?: unknown }?], as) {
      const event = Reflect.construct(target, given, as) as SubmitEvent;
      if (given[1]?.agentInvoked) invoked.add(event);
      return event;
    },
  });
  Object.defineProperty(prototype, "constructor", { value: made });
  Object.defineProperty(scope, "SubmitEvent", { value: made });
}
