/** The single `ui/initialize` of this view: the page's own if it speaks ui itself, else the runtime's. */

import { answer, notification, objectOf, type Answer, type Id, type Message, type Notification, type Params, type Request } from "./json-rpc";

/** The runtime's part of the host's answer. */
export interface Host {
  capabilities: Params;
  /** The host is ours: its socket is the proof, and it forwards the webmcp channel to the gateway. */
  ours: boolean;
  /** The host shows the person what waits for approval. */
  showsApprovals: boolean;
}

export interface Handshake {
  /** The host, once `initialized` was sent to it; undefined after five seconds of silence. */
  host(): Promise<Host | undefined>;
  /** Whether the host has the capability `name`, and did not withdraw it. */
  can(name: string): boolean;
  /** The host proved to lack the capability `name`; reset when its context changes, or after a while. */
  withdraw(name: string): void;
  /** `run` is called when capabilities come or go. */
  watch(run: () => void): void;
  /** `run` is called once, with `host()`'s answer. */
  onOpen(run: (host: Host) => void): void;
  /** The number of clients of the page that speak ui: with any, the page answers the host's requests to the view. */
  pageClients(): number;
  /** Whether the page declared app tools of its own. */
  pageHasTools(): boolean;
  isOpen(): boolean;
  /** Initializes unless the page did. */
  begin(): void;
  receiveInitialize(message: Request): void;
  receiveInitialized(message: Notification): void;
  /** Inspects an answer for the page. */
  receiveAnswer(message: Answer): void;
  /** Stores notifications that hosts send once, for a page that listens late. */
  storeNotification(message: Notification): void;
}

interface HandshakeDependencies {
  app: string;
  title: string;
  toHost(message: Message): void;
  toPage(message: Message): void;
  send(method: string, params: Params): Promise<Params>;
  later(run: () => void, milliseconds: number): unknown;
}

const PROTOCOL = "2026-01-26";
/** Milliseconds of silence, in two parts: the last begins when a long script of the page has ended, and lets answers in. */
const HOST_TIMEOUT = 2000;
const LAST_TIMEOUT = 3000;
/** Milliseconds after which a withdrawn capability is tried again. */
const RETRY_CAPABILITY = 30000;
const SENT_ONCE = /^ui\/notifications\/(tool-(input|result|cancelled)|host-context-changed)$/;

function readHost(result: Params): Host {
  const { bridge, approvals } = objectOf(objectOf(result["hostContext"])["webmcp-gateway"]);
  return { capabilities: objectOf(result["hostCapabilities"]), ours: bridge === true, showsApprovals: approvals === true };
}

function withTools(capabilities?: unknown): Params {
  const given = objectOf(capabilities);
  return { ...given, tools: { ...objectOf(given["tools"]), listChanged: true } };
}

export function createHandshake({ app, title, toHost, toPage, send, later }: HandshakeDependencies): Handshake {
  const answered = Promise.withResolvers<Params>();
  const opened = Promise.withResolvers<Host>();
  const silence = new Promise<undefined>((over) => later(() => later(over as () => void, LAST_TIMEOUT), HOST_TIMEOUT));
  const kept: Notification[] = [];
  let state: "idle" | "asked" | "answered" | "open" = "idle";
  let pageAsked: Id | undefined;
  let speaks = 0;
  let hasTools = false;
  let found: Host | undefined;
  const withdrawn = new Set<string>();
  const listeners: (() => void)[] = [];
  const notifyChange = (): void => listeners.forEach((listener) => listener());

  function restore(name: string): void {
    if (withdrawn.delete(name)) notifyChange();
  }

  function receiveResult(result: Params): void {
    state = "answered";
    answered.resolve(result);
  }

  function open(): void {
    state = "open";
    void answered.promise.then((result) => opened.resolve((found = readHost(result))));
  }

  return {
    host: () => Promise.race([opened.promise, silence]),
    can: (name) => !!found?.capabilities[name] && !withdrawn.has(name),
    withdraw(name) {
      withdrawn.add(name);
      notifyChange();
      later(() => restore(name), RETRY_CAPABILITY);
    },
    watch: (run) => void listeners.push(run),
    onOpen: (run) => void opened.promise.then(run),
    pageClients: () => speaks,
    pageHasTools: () => hasTools,
    isOpen: () => state === "open",

    begin() {
      if (state !== "idle") return;
      state = "asked";
      const params = { appInfo: { name: app, title, version: "1" }, appCapabilities: withTools(), protocolVersion: PROTOCOL };
      send("ui/initialize", params).then(
        (result) => {
          receiveResult(result);
          toHost(notification("ui/notifications/initialized"));
          open();
        },
        // No host of MCP Apps: like silence, and the page may still try by itself.
        () => (state = "idle"),
      );
    },

    receiveInitialize(message) {
      speaks++;
      const capabilities = message.params?.["appCapabilities"];
      hasTools ||= !!objectOf(capabilities)["tools"];
      if (state === "idle") {
        state = "asked";
        pageAsked = message.id;
        toHost({ ...message, params: { ...message.params, appCapabilities: withTools(capabilities) } });
      } else {
        void answered.promise.then((result) => toPage(answer(message.id, result)));
      }
    },

    receiveInitialized(message) {
      if (state === "answered") {
        toHost(message);
        open();
      } else {
        kept.splice(0).forEach(toPage);
      }
    },

    receiveAnswer(message) {
      if (state !== "asked" || pageAsked !== message.id) return;
      pageAsked = undefined;
      if (message.result) receiveResult(message.result);
      else state = "idle";
    },

    storeNotification(message) {
      if (message.method === "ui/notifications/host-context-changed") [...withdrawn].forEach(restore);
      if (!speaks && SENT_ONCE.test(message.method)) kept.push(message);
    },
  };
}
