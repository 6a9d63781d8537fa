/** Clicks whose end or existence the runtime would not notice: browsers would navigate. */

import { attempt } from "../attempt";
import { watchStops } from "./default-actions";
import { wrap } from "../wrap";

/** Stops the event, whose replacement then runs at once. */
const stop = (event: Event): void => event.stopPropagation();

/** Calls `run` if no listener prevented the default of `event`; `place` is its last target. */
function runAfterListeners(event: Event, place: EventTarget, ends: ReturnType<typeof watchStops>, run: () => void): void {
  const finish = (): void => {
    ends.delete(event);
    place.removeEventListener("click", end);
    if (event.defaultPrevented) return;
    event.preventDefault();
    run();
  };
  const end = (seen: Event): void => void (seen === event && finish());
  place.addEventListener("click", end);
  ends.set(event, finish);
}

/** A clone outside of the document is followed by the runtime, wherever the link is. */
const clickClone = (link: HTMLElement): void => (link.cloneNode() as HTMLElement).click();

/** The contents of a closed root are hidden from outer listeners. */
function watchClosedRoot(root: ShadowRoot, ends: ReturnType<typeof watchStops>): void {
  root.addEventListener("click", (event) => {
    const path = event.composedPath();
    const inside = path.slice(0, path.indexOf(root)).filter((one) => one instanceof Element);
    const place = event.composed ? window : root;
    const link = inside.find((one): one is HTMLElement => one.matches("a[href], area[href]"));
    const button = inside.find((one): one is HTMLButtonElement => one.matches("button, [type=submit], [type=image]") && /^(submit|image)$/.test((one as HTMLButtonElement).type));
    if (link) runAfterListeners(event, place, ends, () => clickClone(link));
    else if (button?.form && event instanceof MouseEvent) runAfterListeners(event, place, ends, () => button.form!.requestSubmit(button));
  }, true);
  // A submission by the browser itself.
  root.addEventListener("submit", (event) => {
    if (!event.isTrusted) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    (event.target as HTMLFormElement).requestSubmit((event as SubmitEvent).submitter);
  }, true);
}

type Handler = NonNullable<HTMLElement["onclick"]>;

/** The runtime has prevented the default of a stopped click: only this sees that a handler returns false. */
function watchOnclick(): void {
  const hearing = new WeakSet<Handler>();
  addEventListener("click", (event) => {
    for (const one of event.composedPath() as HTMLElement[]) {
      const { onclick } = one;
      if (!onclick || hearing.has(onclick)) continue;
      const handlerWithDefault: Handler = (seen) => {
        const given: unknown = onclick.call(one, seen);
        if (given === false) seen.preventDefault();
        return given;
      };
      hearing.add(handlerWithDefault);
      one.onclick = handlerWithDefault;
      setTimeout(() => one.onclick === handlerWithDefault && (one.onclick = onclick));
    }
  }, true);
}

export function watchClickEnds(): void {
  watchOnclick();
  wrap<EventTarget>(EventTarget.prototype, "dispatchEvent", (native, place, [event]) => {
    if (!(event instanceof Event && event.type === "click")) return native();
    if (!event.cancelable) event.initEvent("click", event.bubbles, true);
    // This is its last target.
    if (!event.bubbles) place.addEventListener("click", stop, { once: true });
    native();
    // The browser's result would be that the runtime prevented it.
    return !event.defaultPrevented;
  });
  const ends = watchStops();
  const { prototype } = Element;
  const { attachShadow } = prototype;
  prototype.attachShadow = function (init) {
    const root = attachShadow.call(this, init);
    if (root.mode === "closed") watchClosedRoot(root, ends);
    return root;
  };
  // The runtime's wrappers of these methods also apply to their legacy properties.
  for (const [name, wanted, method] of [["cancelBubble", true, "stopPropagation"], ["returnValue", false, "preventDefault"]] as const) {
    const { get, ...native } = Object.getOwnPropertyDescriptor(Event.prototype, name)!;
    Object.defineProperty(Event.prototype, name, {
      ...native,
      get(this: Event) {
        return wanted ? get!.call(this) : !this.defaultPrevented;
      },
      set(this: Event, value: unknown) {
        if (!!value === wanted) this[method]();
      },
    });
  }
  // In frames with an origin a page can access its own frames' prototypes, which stop its clicks as well.
  const stops = ["stopPropagation", "stopImmediatePropagation", "cancelBubble"].map((name) => [name, Object.getOwnPropertyDescriptor(Event.prototype, name)!] as const);
  document.addEventListener("load", ({ target }) => {
    const other = attempt(() => ((target as HTMLIFrameElement).contentWindow as typeof globalThis | null)?.Event.prototype);
    if (other) Object.defineProperties(other, Object.fromEntries(stops));
  }, true);
}
