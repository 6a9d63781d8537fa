/** The browser's own functions, captured before a script of the page can replace them. */

import { attempt } from "./attempt";
import { uncurryThis } from "./uncurry-this";

/** The key of the real parent in the one that the page sees. */
export const REAL = Symbol.for("webmcp-gateway");

export type Natives = ReturnType<typeof takeNatives>;

function getter<Owner extends object, Key extends keyof Owner & string>(owner: Owner, key: Key): (self: Owner) => Owner[Key] {
  return uncurryThis(Object.getOwnPropertyDescriptor(owner, key)!.get!) as (self: Owner) => Owner[Key];
}

/** Empty in an insecure context. */
function takeCrypto(subtle: SubtleCrypto | undefined) {
  if (!subtle) return {};
  const importKey = subtle.importKey.bind(subtle);
  const sign = subtle.sign.bind(subtle);
  return {
    importKey: (key: BufferSource) => importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]),
    sign: (key: CryptoKey, message: BufferSource) => sign("HMAC", key, message),
  };
}

/** Watches events that only the person can cause: `seen` receives their times, on the clock of `performance.now`. */
function watchGestures(seen: (at: number) => void): void {
  const timeStamp = getter(Event.prototype, "timeStamp");
  const onEvent = (event: Event): void => {
    // Set by the browser on each event: no script can redefine it.
    if (event.isTrusted) seen(timeStamp(event));
  };
  for (const type of ["pointerdown", "keydown", "click"]) addEventListener(type, onEvent, { capture: true, passive: true });
}

/** Whether the browser counts the page as activated by the person; false if it does not report that. */
function takeActivation(): () => boolean {
  const activation: UserActivation | undefined = navigator.userActivation;
  if (!activation) return () => false;
  const isActive = getter(UserActivation.prototype, "isActive");
  return () => isActive(activation);
}

/** All code that handles a secret or checks a message's source uses these. */
export function takeNatives() {
  // A host may write another page into this window: the previous one left its own parent here.
  const parent: Window = attempt(() => Reflect.get(window.parent, REAL) as Window) ?? window.parent;
  const event = MessageEvent.prototype;
  return {
    parent,
    postToParent: (message: unknown, ...rest: unknown[]) =>
      (parent.postMessage as (message: unknown, ...rest: unknown[]) => void)(message, ...rest),
    // Looked up at the call: one host wraps it, and delivers only through its wrapper.
    listen: (listener: (event: MessageEvent) => void) => addEventListener("message", listener, true),
    dispatch: uncurryThis(EventTarget.prototype.dispatchEvent),
    stop: uncurryThis(Event.prototype.stopImmediatePropagation),
    eventMessage: getter(event, "data"),
    eventSource: getter(event, "source"),
    eventOrigin: getter(event, "origin"),
    eventPorts: getter(event, "ports"),
    ownProperty: Object.getOwnPropertyDescriptor,
    isMember: uncurryThis(WeakSet.prototype.has as (this: WeakSet<object>, value: object) => boolean),
    MessageEvent,
    Request,
    ...takeCrypto(crypto.subtle),
    now: performance.now.bind(performance),
    isActivated: takeActivation(),
    watch: watchGestures,
    later: (run: () => void, milliseconds: number) => window.setTimeout(run, milliseconds),
    cancelTimer: (timer: number | undefined) => clearTimeout(timer),
    warn: (line: string) => console.warn(`webmcp-gateway: ${line}`),
    randomBytes: () => crypto.getRandomValues(new Uint8Array(9)),
  };
}
