/**
 * Images, videos and sounds with `blob:` URLs, such as previews of files, if the host's content policy refuses those:
 * as `data:` URLs, after a failure.
 */

import { dataUrlOf } from "../base64";
import { seen } from "./candidates";
import { reading } from "./entries";
import { wrap } from "../wrapped";

type Shown = HTMLImageElement | HTMLMediaElement;

const isShown = (target: unknown): target is Shown => target instanceof HTMLImageElement || target instanceof HTMLMediaElement;

/** Runs after the runtime, which has replaced the same properties. `blobOf` returns the blob of a URL. */
export function showRefused(blobOf: (url: string) => Blob | undefined): void {
  /** The `blob:` URL that was retried as a `data:` URL: a second failure is the file's. */
  const tried = new WeakMap<Shown, string>();

  async function admit(event: Event): Promise<void> {
    const { target } = event;
    const url = isShown(target) && target.getAttribute("src");
    const blob = url && blobOf(url);
    if (!blob || tried.get(target as Shown) === url) return;
    const element = target as Shown;
    event.stopImmediatePropagation();
    tried.set(element, url);
    const value = await dataUrlOf(blob);
    if (element.getAttribute("src") !== url) return;
    if (element instanceof HTMLImageElement) element.setAttribute("srcset", `${value}#webmcp-gateway:`);
    else element.setAttribute("src", `${value}#webmcp-gateway:${url}`);
  }

  /** An element outside of the document needs its own listener. */
  function hear(element: unknown): void {
    if (!isShown(element)) return;
    tried.delete(element);
    element.addEventListener("error", admit, true);
  }

  addEventListener("error", admit, true);
  wrap<Element>(Element.prototype, "setAttribute", (native, element, [name, value]) => {
    if (name === "src" && String(value).startsWith("blob:")) hear(element);
    native();
  });
  for (const prototype of [HTMLImageElement.prototype, HTMLMediaElement.prototype]) {
    const { set, ...native } = Object.getOwnPropertyDescriptor(prototype, "src")!;
    Object.defineProperty(prototype, "src", {
      ...native,
      set(this: Shown, url: unknown) {
        if (String(url).startsWith("blob:")) hear(this);
        set!.call(this, url);
      },
    });
  }
  reading(HTMLMediaElement.prototype, "src", (_, url) => seen(url));
  const { decode } = HTMLImageElement.prototype;
  HTMLImageElement.prototype.decode = async function () {
    const url = this.getAttribute("src");
    // A refused image is broken until its replacement is loaded.
    if (!this.naturalWidth && url && blobOf(url) && !(this.complete && tried.has(this))) {
      await new Promise((go) => ["load", "error"].forEach((type) => this.addEventListener(type, go, { once: true })));
    }
    return decode.call(this);
  };
}
