/** The shell: shows each page of the backend in a frame of its own, loaded through the gateway. */

import { readAsDataUrl } from "../base64";
import { describePage } from "../tools/next-page";
import { objectOf, type Message, type Params } from "../host/json-rpc";
import type { PageSide } from "../host/tiers";
import { sendHttp, type Respond } from "./frame-requests";
import { createHistory, type Entry } from "./history";
import { createHostLink } from "./host-link";
import { createInnerFrames } from "./inner-frames";
import { loadPage, type Loaded, type Outcome } from "./load";
import { createPageFrame, isOwn, refused, type PageFrame } from "./page-frame";
import { createShellTools, type LedTo } from "./page-tools";
import { createPanel, type Choice } from "./panel";
import { asciiJson, COOKIES, MOVED, NAVIGATE, SET_COOKIE, TRAVERSE, type Navigation } from "./protocol";
import { writePage, type ShellConfig } from "./write-page";

/** Tools that serve the page itself; all others of their kind are the shell's own. */
const OF_PAGE = /^(http_stream|webmcp_send|webmcp_storage)$/;
/** Pages that lead on by themselves, each so soon after the last, before a person is asked. */
const MAX_LED = 12;
const SOON = 5000;
/** Cookies that a page set, until its next request. */
const MAX_COOKIES = 100;

export function startShell(config: ShellConfig, page: PageSide): void {
  const panel = createPanel();
  const host = createHostLink(receiveFromHost);
  const history = createHistory((entry) => void revisit(entry));
  const tools = createShellTools((document as unknown as { modelContext: { registerTool(tool: object, options: { signal: AbortSignal }): unknown } }).modelContext);
  const inner = createInnerFrames({
    config,
    cookies: () => cookies,
    header: (at, user) => pageHeader("navigate", "iframe", user, false, at),
    post: (message, transfer) => frame?.post(message, transfer),
    request: (at, method, params, respond) => receiveRequest(method, params, respond, at),
    hostResult: resultForPages,
    notification: receiveNotification,
    takeCookies,
    leadPage: async (navigation, at) => {
      const outcome = await navigate(navigation, "push", at);
      return "why" in outcome ? { why: outcome.why } : {};
    },
  });
  let hostResult: Params = {};
  let frame: PageFrame | undefined;
  let url = new URL(config.start, config.origin);
  let cookies = "";
  let written: string[] = [];
  let stored = "";
  let loading: AbortController | undefined;
  let led = 0;
  let shownAt = -Infinity;
  let actedAt = -Infinity;

  function resultForPages(): Params {
    return { ...hostResult, hostContext: { ...objectOf(hostResult["hostContext"]), "webmcp-gateway": { bridge: true, approvals: true } } };
  }

  const isUsed = (): boolean => navigator.userActivation?.isActive ?? false;

  function receiveFromHost(message: Message): void {
    if (message.method === "ui/resource-teardown") forget();
    // The page sees what the host tells its view; requests are answered by the runtime.
    if (message.id === undefined) frame?.post(message);
    else if (message.method === "ping" || message.method === "ui/resource-teardown") window.parent.postMessage({ jsonrpc: "2.0", id: message.id, result: {} }, "*");
  }

  function forget(): void {
    loading?.abort();
    frame?.remove();
    inner.clear();
    frame = undefined;
    history.clear();
    stored = cookies = "";
    written = [];
  }

  const pageHeader = (mode: string, destination: string, user: boolean, first = false, at = url): string =>
    asciiJson({ path: first ? "" : at.pathname + at.search, mode, dest: destination, user, cookies: written.splice(0) });

  function takeCookies(text: string | null | undefined): void {
    if (typeof text !== "string" || text === cookies) return;
    cookies = text;
    frame?.notify(COOKIES, { text });
    inner.notify(COOKIES, { text });
  }

  /** Opens a URL outside, if the person asked for it; else shows where the page leads. */
  async function leaveTo(target: URL, user: boolean): Promise<Outcome> {
    if (!/^(https?|mailto|tel):$/.test(target.protocol)) return { why: `${target.protocol} is not opened` };
    const open = async (): Promise<boolean> => !(await host.ask("ui/open-link", { url: target.href }).catch(() => ({ isError: true })))["isError"];
    if (user && (await open())) return { stays: true };
    showProblem("This page leads to another site", target.href, [{ label: "Open it", run: () => void open() }]);
    return { why: `the page leads to another site, ${target.origin}, which is not opened` };
  }

  function showProblem(title: string, detail: string, more: Choice[] = []): void {
    const back: Choice[] = frame ? [{ label: "Back to the page", run: () => panel.hide() }] : [];
    const again: Choice[] = [{ label: frame ? "Start again" : "Try again", run: () => void navigate({ url: config.start, user: true }, "push") }];
    panel.show(title, detail, [...more, ...back, ...again]);
  }

  async function download({ name, blob }: { name: string; blob: Blob }): Promise<void> {
    const resource = { uri: `file:///${encodeURIComponent(name)}`, mimeType: blob.type || "application/octet-stream", blob: (await readAsDataUrl(blob)).replace(/^.*?,/s, "") };
    const result = await host.ask("ui/download-file", { contents: [{ type: "resource", resource }] }).catch((error: unknown) => ({ isError: true, why: String(error) }));
    if (result["isError"]) showProblem("File not saved", `${name}: the host does not save files.`);
  }

  async function swap(loaded: Loaded, entry: Entry | undefined, replaces: boolean, former: URL | undefined): Promise<void> {
    const told = await frame?.leave();
    if (told !== undefined) stored = told;
    frame?.remove();
    inner.clear();
    url = loaded.url;
    if (entry && (replaces || !entry.url)) history.replace({ ...entry, url: url.href });
    else if (entry) history.push({ ...entry, url: url.href });
    panel.hide();
    const { html, described } = await writePage(config, loaded, { referrer: former?.origin === url.origin ? former.href.replace(/#.*/s, "") : "", cookies });
    const next = createPageFrame(html, stored, config.allow, {
      hostResult: resultForPages,
      request: (...given) => receiveRequest(...given),
      notification: receiveNotification,
      envelope: tools.receive,
    });
    frame = next;
    tools.pageShown(next.post);
    document.body.append(next.element);
    next.element.focus();
    shownAt = performance.now();
    const result: LedTo = { status: "The page led to another one.", url: url.href, ...describePage(described) };
    if (loaded.status < 400) tools.pageLeft(result);
    else tools.pageLeft(new Error(`The page led to another one, which answered with ${loaded.status}. ${result.text ?? JSON.stringify(result.data)}`.trim()));
  }

  /** Whether pages lead on and on, and a person is asked now. */
  function isLoop(navigation: Navigation): boolean {
    const now = performance.now();
    // A gesture counts for some seconds, in which a loop would go round and round.
    const acts = (navigation.user || isUsed()) && now - actedAt > SOON;
    if (acts) actedAt = now;
    led = acts || tools.running() || now - shownAt > SOON ? 0 : led + 1;
    if (led < MAX_LED) return false;
    led = 0;
    showProblem("This page leads on and on", `The last address was ${navigation.url}`, [{ label: "Go on", run: () => void navigate({ ...navigation, user: true }, "replace") }]);
    return true;
  }

  async function navigate(navigation: Navigation, how: "push" | "replace" | "traverse", from = url): Promise<Outcome> {
    const first = !frame;
    const target = new URL(navigation.url, url);
    if (target.origin !== config.origin) return leaveTo(target, !!navigation.user && isUsed());
    if (isLoop(navigation)) return { why: "the pages lead on and on" };
    loading?.abort();
    const mine = (loading = new AbortController());
    panel.busy(true);
    const posts = !!navigation.entries;
    const outcome = await loadPage({ ...navigation, url: target.href }, pageHeader("navigate", "document", !!navigation.user, first && how === "push", from), mine.signal);
    if (mine.signal.aborted) return { why: "another page was asked for" };
    panel.busy(false);
    if ("cookies" in outcome) takeCookies(outcome.cookies);
    if ("page" in outcome) {
      const replaces = how === "replace" || !!navigation.reload || outcome.page.url.href === url.href && !posts;
      const answersForm = posts && outcome.page.url.href === target.href;
      const former = first ? undefined : from;
      await swap(outcome.page, how === "traverse" ? undefined : { url: url.href, posted: answersForm }, replaces && !first, former);
    } else if ("file" in outcome) await download(outcome.file);
    else if ("why" in outcome) {
      showProblem(outcome.title ?? "The page did not load", outcome.why, outcome.connect ? [{ label: "Connect the account", run: () => void host.ask("ui/open-link", { url: outcome.connect }).catch(() => undefined) }] : []);
      tools.pageLeft(new Error(outcome.why));
    }
    return outcome;
  }

  async function revisit(entry: Entry): Promise<void> {
    if (!entry.posted) return void navigate({ url: entry.url, user: true }, "traverse");
    showProblem("This page was the answer to a form", "It is not sent again.", [{ label: "Open the address", run: () => void navigate({ url: entry.url, user: true }, "traverse") }]);
  }

  const acceptsBlobs = (): boolean => objectOf(objectOf(hostResult["hostContext"])["webmcp-gateway"])["bridge"] === true;

  function receiveRequest(method: string, params: Params, respond: Respond, at = url): (() => void) | undefined {
    if (method === NAVIGATE) {
      const navigation = params as unknown as Navigation;
      void navigate(navigation, navigation.replace || navigation.reload ? "replace" : "push").then((outcome) => respond({ result: "why" in outcome ? { why: outcome.why } : {} }), (error: unknown) => respond({ result: { why: String(error) } }));
      return undefined;
    }
    if (isOwn(method)) return void respond({ error: refused(method) });
    const name = params["name"];
    if (method === "tools/call" && name === "http_request") return sendHttp(host, params, pageHeader("cors", "empty", false, false, at), acceptsBlobs(), respond, takeCookies);
    if (method === "tools/call" && OF_PAGE.test(String(name))) {
      void page.safeCallTool(String(name), objectOf(params["arguments"])).then((result) => respond({ result }));
      return undefined;
    }
    // What belongs to the view itself is the shell's.
    if (method === "tools/call" && /^(webmcp_|http_)/.test(String(name))) return void respond({ error: refused(`tools/call ${String(name)}`) });
    const shown = method === "ui/open-link" && typeof params["url"] === "string" ? { ...params, url: config.site && (params["url"] === config.origin || params["url"].startsWith(`${config.origin}/`)) ? config.site + params["url"].slice(config.origin.length) : params["url"] } : params;
    return host.send(method, shown, ({ result, error }) => respond(result ? { result } : { error: error ?? { code: 0, message: "no result" } }));
  }

  function receiveNotification(method: string, params: Params): void {
    if (inner.take(method, params)) return;
    if (method === SET_COOKIE) {
      if (typeof params["text"] === "string" && written.length < MAX_COOKIES) written.push(params["text"]);
    } else if (method === TRAVERSE) {
      if (Number.isSafeInteger(params["steps"])) history.go(params["steps"] as number);
    } else if (method === MOVED) {
      const moved = URL.parse(String(params["url"]));
      if (moved?.origin !== config.origin) return;
      url = moved;
      history.moved(moved.href);
    } else if (!isOwn(method)) host.notify(method, params);
  }

  // A navigation that the page's runtime did not see: the browser has blocked it, and the page has gone.
  document.addEventListener("securitypolicyviolation", ({ effectiveDirective, blockedURI, disposition }) => {
    if (effectiveDirective !== "frame-src" || disposition !== "enforce") return;
    const target = URL.parse(blockedURI);
    const embedder = URL.parse(document.baseURI);
    const again: Choice = { label: "Load the page again", run: () => void navigate({ url: url.href, user: true }, "replace") };
    frame?.remove();
    frame = undefined;
    tools.pageLeft(new Error("The page went to an address that no view can open."));
    // Of a relative URL, the browser tells only the origin of the host's page.
    if (!target || target.origin === embedder?.origin || target.origin === config.origin) showProblem("The page went on by itself", "Its script hid the address from the view.", [again]);
    else showProblem("This page leads to another site", target.href, [{ label: "Open it", run: () => void host.ask("ui/open-link", { url: target.href }).catch(() => undefined) }, again]);
  });

  async function begin(): Promise<void> {
    panel.busy(true);
    hostResult = await host.ask("ui/initialize", { appInfo: { name: config.about.app, title: config.about.title, version: "1" }, appCapabilities: {}, protocolVersion: "2026-01-26" });
    host.notify("ui/notifications/initialized");
    if (!objectOf(hostResult["hostCapabilities"])["serverTools"]) {
      panel.busy(false);
      return panel.show("This host cannot show the app", "Its pages come from a server, and the host carries no calls to it.", []);
    }
    await navigate({ url: config.start }, "push");
  }
  void begin();
}
