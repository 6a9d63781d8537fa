/** What a host page hears of one sandboxed page, from its window and origin and at ports of its own, within one budget, and says to it. */
import type { JSONRPCMessage, Transport } from "@modelcontextprotocol/client";
import type { JsonObject } from "../mux";
import { Budget } from "./budget";
import { envelope, sortPageMessage, sortToolMessage } from "./page-messages";
import { bytesOf } from "./sandbox/rules";

/** Messages that a page may send: at once, and per second after that. */
const BURST = 5000;
const PER_SECOND = 1000;
/** A message costs one, and one more for each so many characters of its texts. */
const CHARACTERS = 64 * 1024;
/** What a page that reloaded may send before its new view is there. */
const HELD = 256;
const CHECK_EVERY = 300;
/** Questions to which a page may still answer at their ports. */
const PORTS = 64;

export interface PageEvents {
  /** A message of the page's tools. */
  webmcp(message: JsonObject): void;
  /** The proxy saw a person act in the page at most `age` milliseconds ago. */
  gesture(age: number): void;
  /** The page reloaded in place and said `ui/initialize` again; what it says is held until the next `uiTransport()`. */
  reloaded(): void;
  /** The sandbox proxy itself was loaded again, and is empty. */
  emptied(): void;
  /** Another document is in the page's place: the frame went elsewhere. */
  left(): void;
  /** The page said more than its budget; nothing of it is heard any more. */
  flooded(): void;
}

export class PageLink {
  private readonly page: Window;
  private readonly origin: string;
  private readonly events: PageEvents;
  private readonly budget = new Budget(BURST, PER_SECOND, performance.now());
  private readonly forTools: JsonObject[] = [];
  private held: JsonObject[] = [];
  private ui: UiTransport | null = null;
  private proxyReady = false;
  private initialized = false;
  private toolsReady = false;
  private checking: ReturnType<typeof setInterval> | undefined;
  /** One went with each question whether the page's tools are there. */
  private ports: MessagePort[] = [];
  /** Where they answered, past the proxy and all that the app itself says; null where that was by its window. */
  private tools: MessagePort | null = null;

  /** `page` is the window of the sandbox proxy, `origin` its origin. */
  constructor(page: Window, origin: string, events: PageEvents) {
    this.page = page;
    this.origin = origin;
    this.events = events;
    window.addEventListener("message", this.hear);
  }

  close(): void {
    window.removeEventListener("message", this.hear);
    this.stopChecking();
    this.closePorts();
    this.ui = null;
  }

  /** The ui protocol from now on, for one AppBridge; what was held comes first. */
  uiTransport(): Transport {
    return new UiTransport(
      (message) => this.post(message),
      (ui) => {
        this.ui = ui;
        for (const message of this.held.splice(0)) this.deliver(message);
      },
    );
  }

  /** Hand a message of the gateway to the page's tools, once they answer. */
  sendWebmcp(message: JsonObject): void {
    if (this.toolsReady) this.postWebmcp(message);
    else this.forTools.push(message); // bounded by what the bridge lets in flight
  }

  /** Ask for the page's tools until they answer. */
  startChecking(): void {
    this.stopChecking();
    this.closePorts();
    this.toolsReady = false;
    // Until the proxy speaks, its frame is empty, and the browser would complain of a message to another origin.
    this.checking = setInterval(() => this.proxyReady && this.check(), CHECK_EVERY);
  }

  private check(): void {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = ({ data }) => {
      const sorted = this.affords(data) ? sortToolMessage(data) : null;
      if (sorted?.kind === "webmcp") this.hearTools(sorted.payload, port1);
    };
    this.closePorts(PORTS - 1);
    this.ports.push(port1);
    this.page.postMessage(envelope("mcp-check-ready"), this.origin, [port2]);
  }

  private readonly hear = (event: MessageEvent<unknown>): void => {
    if (event.source !== this.page || event.origin !== this.origin) return;
    if (!this.affords(event.data)) return;
    const sorted = sortPageMessage(event.data);
    switch (sorted.kind) {
      case "ui":
        return this.hearUi(sorted.message, sorted.initialize);
      case "proxy-ready":
        return this.hearProxy(sorted.message);
      case "gesture":
        return this.events.gesture(sorted.age);
      case "left":
        return this.events.left();
      case "webmcp":
        return this.hearTools(sorted.payload, null);
      case "garbage":
        return;
    }
  };

  /** Whether the page may say this, too, wherever it comes in; else it is heard no more. */
  private affords(data: unknown): boolean {
    if (this.budget.take(1 + weigh(data) / CHARACTERS, performance.now())) return true;
    this.close();
    this.events.flooded();
    return false;
  }

  private hearUi(message: JsonObject, initialize: boolean): void {
    if (initialize && this.initialized) {
      this.ui = null;
      this.held = [];
      this.forTools.length = 0;
      this.startChecking();
      this.events.reloaded();
    }
    this.initialized ||= initialize;
    this.deliver(message);
  }

  private hearProxy(message: JsonObject): void {
    if (this.proxyReady) return this.events.emptied();
    this.proxyReady = true;
    this.deliver(message);
  }

  private hearTools(payload: JsonObject | "mcp-server-ready" | "mcp-server-stopped", port: MessagePort | null): void {
    if (payload === "mcp-server-stopped") return this.startChecking();
    if (payload !== "mcp-server-ready") return this.toolsReady ? this.events.webmcp(payload) : undefined;
    if (this.checking === undefined && !this.toolsReady) return;
    this.stopChecking();
    this.toolsReady = true;
    // It answers at the last one that it was given.
    this.tools = port;
    if (!port) this.closePorts();
    for (const message of this.forTools.splice(0)) this.postWebmcp(message);
  }

  private postWebmcp(message: JsonObject): void {
    if (this.tools) this.tools.postMessage(envelope(message));
    else this.post(envelope(message));
  }

  /** All but the last so many. */
  private closePorts(kept = 0): void {
    for (const port of this.ports.splice(0, this.ports.length - kept)) {
      port.onmessage = null; // what it brought already
      port.close();
      if (port === this.tools) this.tools = null;
    }
  }

  private stopChecking(): void {
    clearInterval(this.checking);
    this.checking = undefined;
  }

  private deliver(message: JsonObject): void {
    if (this.ui) this.ui.onmessage?.(message as unknown as JSONRPCMessage);
    else if (this.held.length < HELD) this.held.push(message);
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
 * About how many characters of text a message holds; looks at no more than 10,000 values of it. A `Blob` is but a name:
 * how many bytes are under way is for the bridge to bound.
 */
function weigh(data: unknown): number {
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
