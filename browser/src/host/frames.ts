/**
 * Frames with a sandbox proxy: made when an app is shown, or before, and then moved into place with their state (DOM,
 * `moveBefore`).
 *
 * Browsers run a frame of another site in a process of its own, and a frame without an origin in yet another one. To
 * start them takes longer than all the rest, so it is begun as early as possible, and for both at once.
 */
import { methodOf } from "./sandbox/rules";

/** The sandbox proxy's address for an app, and the permissions of its frame. */
export interface FrameAddress {
  url: string;
  allow: string;
}

/** A frame in its place; `ready` if its proxy has said so already. */
export interface PlacedFrame {
  frame: HTMLIFrameElement;
  ready: boolean;
}

/** Milliseconds after which another frame is made in place of a used one, since the app goes first; by then its process runs. */
const LATER = 2000;
/** The proxy's first message. */
export const PROXY_READY = "ui/notifications/sandbox-proxy-ready";

interface Spare extends PlacedFrame {
  holder: HTMLElement;
  listening: AbortController;
}

const spares = new Map<string, Spare>();
/** The last frame of each origin that shows an app. */
const shown = new Map<string, WeakRef<HTMLIFrameElement>>();
/** The origins whose second process was started lately. */
const started = new Set<string>();

/** Put a frame of this address into `place`: one that was prepared, or a new one. */
export function placeFrame(address: FrameAddress, place: Element | ShadowRoot): PlacedFrame {
  const spare = spares.get(keyOf(address));
  spares.delete(keyOf(address));
  if (spare) {
    spare.listening.abort();
    setTimeout(() => prepareFrame(address), LATER);
    const isMoved = moveInto(spare.frame, place);
    spare.holder.remove();
    if (isMoved) return remember(spare);
  }
  const frame = createFrame(address);
  place.append(frame);
  startProcess(address);
  return remember({ frame, ready: false });
}

function remember(placed: PlacedFrame): PlacedFrame {
  shown.set(new URL(placed.frame.src).origin, new WeakRef(placed.frame));
  return placed;
}

/** Load a frame of this address out of sight, for the next app there; browsers without `moveBefore` load nothing. */
export function prepareFrame(address: FrameAddress): void {
  if (!("moveBefore" in Element.prototype) || spares.has(keyOf(address))) return;
  const frame = createFrame(address);
  const holder = createHolder(frame);
  const listening = new AbortController();
  const spare: Spare = { frame, ready: false, holder, listening };
  const listen = ({ source, origin, data }: MessageEvent<unknown>): void => {
    const isProxy = source === frame.contentWindow && origin === new URL(frame.src).origin;
    if (isProxy && methodOf(data) === PROXY_READY) spare.ready = true;
  };
  window.addEventListener("message", listen, { signal: listening.signal });
  spares.set(keyOf(address), spare);
  document.body.append(holder);
  startProcess(address);
}

/**
 * Start the process of the app, by a frame that has no origin either, at the address of its proxy, which does nothing
 * there.
 *
 * While an app of that origin is shown, its process is there.
 */
function startProcess({ url }: FrameAddress): void {
  const { origin } = new URL(url, document.baseURI);
  if (started.has(origin) || shown.get(origin)?.deref()?.isConnected) return;
  started.add(origin);
  const frame = document.createElement("iframe");
  frame.setAttribute("sandbox", "allow-scripts"); // without, browsers warn of each script
  frame.src = url;
  const holder = createHolder(frame);
  document.body.append(holder);
  setTimeout(() => {
    holder.remove();
    started.delete(origin);
  }, LATER);
}

/** A place out of sight. */
function createHolder(frame: HTMLIFrameElement): HTMLElement {
  const holder = document.createElement("div");
  holder.inert = true;
  holder.style.cssText = "position:fixed;visibility:hidden;pointer-events:none;width:1px;height:1px;overflow:hidden";
  holder.attachShadow({ mode: "closed" }).append(frame);
  return holder;
}

/** The address of a sandbox proxy. Throws TypeError for one that would run in this page: of its origin, or a script. */
export function proxyAddress(address: string): URL {
  const url = new URL(address, document.baseURI);
  if (url.protocol !== "https:" && url.protocol !== "http:") throw new TypeError("the sandbox must have an address of https or http");
  if (url.origin === location.origin) throw new TypeError("the sandbox must be of another origin than this page");
  return url;
}

function createFrame({ url, allow }: FrameAddress): HTMLIFrameElement {
  const frame = document.createElement("iframe");
  frame.style.cssText = "display:block;width:100%;border:0";
  // The proxy needs its own origin; it is never this page's, and its inner frame is opaque.
  frame.setAttribute("sandbox", "allow-scripts allow-same-origin allow-forms");
  frame.allow = allow;
  // Before it is inserted into the document: an empty frame there would have this page's origin, of which browsers
  // warn.
  frame.src = proxyAddress(url).href;
  return frame;
}

/** Move a frame with its state; false if the browser cannot do it, or not between these places. */
export function moveInto(frame: Element, place: Element | ShadowRoot): boolean {
  const { moveBefore } = place as unknown as { moveBefore?: (node: Node, child: Node | null) => void };
  try {
    moveBefore?.call(place, frame, null);
    return frame.parentNode === place;
  } catch {
    return false; // of another document, or not in one
  }
}

function keyOf({ url, allow }: FrameAddress): string {
  return JSON.stringify([new URL(url, document.baseURI).href, allow]);
}
