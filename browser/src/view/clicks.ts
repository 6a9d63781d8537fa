/** Clicks that the runtime would not come to the end of, or of which it sees nothing: browsers would go where that leads. */

import { attempt } from "./attempt";
import { watchStops } from "./default";
import { wrap } from "./wrapped";

/** What is done instead waits for nothing more then. */
const stop = (event: Event): void => event.stopPropagation();

/** Calls `run` where nobody prevented what the browser would do at the end of `event`, of which `place` is told last. */
function atEnd(event: Event, place: EventTarget, ends: ReturnType<typeof watchStops>, run: () => void): void {
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

/** Links outside of the document are the runtime's to follow, wherever this one stands. */
const follow = (link: HTMLElement): void => (link.cloneNode() as HTMLElement).click();

/** What stands in a closed root, nobody outside is told of. */
function watchClosed(root: ShadowRoot, ends: ReturnType<typeof watchStops>): void {
  root.addEventListener("click", (event) => {
    const path = event.composedPath();
    const inside = path.slice(0, path.indexOf(root)).filter((one) => one instanceof Element);
    const place = event.composed ? window : root;
    const link = inside.find((one): one is HTMLElement => one.matches("a[href], area[href]"));
    const button = inside.find((one): one is HTMLButtonElement => one.matches("button, [type=submit], [type=image]") && /^(submit|image)$/.test((one as HTMLButtonElement).type));
    if (link) atEnd(event, place, ends, () => follow(link));
    else if (button?.form && event instanceof MouseEvent) atEnd(event, place, ends, () => button.form!.requestSubmit(button));
  }, true);
  // One that the browser sends all the same.
  root.addEventListener("submit", (event) => {
    if (!event.isTrusted) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    (event.target as HTMLFormElement).requestSubmit((event as SubmitEvent).submitter);
  }, true);
}

type Handler = NonNullable<HTMLElement["onclick"]>;

/** Of a click that goes no further the runtime has prevented the default: that a handler gives false then, nobody but this sees. */
function hearHandlers(): void {
  const hearing = new WeakSet<Handler>();
  addEventListener("click", (event) => {
    for (const one of event.composedPath() as HTMLElement[]) {
      const { onclick } = one;
      if (!onclick || hearing.has(onclick)) continue;
      const hears: Handler = (seen) => {
        const given: unknown = onclick.call(one, seen);
        if (given === false) seen.preventDefault();
        return given;
      };
      hearing.add(hears);
      one.onclick = hears;
      setTimeout(() => one.onclick === hears && (one.onclick = onclick));
    }
  }, true);
}

export function awaitClicks(): void {
  hearHandlers();
  wrap<EventTarget>(EventTarget.prototype, "dispatchEvent", (native, place, [event]) => {
    if (!(event instanceof Event && event.type === "click")) return native();
    if (!event.cancelable) event.initEvent("click", event.bubbles, true);
    // The last place that it comes to is this.
    if (!event.bubbles) place.addEventListener("click", stop, { once: true });
    native();
    // What the browser says is that the runtime prevented it.
    return !event.defaultPrevented;
  });
  const ends = watchStops();
  const { prototype } = Element;
  const { attachShadow } = prototype;
  prototype.attachShadow = function (init) {
    const root = attachShadow.call(this, init);
    if (root.mode === "closed") watchClosed(root, ends);
    return root;
  };
  // What the runtime has in the place of these methods, it has of their older forms, too.
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
  // In frames with an origin a page has those of its own frames, too, which stop its clicks as well.
  const stops = ["stopPropagation", "stopImmediatePropagation", "cancelBubble"].map((name) => [name, Object.getOwnPropertyDescriptor(Event.prototype, name)!] as const);
  document.addEventListener("load", ({ target }) => {
    const other = attempt(() => ((target as HTMLIFrameElement).contentWindow as typeof globalThis | null)?.Event.prototype);
    if (other) Object.defineProperties(other, Object.fromEntries(stops));
  }, true);
}
