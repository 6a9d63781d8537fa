/** The single `ui/initialize` of this view: the page's own if it speaks ui itself, else the runtime's. */

import { answer, isObject, notification, objectOf, type Answer, type Id, type Message, type Notification, type Params, type Request } from "./json-rpc";

/** The runtime's part of the host's answer. */
export interface Host {
  capabilities: Params;
  /** The host is ours: its socket is the proof, and it forwards the webmcp channel to the gateway. */
  ours: boolean;
  /** The host shows the person what waits for approval. */
  asks: boolean;
}

export interface Handshake {
  /** The host, once `initialized` was sent to it; undefined after five seconds of silence. */
  host(): Promise<Host | undefined>;
  /** Whether the host has the capability `name`, and did not withdraw it. */
  can(name: string): boolean;
  /** The host proved to lack the capability `name`; reset when its context changes, or after a while. */
  withdrew(name: string): void;
  /** `run` is called when capabilities come or go. */
  onChange(run: () => void): void;
  /** `run` is called once, with `host()`'s answer. */
  opened(run: (host: Host) => void): void;
  /** The number of clients of the page that speak ui: with any, the page answers the host's requests to the view. */
  pageSpeaks(): number;
  /** Whether the page declared app tools of its own. */
  pageHasTools(): boolean;
  isOpen(): boolean;
  /** Initializes unless the page did. */
  begin(): void;
  pageInitializes(message: Request): void;
  pageInitialized(message: Notification): void;
  /** Inspects an answer for the page. */
  observe(message: Answer): void;
  /** Stores notifications that hosts send once, for a page that listens late. */
  keep(message: Notification): void;
}

interface Ends {
  app: string;
  title: string;
  toHost(message: Message): void;
  toPage(message: Message): void;
  ask(method: string, params: Params): Promise<Params>;
  later(run: () => void, milliseconds: number): unknown;
}

const PROTOCOL = "2026-01-26";
const SILENCE = 5000;
/** Milliseconds after which a withdrawn capability is tried again. */
const WITHDRAWN = 30000;
const ONCE = /^ui\/notifications\/(tool-(input|result|cancelled)|host-context-changed)$/;

function readHost(result: Params): Host {
  const { bridge, approvals } = objectOf(objectOf(result["hostContext"])["webmcp-gateway"]);
  return { capabilities: objectOf(result["hostCapabilities"]), ours: bridge === true, asks: approvals === true };
}

function withTools(capabilities?: unknown): Params {
  const given = objectOf(capabilities);
  return { ...given, tools: { ...objectOf(given["tools"]), listChanged: true } };
}

export function createHandshake({ app, title, toHost, toPage, ask, later }: Ends): Handshake {
  const answered = Promise.withResolvers<Params>();
  const opened = Promise.withResolvers<Host>();
  const silence = new Promise<undefined>((over) => later(over as () => void, SILENCE));
  const kept: Notification[] = [];
  let state: "idle" | "asked" | "answered" | "open" = "idle";
  let pageAsked: Id | undefined;
  let speaks = 0;
  let hasTools = false;
  let found: Host | undefined;
  const withdrawn = new Set<string>();
  const listeners: (() => void)[] = [];
  const changed = (): void => listeners.forEach((listener) => listener());

  function restore(name: string): void {
    if (withdrawn.delete(name)) changed();
  }

  function take(result: Params): void {
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
    withdrew(name) {
      withdrawn.add(name);
      changed();
      later(() => restore(name), WITHDRAWN);
    },
    onChange: (run) => void listeners.push(run),
    opened: (run) => void opened.promise.then(run),
    pageSpeaks: () => speaks,
    pageHasTools: () => hasTools,
    isOpen: () => state === "open",

    begin() {
      if (state !== "idle") return;
      state = "asked";
      const params = { appInfo: { name: app, title, version: "1" }, appCapabilities: withTools(), protocolVersion: PROTOCOL };
      ask("ui/initialize", params).then(
        (result) => {
          take(result);
          toHost(notification("ui/notifications/initialized"));
          open();
        },
        // No host of MCP Apps: like silence, and the page may still try by itself.
        () => (state = "idle"),
      );
    },

    pageInitializes(message) {
      speaks++;
      const capabilities = message.params?.["appCapabilities"];
      hasTools ||= isObject(objectOf(capabilities)["tools"]);
      if (state === "idle") {
        state = "asked";
        pageAsked = message.id;
        toHost({ ...message, params: { ...message.params, appCapabilities: withTools(capabilities) } });
      } else {
        void answered.promise.then((result) => toPage(answer(message.id, result)));
      }
    },

    pageInitialized(message) {
      if (state === "answered") {
        toHost(message);
        open();
      } else {
        kept.splice(0).forEach(toPage);
      }
    },

    observe(message) {
      if (state !== "asked" || pageAsked !== message.id) return;
      pageAsked = undefined;
      if (message.result) take(message.result);
      else state = "idle";
    },

    keep(message) {
      if (message.method === "ui/notifications/host-context-changed") [...withdrawn].forEach(restore);
      if (!speaks && ONCE.test(message.method)) kept.push(message);
    },
  };
}
