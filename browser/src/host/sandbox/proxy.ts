/**
 * The sandbox proxy: a page on an origin of its own between a host page and an app.
 *
 * It takes one page from its host, shows it in a frame without origin, and carries messages both ways. The gateway
 * serves it with the app's content security policy, which the inner frame inherits, and with `frame-ancestors`.
 */
import { Gestures } from "./gesture";
import { bytesOf, hostOrigin, isOwn, methodOf, notice, resourceOf, type Shown } from "./rules";

const LOOK_EVERY = 200;
/** What a person may have caused: the host is told of the gesture first. */
const ATTESTED: ReadonlySet<unknown> = new Set(["tools/call", "ui/open-link"]);

/** Speak with the host at `host`, for as long as this page lives. */
function start(host: string): void {
  const gestures = new Gestures(performance.now());
  let inner: HTMLIFrameElement | null = null;
  const toHost = (message: unknown): void => window.parent.postMessage(message, host);

  function fromHost(data: unknown): void {
    const resource = inner === null ? resourceOf(data) : null;
    if (resource) inner = show(resource);
    // An opaque frame has no origin that could be named; the window is the very one that was made here, and the
    // content security policy keeps it from going elsewhere.
    else if (!isOwn(data)) inner?.contentWindow?.postMessage(data, "*", bytesOf(data));
  }

  function fromPage(data: unknown): void {
    if (isOwn(data)) return;
    const { isActive } = navigator.userActivation;
    const age = ATTESTED.has(methodOf(data)) ? gestures.age(isActive, performance.now()) : null;
    if (age !== null) toHost(notice("gesture", { age }));
    toHost(data);
  }

  setInterval(() => gestures.look(navigator.userActivation.isActive, performance.now()), LOOK_EVERY);
  window.addEventListener("message", ({ source, origin, data }) => {
    if (source === window.parent && origin === host) fromHost(data);
    else if (inner && source === inner.contentWindow && origin === "null") fromPage(data);
  });
  toHost(notice("proxy-ready", {}));
}

function show({ html, sandbox, allow }: Shown): HTMLIFrameElement {
  const frame = document.createElement("iframe");
  // Set from here, since the app's policy may forbid inline styles.
  frame.style.cssText = "position:fixed;inset:0;width:100%;height:100%;border:0";
  frame.setAttribute("sandbox", sandbox);
  frame.allow = allow;
  frame.srcdoc = html;
  document.body.append(frame);
  return frame;
}

const host = window.parent === window ? null : hostOrigin(location.search, location.ancestorOrigins?.[0]);
if (host === null) document.body.textContent = "This page shows apps inside a page of the gateway.";
else start(host);
