/**
 * Frames of a packed page that show pages of its backend, or of the app's folder: the page loads each of them through
 * the gateway, as the shell does for apps whose pages a backend renders.
 *
 * A separate script after the runtime; what a frame needs first, it fetches with the first frame.
 */

import { withoutFragment } from "../page/entries";
import { watchFrames, type OwnFrames } from "../page/own-frames";
import { attempt } from "../attempt";
import { formQuery } from "../form-query";
import { withIdentityOf } from "../wrap";
import { createHostLink } from "../shell/host-link";
import { createInnerFrames, type InnerFrames } from "../shell/inner-frames";
import { sendHttp } from "../shell/frame-requests";
import { asciiJson, COOKIES, SET_COOKIE } from "../shell/protocol";
import { isOwn, refused } from "../shell/page-frame";
import type { InnerConfig } from "../shell/write-page";
import { objectOf, type Params } from "../host/json-rpc";
import type { PageSide } from "../host/tiers";

/** The path at which the gateway has the view runtime of a page in a frame. */
const CONFIG = "/.well-known/webmcp-gateway/frame.json";
/** Tools that serve the page itself. */
const OF_PAGE = /^(http_stream|webmcp_send|webmcp_storage)$/;

interface Scope {
  webmcpGateway: PageSide;
  /** Called by links before they navigate: true if the page shows their target itself. */
  webmcpGatewayGo?: (url: string) => boolean;
}

const baseTarget = (): string => document.querySelector("base[target]")?.getAttribute("target") ?? "";

function start(scope: Scope): void {
  const resolve = (url: string): URL => new URL(new Request(url).url);
  const here = (): string => resolve("").href;
  const { origin } = resolve("/");
  // The page may replace its `fetch`, and change its base.
  const { fetch } = window;
  const host = createHostLink(() => undefined);
  let inner: Promise<InnerFrames> | undefined;

  const header = (at: URL, mode: string, dest: string, user: boolean): string => asciiJson({ path: at.pathname + at.search, mode, dest, user });
  const cookies = (): string => attempt(() => document.cookie) ?? "";

  function request(at: URL, method: string, params: Params, respond: Parameters<typeof sendHttp>[4]): (() => void) | undefined {
    const name = String(params["name"]);
    if (isOwn(method)) return void respond({ error: refused(method) });
    if (method === "tools/call" && name === "http_request") return sendHttp(host, params, header(at, "cors", "empty", false), false, respond);
    if (method === "tools/call" && OF_PAGE.test(name)) {
      void scope.webmcpGateway.safeCallTool(name, objectOf(params["arguments"])).then((result) => respond({ result }));
      return undefined;
    }
    if (method === "tools/call" && /^(webmcp_|http_)/.test(name)) return void respond({ error: refused(`tools/call ${name}`) });
    return host.send(method, params, ({ result, error }) => respond(result ? { result } : { error: error ?? { code: 0, message: "no result" } }));
  }

  async function begin(): Promise<InnerFrames> {
    const response = await fetch(origin + CONFIG);
    if (!response.ok) throw new Error(`the gateway has nothing for frames (${response.status})`);
    const config = { ...((await response.json()) as Omit<InnerConfig, "origin">), origin };
    return createInnerFrames({
      config,
      cookies,
      header: (at, user) => header(at, "navigate", "iframe", user),
      post: (message) => {
        const { method, params } = message as { method: string; params: Params };
        frames.take(method, params);
      },
      request,
      // The page sends their requests with its own proof.
      hostResult: () => ({
        protocolVersion: "2026-01-26",
        hostInfo: { name: "webmcp-gateway", version: "1" },
        hostCapabilities: { serverTools: {}, openLinks: {}, downloadFile: {} },
        hostContext: { "webmcp-gateway": { bridge: true, approvals: true } },
      }),
      notification(method, params) {
        if (method !== SET_COOKIE) return void made?.take(method, params);
        attempt(() => (document.cookie = String(params["text"])));
        made?.notify(COOKIES, { text: cookies() });
      },
      takeCookies: () => undefined,
      leadPage: async ({ url, method = "GET" }) => {
        if (method !== "GET") return { why: "a form in a frame leads the whole page elsewhere, which no packed page does" };
        const link = document.createElement("a");
        link.href = url;
        link.click();
        return {};
      },
    });
  }
  let made: InnerFrames | undefined;

  const frames: OwnFrames = watchFrames({
    notify(method, params) {
      inner ??= begin().then((one) => (made = one));
      inner.then((one) => one.take(method, params as Params), (error: unknown) => console.warn(`webmcp-gateway: a frame is not shown: ${error}`));
    },
    resolve,
    here,
    origin,
    above: () => [withoutFragment(here())],
  });

  let clickedTarget = "";
  // Before any listener of the page can stop the click.
  addEventListener("click", ({ target }) => {
    const clicked = target instanceof Element ? target.closest("a,area") : null;
    clickedTarget = clicked?.getAttribute("target") ?? baseTarget();
  }, true);
  const { webmcpGatewayGo: go } = scope;
  scope.webmcpGatewayGo = (url) => frames.lead(clickedTarget, { url }) || !!go?.(url);

  function submit(form: HTMLFormElement, submitter: HTMLElement | null): boolean {
    const attributeOf = (name: string): string => submitter?.getAttribute(`form${name}`) ?? form.getAttribute(name) ?? "";
    const target = submitter?.getAttribute("formtarget") ?? form.getAttribute("target") ?? baseTarget();
    if (!target) return false;
    const url = attempt(() => resolve(attributeOf("action")));
    if (!url) return false;
    const entries = [...new FormData(form, submitter)] as [string, string | File][];
    if (attributeOf("method").toLowerCase() === "post") return frames.lead(target, { url: url.href, method: "POST", entries, enctype: attributeOf("enctype").toLowerCase() });
    url.search = formQuery(entries);
    return frames.lead(target, { url: url.href });
  }
  addEventListener("submit", (event) => {
    if (!event.defaultPrevented && submit(event.target as HTMLFormElement, event.submitter)) event.preventDefault();
  });
  const { prototype } = HTMLFormElement;
  const { submit: native } = prototype;
  prototype.submit = withIdentityOf(native, function (this: HTMLFormElement) {
    if (!submit(this, null)) native.call(this);
  });

  // A frame that a script leads elsewhere by its `location` is empty then.
  document.addEventListener("securitypolicyviolation", ({ effectiveDirective, blockedURI, disposition }) => {
    if (effectiveDirective === "frame-src" && disposition === "enforce") console.warn(`webmcp-gateway: a frame went to ${blockedURI}, which a view does not load: set the \`src\` of the <iframe> to a page of the app, or name the other site under \`frames\` in the policy`);
  });
}

// Pages in a frame are told by their page of what they show.
const written = document.querySelector('meta[name="webmcp-gateway"]')?.getAttribute("content");
if (window.parent !== window && written && !("page" in (JSON.parse(written) as object))) start(window as unknown as Scope);
