/** The link to one sandboxed page: accepts messages of its window and origin and at its own ports, within one budget, and sends to it. */
import type { JSONRPCMessage, Transport } from "@modelcontextprotocol/client";
import { BUSY, failure, has, idOf, type JsonObject } from "../mux";
import { Budget } from "./budget";
import { envelope, sortPageMessage, sortToolMessage, type Blocked } from "./page-messages";
import { PROXY_READY } from "./frames";
import { bytesOf } from "./sandbox/rules";

/** Messages that a page may send: at once, and per second after that. */
const BURST = 5000;
const PER_SECOND = 1000;
/** A message costs one, and one more for each so many characters of its texts. */
const CHARACTERS = 64 * 1024;
/** Messages that a reloaded page may send before its new view is open. */
const MAX_HELD = 256;

export interface PageEvents {
  /** A message of the page's tools. */
  onWebmcp(message: JsonObject): void;
  /** The page sends `ui/initialize`, and is answered afterwards. */
  onInitialize(params: JsonObject): void;
  /** The proxy saw a person act in the page at most `age` milliseconds ago. */
  onGesture(age: number): void;
  /** The page reloaded in place and sent `ui/initialize` again; its messages are held until the next `uiTransport()`. */
  onReload(): void;
  /** The sandbox proxy itself was reloaded, and is empty. */
  onEmpty(): void;
  /** Another document has replaced the page: the frame navigated; or nothing can be loaded from `unreachable`. */
  onLeave(unreachable?: string): void;
  /** The page, at an address that works once, reloads. */
  onDocumentWanted(): void;
  /** A violation of the content security policy by the page. */
  onBlocked(what: Blocked): void;
  /** The page exceeded its budget; its messages are ignored from now on. */
  onFlood(): void;
}

export class PageLink {
  private readonly page: Window;
  private readonly origin: string;
  private readonly events: PageEvents;
  private readonly budget = new Budget(BURST, PER_SECOND, performance.now());
  private readonly forTools: JsonObject[] = [];
  private held: JsonObject[] = [];
  private ui: UiTransport | null = null;
  /** The view runtime transferred it with its first message: an initialized page hears this host there, past the proxy. */
  private pagePort: MessagePort | null = null;
  private answersByPort = false;
  private proxyReady = false;
  private initialized = false;
  /** The page announced tools by itself: any other page receives only JSON-RPC. */
  private announced = false;
  /** Whether its tools are wanted, asked for, or speak. */
  private tools: "unwanted" | "silent" | "asked" | "ready" = "unwanted";
  /** Transferred with the readiness check. Tools that answered there are reached past the proxy and the app's own messages. */
  private port: MessagePort | null = null;
  private byPort = false;

  /** `page` is the window of the sandbox proxy, `origin` its origin; `isReady` if it has said that it is loaded. */
  constructor(page: Window, origin: string, events: PageEvents, isReady = false) {
    this.page = page;
    this.origin = origin;
    this.events = events;
    if (isReady) this.receiveProxyReady({ jsonrpc: "2.0", method: PROXY_READY, params: {} });
    window.addEventListener("message", this.onMessage);
  }

  close(): void {
    window.removeEventListener("message", this.onMessage);
    this.closePort();
    this.pagePort?.close();
    this.ui = null;
  }

  /** The ui protocol from now on, for one AppBridge; held messages come first. */
  uiTransport(): Transport {
    return new UiTransport(
      (message) => this.answer(message),
      (ui) => {
        this.ui = ui;
        for (const message of this.held.splice(0)) this.deliver(message);
      },
    );
  }

  /** Send a message of the gateway to the page's tools, once they answer. */
  sendWebmcp(message: JsonObject): void {
    if (this.tools === "ready") this.postWebmcp(message);
    else this.forTools.push(message); // bounded by the bridge's limit of calls in flight
  }

  /** Begin a new session with the page's tools: at once if the page has announced them, else when it does. */
  expectTools(): void {
    this.closePort();
    this.tools = "silent";
    if (this.announced) this.requestTools();
  }

  private requestTools(): void {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = ({ data }) => {
      const sorted = this.withinBudget(data) ? sortToolMessage(data) : null;
      if (sorted?.kind === "webmcp") this.receiveTools(sorted.payload, true);
      else if (sorted?.kind === "refused") port1.postMessage(envelope(sorted.answer));
    };
    this.port = port1;
    this.tools = "asked";
    this.page.postMessage(envelope("mcp-check-ready"), this.origin, [port2]);
  }

  private readonly onMessage = (event: MessageEvent<unknown>): void => {
    if (event.source !== this.page || event.origin !== this.origin) return;
    if (!this.withinBudget(event.data)) return;
    this.pagePort = event.ports[0] ?? this.pagePort;
    const sorted = sortPageMessage(event.data);
    switch (sorted.kind) {
      case "ui":
        return this.receiveUi(sorted.message, sorted.initialize);
      case "proxy-ready":
        return this.receiveProxyReady(sorted.message);
      case "gesture":
        return this.events.onGesture(sorted.age);
      case "left":
        return this.events.onLeave(sorted.unreachable);
      case "document-wanted":
        this.answersByPort = false; // the document with that port is gone: the proxy takes the answer
        return this.events.onDocumentWanted();
      case "webmcp":
        return this.receiveTools(sorted.payload, false);
      case "blocked":
        return this.events.onBlocked(sorted.what);
      case "refused":
        return sorted.channel === "ui" ? this.post(sorted.answer) : this.postWebmcp(sorted.answer);
      case "garbage":
        return;
    }
  };

  /** Whether the message is within the budget, wherever it arrives; else the link is closed. */
  private withinBudget(data: unknown): boolean {
    if (this.budget.take(1 + messageCost(data) / CHARACTERS, performance.now())) return true;
    this.close();
    this.events.onFlood();
    return false;
  }

  private receiveUi(message: JsonObject, initialize: boolean): void {
    if (initialize) this.answersByPort = false;
    // Only now: the answer to `ui/initialize` tells the page's window of which origin this page is.
    if (message["method"] === "ui/notifications/initialized") this.answersByPort = this.pagePort !== null;
    if (initialize && this.initialized) {
      this.ui = null;
      this.held = [];
      this.forTools.length = 0;
      this.announced = false;
      this.expectTools();
      this.events.onReload();
    }
    this.initialized ||= initialize;
    if (initialize) this.events.onInitialize((message["params"] ?? {}) as JsonObject);
    this.deliver(message);
  }

  private receiveProxyReady(message: JsonObject): void {
    if (this.proxyReady) return this.events.onEmpty();
    this.proxyReady = true;
    this.deliver(message);
  }

  private receiveTools(payload: JsonObject | "mcp-server-ready" | "mcp-server-stopped", byPort: boolean): void {
    if (payload === "mcp-server-stopped") {
      this.announced = false;
      return this.expectTools();
    }
    if (payload !== "mcp-server-ready") return this.tools === "ready" ? this.events.onWebmcp(payload) : undefined;
    if (!byPort) this.announced = true;
    if (this.tools === "silent") return this.requestTools();
    if (this.tools === "unwanted" || (this.tools === "ready" && !byPort)) return;
    this.tools = "ready";
    this.byPort = byPort;
    if (!byPort) this.closePort();
    for (const message of this.forTools.splice(0)) this.postWebmcp(message);
  }

  private postWebmcp(message: JsonObject): void {
    if (this.byPort) this.port?.postMessage(envelope(message));
    else this.post(envelope(message));
  }

  private closePort(): void {
    this.byPort = false;
    if (!this.port) return;
    this.port.onmessage = null; // messages that arrived already
    this.port.close();
    this.port = null;
  }

  private deliver(message: JsonObject): void {
    if (this.ui) this.ui.onmessage?.(message as unknown as JSONRPCMessage);
    else if (this.held.length < MAX_HELD) this.held.push(message);
    else if (has(message, "method")) this.refuse(message);
  }

  private refuse(message: JsonObject): void {
    const id = idOf(message);
    if (id !== null) this.post(failure(id, BUSY, "busy"));
  }

  /** Send a message of the ui protocol. */
  private answer(message: unknown): void {
    if (this.answersByPort) this.pagePort?.postMessage(message, bytesOf(message));
    else this.post(message);
  }

  private post(message: unknown): void {
    this.page.postMessage(message, this.origin, bytesOf(message));
  }
}

/** The ui protocol of a page as transport of one AppBridge. */
class UiTransport implements Transport {
  onmessage?: Transport["onmessage"];
  onclose?: () => void;
  onerror?: (error: Error) => void;
  private readonly post: (message: JSONRPCMessage) => void;
  private readonly started: (ui: UiTransport) => void;
  private closed = false;

  constructor(post: (message: JSONRPCMessage) => void, started: (ui: UiTransport) => void) {
    this.post = post;
    this.started = started;
  }

  start(): Promise<void> {
    this.started(this);
    return Promise.resolve();
  }

  send(message: JSONRPCMessage): Promise<void> {
    if (!this.closed) this.post(message);
    return Promise.resolve();
  }

  close(): Promise<void> {
    this.closed = true;
    this.onclose?.();
    return Promise.resolve();
  }
}

/**
 * The approximate number of characters in a message; inspects at most 10,000 values. A `Blob` counts as a name: the
 * bridge bounds uploads.
 */
function messageCost(data: unknown): number {
  let characters = 0;
  const left: unknown[] = [data];
  for (let looked = 0; left.length > 0 && looked < 10_000; looked++) {
    const value = left.pop();
    if (typeof value === "string") characters += value.length;
    else if (value instanceof ArrayBuffer || ArrayBuffer.isView(value)) characters += value.byteLength;
    else if (typeof value === "object" && value !== null) left.push(...Object.values(value).slice(0, 10_000));
  }
  return characters + left.length * 8;
}
