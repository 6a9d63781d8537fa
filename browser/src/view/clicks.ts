/** Clicks that scripts make, and which the runtime would not come to the end of: browsers would go where the link leads. */

/** What is done instead waits for nothing more then. */
const stop = (event: Event): void => event.stopPropagation();

export function awaitClicks(): void {
  // Links have one of their own.
  for (const { prototype } of [EventTarget, HTMLAnchorElement]) {
    const { dispatchEvent } = prototype;
    prototype.dispatchEvent = function (event) {
      if (event instanceof Event && event.type === "click") {
        if (!event.cancelable) event.initEvent("click", event.bubbles, true);
        // The last place that it comes to is this.
        if (!event.bubbles) this.addEventListener("click", stop, { once: true });
      }
      return dispatchEvent.call(this, event);
    };
  }
}
