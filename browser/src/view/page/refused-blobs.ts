/**
 * Images, videos and sounds with `blob:` URLs, such as previews of files, if the host's content policy refuses those:
 * as `data:` URLs, after a failure.
 */

import { readAsDataUrl } from "../base64";
import { originalValue } from "./candidates";
import { wrapGetter } from "./entries";
import { wrap } from "../wrap";

type MediaElement = HTMLImageElement | HTMLMediaElement;

const isMediaElement = (target: unknown): target is MediaElement => target instanceof HTMLImageElement || target instanceof HTMLMediaElement;

/** Runs after the runtime, which has replaced the same properties. `blobOf` returns the blob of a URL. */
export function showRefusedBlobs(blobOf: (url: string) => Blob | undefined): void {
  /** The `blob:` URL that was retried as a `data:` URL: a second failure is the file's. */
  const tried = new WeakMap<MediaElement, string>();

  async function retryAsDataUrl(event: Event): Promise<void> {
    const { target } = event;
    const url = isMediaElement(target) && target.getAttribute("src");
    const blob = url && blobOf(url);
    if (!blob || tried.get(target as MediaElement) === url) return;
    const element = target as MediaElement;
    event.stopImmediatePropagation();
    tried.set(element, url);
    const value = await readAsDataUrl(blob);
    if (element.getAttribute("src") !== url) return;
    if (element instanceof HTMLImageElement) element.setAttribute("srcset", `${value}#webmcp-gateway:`);
    else element.setAttribute("src", `${value}#webmcp-gateway:${url}`);
  }

  /** An element outside of the document needs its own listener. */
  function watchElement(element: unknown): void {
    if (!isMediaElement(element)) return;
    tried.delete(element);
    element.addEventListener("error", retryAsDataUrl, true);
  }

  addEventListener("error", retryAsDataUrl, true);
  wrap<Element>(Element.prototype, "setAttribute", (native, element, [name, value]) => {
    if (name === "src" && String(value).startsWith("blob:")) watchElement(element);
    native();
  });
  for (const prototype of [HTMLImageElement.prototype, HTMLMediaElement.prototype]) {
    const { set, ...native } = Object.getOwnPropertyDescriptor(prototype, "src")!;
    Object.defineProperty(prototype, "src", {
      ...native,
      set(this: MediaElement, url: unknown) {
        if (String(url).startsWith("blob:")) watchElement(this);
        set!.call(this, url);
      },
    });
  }
  wrapGetter(HTMLMediaElement.prototype, "src", (_, url) => originalValue(url));
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
