/** The view runtime: the single owner of the page's connection to its host. */

import { activated } from "./page/activation";
import { createActivity } from "./tools/activity";
import { createAddresses } from "./page/addresses";
import { createAppTools } from "./tools/app-tools";
import { toBase64Url } from "./base64";
import { createCalls, NO_CALLS, NoHost } from "./http/calls";
import { readConfig, type Config } from "./host/config";
import { createDefaults } from "./page/default";
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
import { rebasedRequest, rebasedUrl } from "./http/request";
import { createRelay } from "./host/relay";
import { createReports } from "./host/reports";
import { createRequests } from "./host/requests";
import { watchSize } from "./page/size";
import { createTiers, readSnapshot, standalone } from "./host/tiers";
import { takeToolPart, type TakeTools } from "./tools/tool-part";
import { createUi } from "./host/ui";
import { wrap } from "./wrapped";
import { openWire, type Receivers, type Wire } from "./host/wire";

/** Milliseconds after parsing in which a page may initialize by itself. */
const PAGE_FIRST = 50;
/** Milliseconds after `initialized` in which a host may show that it calls the page's tools itself. */
const OTHERS_FIRST = 3000;
/** Milliseconds for which a message is shown to the person. */
const NEWS = 4000;
/** A host that writes into the document may never close it. */
const PARSED_AT_LAST = 2000;

function parsed(): Promise<unknown> {
  return new Promise((go) => {
    if (document.readyState !== "loading") go(true);
    // In the capture phase: the event does not reach a page whose scripts are held back.
    addEventListener("DOMContentLoaded", go, true);
    setTimeout(go, PARSED_AT_LAST);
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
  const prefix = `wg-${toBase64Url(natives.random())}-`;
  const requests = createRequests({ ...natives, prefix, post: wire.toHost });
  const pageTools = createPageTools(registry, createRequests({ ...natives, prefix, post: wire.toPage }));
  const handshake = createHandshake({ ...config, ...wire, later, ask: requests.send });
  let host: Host | undefined;

  const proof = createProof({
    ...natives,
    crypto: natives,
    attach: async (launch, former, read) => {
      if (!handshake.can("serverTools")) throw new NoHost(NO_CALLS);
      return requests.send(
        "tools/call",
        { name: "webmcp_attach", arguments: { ...(launch && { launch, ...(former && { former }) }), capabilities: { pending: true } } },
        { read },
      );
    },
    tools: () => readSnapshot()["tools"],
    changed: () => {
      relay.renewed();
      past();
    },
  });
  const appTools = createAppTools(registry, {
    send: wire.toHost,
    offered: proof.offered,
    settled: () => Promise.all([proof.settled(), handshake.pageHasTools() && pageTools.renew()]),
    began: activity.begin,
    first: () => relay.changed(),
  });
  const envelope = createEnvelope(registry, {
    app: config.app,
    send: wire.toHost,
    // Only our own host forwards to the gateway, which enforces the tool rules and sees the calls.
    offered: (tool) => host?.ours || proof.offered(tool),
    settled: proof.settled,
    began: () => (host?.ours ? calling : activity).begin(),
    first: () => relay.changed(),
  });
  const mirror = mirroring?.(proof.offered, activity.begin);
  function past(): void {
    appTools.changed();
    mirror?.();
    relay.changed();
  }
  registry.onChange(past);

  /** False if the host cannot do it, or fails. */
  const done = async (capability: string, method: string, params: Params): Promise<boolean> =>
    handshake.can(capability) && requests.send(method, params).then((result) => !result["isError"], () => false);
  const open = (url: string): Promise<boolean> => done("openLinks", "ui/open-link", { url });
  const notice = createNotice(open);
  let hideNews: (() => void) | undefined;
  const tell = (title: string, message: string): void => {
    hideNews?.();
    hideNews = notice({ title, message, url: "" });
    later(hideNews, NEWS);
  };
  const calls = createCalls({
    ...wire, calling, handshake, proof, activity, gestures, requests, pending: { notice: (approval) => (host?.asks ? () => {} : notice(approval)), later },
    hurry: () => relay.hurry(),
    departs: () => relay.giveWay(),
  });
  const reports = createReports({
    app: config.app,
    update: (params) => requests.send("ui/update-model-context", params),
    carries: () => handshake.can("serverTools"),
    time: () => new Date().toISOString(),
  });
  const tiers = createTiers({
    registry,
    handshake,
    reports,
    tool: calls.tool,
    reported: () => tell("Reported to the assistant", `The assistant was ${handshake.can("serverTools") ? "told of" : "asked to do"} this.`),
  });
  Object.assign(window, { webmcpGateway: tiers.page });
  const relay = createRelay(registry, {
    ...natives,
    ask: calls.own,
    // Tools that the host calls itself are not offered here, too; tools that the gateway must guard are offered nowhere
    // else.
    offered: (tool) => !((appTools.taken() || envelope.taken()) && proof.offered(tool)),
    flying: calls.flying,
    hidden: () => document.hidden,
  });

  handshake.opened((found) => {
    host = found;
    proof.start(found.ours, handshake.can("serverTools"));
    if (!found.ours && handshake.can("serverTools")) later(() => void proof.settled().then(relay.start), OTHERS_FIRST);
    if (!handshake.pageSpeaks()) watchSize((size) => requests.notify("ui/notifications/size-changed", size));
  });
  // A host without MCP Apps may still use the tools.
  void handshake.host().then((found) => {
    if (!found) proof.start(false, false);
    envelope.ready();
  });
  void parsed().then(() => later(handshake.begin, PAGE_FIRST));
  // A closing client of the page gives no notice: it only removes its listener, which it added before it spoke. Others
  // may do so at each message, such as a readiness check.
  const listening = new WeakMap<object, number>();
  const watchListeners = (method: "addEventListener" | "removeEventListener", see: (listener: object) => void): void => {
    wrap(Object.hasOwn(window, method) ? window : EventTarget.prototype, method, (native, _, given) => {
      native();
      if (given[0] === "message") see(Object(given[1]));
    });
  };
  watchListeners("addEventListener", (listener) => listening.set(listener, handshake.pageSpeaks()));
  watchListeners("removeEventListener", (listener) => {
    if (listening.get(listener)! < handshake.pageSpeaks() && handshake.pageHasTools()) void pageTools.renew();
  });
  // Later messages of a page that is unloaded do not reach the host.
  addEventListener("beforeunload", () => {
    appTools.left();
    envelope.left();
    relay.left();
  });

  const addresses = createAddresses(config.app, config.base, document.baseURI, location);
  window.URL = rebasedUrl(URL, addresses.own);
  window.Request = rebasedRequest(natives.Request, addresses.resolve);
  const fetch = createFetch({ ...natives, addresses, calls, offline: tiers.answer, Request: window.Request });
  const { resolve } = addresses;
  const failed = (what: string, name: string, why: unknown): void => {
    warn(`${name}: ${why}`);
    tell(what, name);
  };
  const page = { ...natives, fetch, resolve, open, failed, save: (params: Params) => done("downloadFile", "ui/download-file", params) };
  window.fetch = fetch;
  // The Navigation API knows the frame's entries, can navigate out of the view, and fires no events in opaque frames:
  // without it, routers use the history.
  Reflect.deleteProperty(window, "navigation");
  watchElements(createFiles(fetch, resolve), resolve);
  const instead = createDefaults(later);
  const lead = activated(watchForms({ ...page, instead }), watchLinks(page));
  for (const type of ["click", "auxclick"]) instead(type, lead);
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
