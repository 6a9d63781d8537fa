/** The view runtime: the single owner of the page's connection to its host. */

import { createClickFinder } from "./page/activation";
import { createActivity } from "./tools/activity";
import { createAddresses } from "./page/addresses";
import { createAppTools } from "./tools/app-tools";
import { toBase64Url } from "./base64";
import { createCalls, NO_CALLS, NoHostError } from "./http/calls";
import { readConfig, type Config } from "./host/config";
import { createDefaults } from "./page/default-actions";
import { createEnvelope } from "./tools/envelope";
import { watchElements } from "./page/elements";
import { createFetch } from "./http/fetch";
import { watchForms } from "./page/forms";
import { createGestures } from "./page/gesture";
import { createHandshake, type Host } from "./host/handshake";
import type { Params } from "./host/json-rpc";
import { watchLinks } from "./page/links";
import { takeNatives, type Natives } from "./natives";
import { createNotice } from "./page/notice";
import { createPageTools } from "./tools/page-tools";
import { createFiles } from "./page/page-files";
import { createProof } from "./host/proof";
import { createRegistry, type Registry } from "./tools/registry";
import { withResolvedRequests, withResolvedUrls } from "./http/request";
import { createRelay } from "./host/relay";
import { createReports } from "./host/reports";
import { createRequests } from "./host/requests";
import { watchSize } from "./page/size";
import { createTiers, readSnapshot, standalone } from "./host/tiers";
import { takeToolPart, type TakeTools } from "./tools/tool-part";
import { createUi } from "./host/ui";
import { wrap } from "./wrap";
import { openWire, type Receivers, type Wire } from "./host/wire";

/** Milliseconds after parsing in which a page may initialize by itself. */
const PAGE_HEAD_START = 50;
/** Milliseconds after `initialized` in which a host may show that it calls the page's tools itself. */
const HOST_HEAD_START = 3000;
/** Milliseconds for which a message is shown to the person. */
const MESSAGE_DURATION = 4000;
/** A host that writes into the document may never close it. */
const PARSE_TIMEOUT = 2000;

function whenParsed(): Promise<unknown> {
  return new Promise((go) => {
    if (document.readyState !== "loading") go(true);
    // In the capture phase: the event does not reach a page whose scripts are held back.
    addEventListener("DOMContentLoaded", go, true);
    setTimeout(go, PARSE_TIMEOUT);
  });
}

function connect(wire: Wire, natives: Natives, config: Config, registry: Registry, mirroring: ReturnType<TakeTools>): Receivers {
  const { later, warn } = natives;
  const activity = createActivity(natives.now);
  const calling = createActivity(natives.now);
  const gestures = createGestures({
    ...natives,
    watch: (seen) =>
      natives.watch((at) => {
        seen(at);
        // Requests follow: no poll may delay them.
        relay.giveWay();
      }),
  });
  const prefix = `wg-${toBase64Url(natives.randomBytes())}-`;
  const requests = createRequests({ ...natives, prefix, post: wire.toHost });
  const pageTools = createPageTools(registry, createRequests({ ...natives, prefix, post: wire.toPage }));
  const handshake = createHandshake({ ...config, ...wire, later, send: requests.send });
  let host: Host | undefined;

  const proof = createProof({
    ...natives,
    crypto: natives,
    attach: async (launch, former, read) => {
      if (!handshake.can("serverTools")) throw new NoHostError(NO_CALLS);
      return requests.send(
        "tools/call",
        { name: "webmcp_attach", arguments: { ...(launch && { launch, ...(former && { former }) }), capabilities: { pending: true } } },
        { read },
      );
    },
    tools: () => readSnapshot()["tools"],
    onSettled: () => {
      relay.restart();
      notifyToolsChanged();
    },
  });
  const appTools = createAppTools(registry, {
    send: wire.toHost,
    isOffered: proof.isOffered,
    whenSettled: () => Promise.all([proof.whenSettled(), handshake.pageHasTools() && pageTools.update()]),
    beginCall: activity.begin,
    onFirstRequest: () => relay.notifyChange(),
  });
  const envelope = createEnvelope(registry, {
    app: config.app,
    send: wire.toHost,
    // Only our own host forwards to the gateway, which enforces the tool rules and sees the calls.
    isOffered: (tool) => host?.ours || proof.isOffered(tool),
    whenSettled: proof.whenSettled,
    beginCall: () => (host?.ours ? calling : activity).begin(),
    onFirstRequest: () => relay.notifyChange(),
  });
  const mirror = mirroring?.(proof.isOffered, activity.begin);
  function notifyToolsChanged(): void {
    appTools.notifyChange();
    mirror?.();
    relay.notifyChange();
  }
  registry.onChange(notifyToolsChanged);

  /** False if the host cannot do it, or fails. */
  const callHost = async (capability: string, method: string, params: Params): Promise<boolean> =>
    handshake.can(capability) && requests.send(method, params).then((result) => !result["isError"], () => false);
  const open = (url: string): Promise<boolean> => callHost("openLinks", "ui/open-link", { url });
  const notice = createNotice(open);
  let hideNews: (() => void) | undefined;
  const tell = (title: string, message: string): void => {
    hideNews?.();
    hideNews = notice({ title, message, url: "" });
    later(hideNews, MESSAGE_DURATION);
  };
  const calls = createCalls({
    ...wire, calling, handshake, proof, activity, gestures, requests, later,
    notice: (approval) => (host?.showsApprovals ? () => {} : notice(approval)),
    hurry: () => relay.hurry(),
    onSend: () => relay.giveWay(),
  });
  const reports = createReports({
    app: config.app,
    update: (params) => requests.send("ui/update-model-context", params),
    canCallServer: () => handshake.can("serverTools"),
    time: () => new Date().toISOString(),
  });
  const tiers = createTiers({
    registry,
    handshake,
    reports,
    callTool: calls.callTool,
    onReported: () => tell("Reported to the assistant", `The assistant was ${handshake.can("serverTools") ? "told of" : "asked to do"} this.`),
  });
  Object.assign(window, { webmcpGateway: tiers.page, webmcpGatewayFetch: window.fetch });
  const relay = createRelay(registry, {
    ...natives,
    callTool: calls.callOwnTool,
    // Tools that the host calls itself are not offered here, too; tools that the gateway must guard are offered nowhere
    // else.
    isOffered: (tool) => !((appTools.isInUse() || envelope.isInUse()) && proof.isOffered(tool)),
    inFlight: calls.inFlight,
    isHidden: () => document.hidden,
  });

  handshake.onOpen((found) => {
    host = found;
    proof.start(found.ours, handshake.can("serverTools"));
    if (!found.ours && handshake.can("serverTools")) later(() => void proof.whenSettled().then(relay.start), HOST_HEAD_START);
    if (!handshake.pageClients()) watchSize((size) => requests.notify("ui/notifications/size-changed", size));
  });
  // A host without MCP Apps may still use the tools.
  void handshake.host().then((found) => {
    if (!found) proof.start(false, false);
    envelope.announce();
  });
  void whenParsed().then(() => later(handshake.begin, PAGE_HEAD_START));
  // A closing client of the page gives no notice: it only removes its listener, which it added before it spoke. Others
  // may do so at each message, such as a readiness check.
  const listening = new WeakMap<object, number>();
  const watchListeners = (method: "addEventListener" | "removeEventListener", see: (listener: object) => void): void => {
    wrap(Object.hasOwn(window, method) ? window : EventTarget.prototype, method, (native, _, given) => {
      native();
      if (given[0] === "message") see(Object(given[1]));
    });
  };
  watchListeners("addEventListener", (listener) => listening.set(listener, handshake.pageClients()));
  watchListeners("removeEventListener", (listener) => {
    if (listening.get(listener)! < handshake.pageClients() && handshake.pageHasTools()) void pageTools.update();
  });
  // Later messages of a page that is unloaded do not reach the host.
  addEventListener("beforeunload", () => {
    appTools.abortCalls();
    envelope.abortCalls();
    relay.unload();
  });

  const addresses = createAddresses(config.app, config.base, document.baseURI, location);
  window.URL = withResolvedUrls(URL, addresses.resolveOwn);
  window.Request = withResolvedRequests(natives.Request, addresses.resolve);
  const fetch = createFetch({ ...natives, addresses, calls, offline: tiers.answer, Request: window.Request });
  const { resolve } = addresses;
  const showFailure = (what: string, name: string, why: unknown): void => {
    warn(`${name}: ${why}`);
    tell(what, name);
  };
  const page = { ...natives, fetch, resolve, open, showFailure, save: (params: Params) => callHost("downloadFile", "ui/download-file", params) };
  window.fetch = fetch;
  // The Navigation API knows the frame's entries, can navigate out of the view, and fires no events in opaque frames:
  // without it, routers use the history.
  Reflect.deleteProperty(window, "navigation");
  watchElements(createFiles(fetch, resolve), resolve);
  const replaceDefault = createDefaults(later);
  const lead = createClickFinder(watchForms({ ...page, replaceDefault }), watchLinks(page));
  for (const type of ["click", "auxclick"]) replaceDefault(type, lead);
  return createUi(wire, { appTools, calls, envelope, handshake, pageTools, proof, relay, reports, requests });
}

function start(): void {
  const registry = createRegistry();
  const framed = window.parent !== window;
  const mirroring = takeToolPart()(registry, framed);
  if (!framed) {
    // An ordinary web site: the browser's own fetch, and its own tools if it has them.
    Object.assign(window, { webmcpGateway: standalone(registry) });
    return;
  }
  const natives = takeNatives();
  const config = readConfig(document);
  openWire(window, natives, (wire) => connect(wire, natives, config, registry, mirroring));
}

start();
