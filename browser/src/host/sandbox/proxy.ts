/**
 * The sandbox proxy: a page on a separate origin between a host page and an app.
 *
 * It takes one page from its host, shows it in a frame without origin, and forwards messages both ways. The gateway
 * serves it with the app's content security policy, which the inner frame inherits, and with `frame-ancestors`. Another
 * server serves it as it is: the policy is then in the message with the page. If the
 * gateway signed a dedicated origin for the frame, the host names the address of the document there, and again after
 * each reload: an address works once.
 */
import { Gestures } from "./gesture";
import { Presence } from "./presence";
import { Documents } from "./documents";
import { bytesOf, frameOrigin, hostOrigin, isAnswer, isProxyMessage, methodOf, notice, resourceOf, type AppResource } from "./rules";

const UPDATE_INTERVAL = 200;
/** Requests that a person may have caused: the gesture is reported to the host first. */
const ATTESTED: ReadonlySet<unknown> = new Set(["tools/call", "ui/open-link"]);
/** The first message of a document on its own origin. */
const DOCUMENT = methodOf(notice("document", {}));
/** The proxy's own request to a page; its answer is not forwarded. */
const PING = { jsonrpc: "2.0", id: "sandbox-ping", method: "ping" };

/** Connect to the host at `host`, for as long as this page lives. */
function start(host: string): void {
  const gestures = new Gestures(performance.now());
  let inner: HTMLIFrameElement | null = null;
  const toHost = (message: unknown, ports: readonly MessagePort[] = []): void => window.parent.postMessage(message, host, [...ports]);
  const dedicated = frameOrigin(location.search, location.origin);
  // An opaque frame has no usable origin; the window is the very one that was created here, and the content security
  // policy keeps it from navigating.
  const toPage = (message: unknown, ports: readonly MessagePort[] = []): void =>
    inner?.contentWindow?.postMessage(message, dedicated ?? "*", [...bytesOf(message), ...ports]);
  let framed = dedicated === null && new URLSearchParams(location.search).get("csp")?.includes("frame-src");
  const presence = new Presence(
    () => toPage(PING),
    () => toHost(notice("page-left", {})),
    // A page that reloads is subject to `preventNavigation`, too: the host shows it again, with its frames.
    () => framed && location.reload(),
  );
  const documents =
    dedicated === null
      ? null
      : new Documents({
          onDocument: () => presence.documentLoaded(),
          onOther: () => toHost(notice("document-wanted", {})),
          onFailure: () => toHost(notice("page-left", { unreachable: dedicated })),
        });

  function fromHost(data: unknown, ports: readonly MessagePort[]): void {
    const resource = inner === null || documents?.wanted ? resourceOf(data, dedicated) : null;
    if (resource) {
      documents?.expect();
      if (inner && "src" in resource.content) inner.src = resource.content.src;
      if (!inner && resource.policy !== null) {
        restrict(resource.policy);
        framed ||= !resource.policy.includes("frame-src 'none'");
      }
      inner ??= show(resource, () => {
        if (framed) preventNavigation();
        if (documents && !presence.isBlocked) documents.loaded();
        else presence.documentLoaded();
      });
    } else if (!isProxyMessage(data)) toPage(data, ports);
  }

  function fromPage(data: unknown, ports: readonly MessagePort[]): void {
    if (methodOf(data) === DOCUMENT) documents?.announced();
    presence.messageReceived();
    if (isProxyMessage(data) || isAnswer(data, PING.id)) return;
    const { isActive } = navigator.userActivation;
    const age = ATTESTED.has(methodOf(data)) ? gestures.age(isActive, performance.now()) : null;
    if (age !== null) toHost(notice("gesture", { age }));
    toHost(data, ports);
  }

  setInterval(() => gestures.update(navigator.userActivation.isActive, performance.now()), UPDATE_INTERVAL);
  // This document receives only the violations of its own frame, though both share the policy.
  document.addEventListener("securitypolicyviolation", ({ effectiveDirective, disposition }) => {
    if (effectiveDirective === "frame-src" && disposition === "enforce") presence.block();
  });
  window.addEventListener("message", ({ source, origin, data, ports }) => {
    if (source === window.parent && origin === host) fromHost(data, ports);
    else if (inner && source === inner.contentWindow && origin === (dedicated ?? "null")) fromPage(data, ports);
  });
  toHost(notice("proxy-ready", {}));
}

function show({ content, sandbox, allow }: AppResource, loaded: () => void): HTMLIFrameElement {
  const frame = document.createElement("iframe");
  // Set from here, since the app's policy may forbid inline styles.
  frame.style.cssText = "position:fixed;inset:0;width:100%;height:100%;border:0";
  frame.setAttribute("sandbox", sandbox);
  frame.allow = allow;
  Object.assign(frame, content);
  frame.addEventListener("load", loaded);
  document.body.append(frame);
  return frame;
}

/** From now on the frame may navigate to none of the sites in the app's policy: those are for frames of the page itself. */
function preventNavigation(): void {
  restrict("frame-src 'none'");
}

/** Add a policy to this document; frames that it creates from now on inherit it. */
function restrict(policy: string): void {
  const rule = document.createElement("meta");
  rule.httpEquiv = "content-security-policy";
  rule.content = policy;
  document.head.append(rule);
}

/** A frame without an origin only starts a process (`frames.ts`). */
const isIdle = window.origin === "null";
const host = window.parent === window ? null : hostOrigin(location.search, location.ancestorOrigins?.[0]);
if (isIdle) document.title = "idle";
else if (host === null) document.body.textContent = "This page shows apps inside a page of the gateway.";
else start(host);
