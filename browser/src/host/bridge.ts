/** The host page's end of the bridge: one WebSocket for all views, which reconnects when it drops. */
import { Connection, MuxError, type AppSource, type Frame, type MessageFrame } from "../mux";
import { BridgeError, BridgeView, type ViewEvents, type Wire } from "./bridge-view";
import { gatewayHttp, GatewayRefusal, limitUploads, type GatewayHttp } from "./gateway-http";
import { Outbox } from "./outbox";

const SUBPROTOCOL = "webmcp-gateway.v1";

/** Milliseconds after which a connection counts as stable, and the next attempt is made at once. */
const STABLE_AFTER = 5000;

/** Refusals in a row after which views end, and the statuses that count: others pass by themselves. */
const MAX_REFUSALS = 3;
const LASTING: ReadonlySet<number> = new Set([400, 403, 404]);

/** `waiting`: between two attempts to connect. */
export type BridgeState = "connecting" | "open" | "waiting" | "closed";

/** The part of `WebSocket` that the bridge needs. */
export type Socket = Pick<WebSocket, "send" | "bufferedAmount" | "close" | "onopen" | "onmessage" | "onclose">;

export interface BridgeOptions {
  /** The apps, and the upstreams, whose views this page shows. */
  apps: readonly string[];
  /** The console's CSRF token, from `GET /api/state`. */
  csrf: string;
  /** The gateway's URL; by default, this page's. */
  base?: string | URL;
  onstate?: (state: BridgeState) => void;
  /** Replacements of `fetch` and `WebSocket` to reach the gateway. */
  http?: GatewayHttp;
  connect?: (url: URL) => Socket;
  /** Wait before attempt number `attempt`, which counts from 0. */
  pause?: (attempt: number) => Promise<void>;
}

interface Opening {
  source: AppSource;
  events: ViewEvents;
  resolve(view: BridgeView): void;
  reject(error: Error): void;
}

/** Connect, and stay connected until `close()`. */
export function connectBridge(options: BridgeOptions): Bridge {
  const base = new URL("./", options.base ?? document.baseURI);
  const bridge = new Bridge({
    http: gatewayHttp(base, options.csrf),
    connect: (url) => new WebSocket(url, SUBPROTOCOL),
    pause: backoff,
    ...options,
    base,
  });
  void bridge.run();
  return bridge;
}

export class Bridge implements Wire {
  readonly http: GatewayHttp;
  readonly uiHttp: GatewayHttp;
  /** The core of the current connection, null between two. */
  connection: Connection | null = null;
  private readonly options: Required<Pick<BridgeOptions, "connect" | "pause">> & BridgeOptions & { base: URL };
  private readonly views = new Map<string, BridgeView>();
  private readonly openings = new Map<string, Opening>();
  private socket: Socket | null = null;
  private outbox: Outbox | null = null;
  private state: BridgeState = "connecting";
  private attempt = 0;
  private connected = 0;
  private references = 0;
  /** Refused attempts to connect in a row. */
  private refusals = 0;

  constructor(options: Required<Pick<BridgeOptions, "http" | "connect" | "pause">> & BridgeOptions & { base: URL }) {
    this.options = options;
    this.http = options.http;
    this.uiHttp = limitUploads(options.http);
  }

  /**
   * Open a view of an app, or of one of an upstream, as soon as there is a connection.
   *
   * Rejects with BridgeError if the gateway refuses, such as `html-differs` for the digest of other HTML than its own.
   */
  open(app: string | AppSource, events: ViewEvents): Promise<BridgeView> {
    if (this.state === "closed") return Promise.reject(new BridgeError(-32000, "the bridge is closed"));
    const reference = String((this.references += 1));
    const source = typeof app === "string" ? { app } : app;
    return new Promise((resolve, reject) => {
      this.openings.set(reference, { source, events, resolve, reject });
      if (this.connection) this.send({ type: "open", ref: reference, ...source });
    });
  }

  /** End the connection; the gateway closes the views. */
  close(): void {
    this.setState("closed");
    this.outbox?.drain(Infinity);
    this.socket?.close(1000);
    for (const opening of this.openings.values()) opening.reject(new BridgeError(-32000, "the bridge is closed"));
    this.openings.clear();
  }

  /** Reconnect until `close()`. */
  async run(): Promise<void> {
    while (this.state !== "closed") {
      this.setState("connecting");
      await this.connectOnce().catch((error: unknown) => this.receiveRefusal(error));
      if (this.isClosed()) return;
      this.setState("waiting");
      await this.options.pause(this.attempt);
      this.attempt += 1;
    }
  }

  /**
   * The gateway answers, but lets this page open nothing more, as after a change of its configuration: the views end,
   * as they would wait for ever. A single refusal may be of an old CSRF token.
   */
  private receiveRefusal(error: unknown): void {
    const isRefusal = error instanceof GatewayRefusal && LASTING.has(error.status);
    this.refusals = isRefusal ? this.refusals + 1 : 0;
    if (!isRefusal || this.refusals < MAX_REFUSALS) return;
    for (const id of [...this.views.keys()]) this.removeView(id)?.loseConnection();
    for (const opening of this.openings.values()) opening.reject(new BridgeError(-32000, error.message));
    this.openings.clear();
  }

  send(frame: Frame): void {
    const { connection } = this;
    if (frame.type === "close") this.views.delete(frame.view);
    if (!connection) {
      if (frame.type === "message") this.views.get(frame.view)?.onDisconnect();
      return;
    }
    // A view that is being resumed has nothing to attest, and one that was not resumed nothing to close.
    const needsOpen = frame.type === "gesture" || frame.type === "focus" || frame.type === "close";
    if (needsOpen && !connection.views.includes(frame.view)) return;
    const replies = connection.send(frame);
    this.flush(connection, frame);
    for (const reply of replies) this.receiveFrame(reply);
  }

  /** One connection, from its ticket to its end. */
  private async connectOnce(): Promise<void> {
    // The socket opens while the ticket is fetched; the gateway waits for it.
    let opening: ReturnType<Bridge["openSocket"]> | undefined;
    const ticket = await this.http.ticket(this.options.apps, () => (opening ??= this.openSocket())).catch((error: unknown) => {
      void opening?.opened.then(() => opening?.socket.close()); // earlier, browsers warn of it
      throw error;
    });
    this.refusals = 0;
    if (this.isClosed()) return;
    const { socket, opened, closed } = (opening ??= this.openSocket());
    if (await Promise.race([closed, opened])) this.sayHello(ticket, socket);
    await closed;
    this.dropConnection();
  }

  private openSocket(): { socket: Socket; opened: Promise<boolean>; closed: Promise<boolean> } {
    const url = new URL("bridge", this.options.base);
    url.protocol = url.protocol.replace("http", "ws");
    const socket = (this.socket = this.options.connect(url));
    socket.onmessage = ({ data }: MessageEvent<unknown>) => this.receive(data);
    const opened = new Promise<boolean>((resolve) => (socket.onopen = () => resolve(true)));
    const closed = new Promise<boolean>((resolve) => (socket.onclose = () => resolve(false)));
    return { socket, opened, closed };
  }

  private sayHello(ticket: string, socket: Socket): void {
    this.connection = new Connection("host");
    this.outbox = new Outbox(socket);
    this.connected = performance.now();
    this.setState("open");
    this.send({ type: "hello", ticket });
    for (const view of this.views.values()) this.send({ type: "resume", view: view.id, token: view.token });
    for (const [ref, { source }] of this.openings) this.send({ type: "open", ref, ...source });
  }

  private receive(data: unknown): void {
    const { connection } = this;
    if (!connection) return;
    try {
      if (typeof data !== "string") throw new MuxError("bad-frame", "frames are text");
      const events = connection.receiveData(data);
      this.flush(connection);
      this.outbox?.drain(); // timers of a hidden page are throttled
      for (const event of events) this.receiveFrame(event);
    } catch (error) {
      if (!(error instanceof MuxError)) throw error;
      console.error(`webmcp-gateway: the bridge ends: ${error.code}: ${error.message}`);
      this.socket?.close(4400, error.code);
    }
  }

  private receiveFrame(event: Frame): void {
    switch (event.type) {
      case "opened":
        return this.receiveOpened(event);
      case "resume":
        return this.receiveResume(event.view, event.token);
      case "message":
        return this.receiveMessage(event);
      case "close":
        return this.removeView(event.view)?.receiveClose(event.reason);
      case "error":
        return this.receiveError(event);
      default:
        return; // hello, open, gesture and focus are sent by the host only
    }
  }

  private receiveOpened(opened: Extract<Frame, { type: "opened" }>): void {
    const opening = this.openings.get(opened.ref);
    this.openings.delete(opened.ref);
    if (!opening) return this.send({ type: "close", view: opened.view, reason: "gone" });
    const { source } = opening;
    const view = new BridgeView(this, opening.events, opened, "app" in source ? source.app : source.upstream);
    this.views.set(view.id, view);
    opening.resolve(view);
  }

  private receiveResume(id: string, token: string): void {
    const view = this.views.get(id);
    if (view) view.token = token;
    else this.send({ type: "close", view: id, reason: "gone" });
  }

  private receiveMessage({ view, channel, message }: MessageFrame): void {
    this.views
      .get(view)
      ?.receive(channel, message)
      .catch((error: unknown) => console.warn("webmcp-gateway: a message of the gateway was lost:", error));
  }

  private receiveError(event: Extract<Frame, { type: "error" }>): void {
    if (event.ref !== undefined) {
      this.openings.get(event.ref)?.reject(new BridgeError(-32000, `${event.code}: ${event.detail}`));
      this.openings.delete(event.ref);
    } else if (event.view === undefined) {
      console.warn(`webmcp-gateway: the gateway ends the bridge: ${event.code}: ${event.detail}`);
      this.socket?.close(1000);
    } else if (!this.connection?.views.includes(event.view)) {
      this.removeView(event.view)?.loseConnection();
    }
  }

  private removeView(id: string): BridgeView | undefined {
    const view = this.views.get(id);
    this.views.delete(id);
    return view;
  }

  private dropConnection(): void {
    if (performance.now() - this.connected > STABLE_AFTER) this.attempt = 0;
    this.connection = null;
    this.socket = null;
    this.outbox?.clear();
    this.outbox = null;
    for (const view of this.views.values()) view.onDisconnect();
  }

  /** Write the core's pending output: `frame`, or its own answer to a received one. */
  private flush(connection: Connection, frame?: Frame): void {
    for (const text of connection.pendingOutput()) this.outbox?.put(text, frame);
  }

  private setState(state: BridgeState): void {
    if (this.state === "closed") return;
    this.state = state;
    this.options.onstate?.(state);
  }

  private isClosed(): boolean {
    return this.state === "closed";
  }
}

/** A quarter of a second, doubled up to half a minute, with half of it at random. */
async function backoff(attempt: number): Promise<void> {
  const longest = Math.min(30_000, 250 * 2 ** attempt);
  await new Promise((resolve) => setTimeout(resolve, longest * (0.5 + Math.random() / 2)));
}
