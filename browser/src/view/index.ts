/** The view runtime: single owner of the page's connection to its host. */

import { activated } from "./activation";
import { createActivity } from "./activity";
import { createAddresses } from "./addresses";
import { createAppTools } from "./app-tools";
import { toBase64Url } from "./base64";
import { createCalls, NO_CALLS, NoHost } from "./calls";
import { readConfig, type Config } from "./config";
import { createDefaults } from "./default";
import { createEnvelope } from "./envelope";
import { watchElements } from "./elements";
import { createFetch } from "./fetch";
import { watchForms } from "./forms";
import { createGestures } from "./gesture";
import { createHandshake, type Host } from "./handshake";
import type { Params } from "./json-rpc";
import { watchLinks } from "./links";
import { takeNatives, type Natives } from "./natives";
import { createNotice } from "./notice";
import { createPageTools } from "./page-tools";
import { createFiles } from "./page-files";
import { createProof } from "./proof";
import { createRegistry, type Registry } from "./registry";
import { rebasedRequest, rebasedUrl } from "./request";
import { createRelay } from "./relay";
import { createReports } from "./reports";
import { createRequests } from "./requests";
import { watchSize } from "./size";
import { createTiers, readSnapshot, standalone } from "./tiers";
import { takeToolPart, type TakeTools } from "./tool-part";
import { createUi } from "./ui";
import { wrap } from "./wrapped";
import { openWire, type Receivers, type Wire } from "./wire";

/** How long a page may take to initialize by itself once it is parsed, in milliseconds. */
const PAGE_FIRST = 50;
/** How long a host may take to show that it calls the page's tools itself, after `initialized`, in milliseconds. */
const OTHERS_FIRST = 3000;
/** How long the person is told what became of something, in milliseconds. */
const NEWS = 4000;
/** A host that writes into the document may never close it. */
const PARSED_AT_LAST = 2000;

function parsed(): Promise<unknown> {
  return new Promise((go) => {
    if (document.readyState !== "loading") go(true);
    // On its way down: to a page whose scripts wait the event does not come.
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
        // Requests follow: no poll may stand in their way.
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
    // Only our own host leads to the gateway, which enforces the rules of tools and knows of its calls.
    offered: (tool) => host?.ours || proof.offered(tool),
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

  /** False where the host cannot do it, or does not. */
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
    ...wire, calling, handshake, proof, activity, gestures, requests, pending: { notice, later },
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
    // What the host calls itself is not offered here, too; what the gateway must guard is offered nowhere else.
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
  // A host without MCP Apps may speak with the tools all the same.
  void handshake.host().then((found) => {
    if (!found) proof.start(false, false);
    envelope.ready();
  });
  void parsed().then(() => later(handshake.begin, PAGE_FIRST));
  // A client of the page that closes says so to nobody: it only stops to listen, and began to before it spoke. Others may
  // do so at each message, such as the question whether it is there.
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
  // Later a host hears nothing of it any more: a message of a page that goes is nobody's.
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
  // It knows the frame's entries, leads out of it, and in opaque frames hears of nothing: who asks for it goes by the history where it is not there.
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
    // An ordinary web site: the browser's own fetch, and its own tools where it has them.
    Object.assign(window, { webmcpGateway: standalone(registry) });
    return;
  }
  const natives = takeNatives();
  const config = readConfig(document);
  openWire(window, natives, (wire) => connect(wire, natives, config, registry, mirroring));
}

start();
