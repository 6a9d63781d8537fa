/** The browser's own functions, taken before a script of the page can replace them. */

import { attempt } from "./attempt";
import { uncurried } from "./uncurried";

/** Under this key the parent that a page is shown has the real one. */
export const REAL = Symbol.for("webmcp-gateway");

type Scope = Window & typeof globalThis;

export type Natives = ReturnType<typeof takeNatives>;

function getter<Owner extends object, Key extends keyof Owner & string>(owner: Owner, key: Key): (self: Owner) => Owner[Key] {
  return uncurried(Object.getOwnPropertyDescriptor(owner, key)!.get!) as (self: Owner) => Owner[Key];
}

/** Nothing where the page is no secure context. */
function takeCrypto(subtle: SubtleCrypto | undefined) {
  if (!subtle) return {};
  const importKey = subtle.importKey.bind(subtle);
  const sign = subtle.sign.bind(subtle);
  return {
    importKey: (key: BufferSource) => importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]),
    sign: (key: CryptoKey, message: BufferSource) => sign("HMAC", key, message),
    digest: subtle.digest.bind(subtle),
  };
}

/** What only the person can cause: `seen` is told when, on the clock of `performance.now`. */
function watchGestures(scope: Scope, seen: (at: number) => void): void {
  const timeStamp = getter(scope.Event.prototype, "timeStamp");
  const see = (event: Event): void => {
    // The browser's own word, of each event: no script can redefine it.
    if (event.isTrusted) seen(timeStamp(event));
  };
  for (const type of ["pointerdown", "keydown", "click"]) scope.addEventListener(type, see, { capture: true, passive: true });
}

/** Whether the browser counts the page as activated by the person; never where it does not say. */
function takeActivation(scope: Scope): () => boolean {
  const activation: UserActivation | undefined = scope.navigator.userActivation;
  if (!activation) return () => false;
  const isActive = getter(scope.UserActivation.prototype, "isActive");
  return () => isActive(activation);
}

/** Everything that handles a secret or decides who speaks goes through these. */
export function takeNatives(scope: Scope) {
  // A host that writes another page into this window: the one before left its own parent here.
  const parent: Window = attempt(() => Reflect.get(scope.parent, REAL) as Window) ?? scope.parent;
  const event = scope.MessageEvent.prototype;
  return {
    parent,
    postToParent: (message: unknown, ...rest: unknown[]) =>
      (parent.postMessage as (message: unknown, ...rest: unknown[]) => void)(message, ...rest),
    // Looked up when it is called: one host wraps it, and delivers through its wrapper alone.
    listen: (listener: (event: MessageEvent) => void) => scope.addEventListener("message", listener, true),
    dispatch: uncurried(scope.EventTarget.prototype.dispatchEvent),
    stop: uncurried(scope.Event.prototype.stopImmediatePropagation),
    eventMessage: getter(event, "data"),
    eventSource: getter(event, "source"),
    eventOrigin: getter(event, "origin"),
    eventPorts: getter(event, "ports"),
    ownProperty: Object.getOwnPropertyDescriptor,
    isMember: uncurried(WeakSet.prototype.has as (this: WeakSet<object>, value: object) => boolean),
    MessageEvent: scope.MessageEvent,
    Request: scope.Request,
    ...takeCrypto(scope.crypto?.subtle),
    now: scope.performance.now.bind(scope.performance),
    activated: takeActivation(scope),
    watch: (seen: (at: number) => void) => watchGestures(scope, seen),
    later: (run: () => void, milliseconds: number) => scope.setTimeout(run, milliseconds),
    cancel: (timer: number | undefined) => scope.clearTimeout(timer),
    warn: (line: string) => scope.console.warn(`webmcp-gateway: ${line}`),
    random: () => scope.crypto.getRandomValues(new Uint8Array(9)),
  };
}
