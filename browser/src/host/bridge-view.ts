/** One view on the bridge: calls out on ui, messages both ways on webmcp. */
import { bodyNamed, failure, idOf, IN_FLIGHT_LIMIT, isLarge, joinBody, readMessage, splitBody } from "../mux";
import type { Channel, Frame, Id, JsonObject } from "../mux";
import { rejectOnAbort } from "../view/abort";
import { createGate } from "../view/http/gate";
import { Bulk, bytesReference, extractBlob, withBytes } from "./bulk";
import { randomId, type GatewayHttp } from "./gateway-http";

/** A failed call: refused, busy, or `connection-lost`. `code` is that of JSON-RPC. */
export class BridgeError extends Error {
  readonly code: number;
  readonly data: unknown;

  constructor(code: number, message: string, data?: unknown) {
    super(message);
    this.name = "BridgeError";
    this.code = code;
    this.data = data;
  }
}

/** Callbacks of the owner of a view. */
export interface ViewEvents {
  /** A message for the page's tools. */
  webmcp(message: JsonObject): void;
  /** A notification of the gateway on ui, such as `notifications/tools/list_changed`. */
  notification(message: JsonObject): void;
  /** The gateway closed the view. */
  closed(reason: string): void;
  /** The view could not be resumed after the connection was lost: open another. */
  lost(): void;
}

export interface CallOptions {
  signal?: AbortSignal;
  /** Receives the gateway's progress of the call, and before that the upload progress of its `Blob`. */
  onprogress?: (params: JsonObject) => void;
}

/** The view's interface to its bridge. */
export interface Wire {
  /** Send on the current connection; without one, calls are answered `connection-lost`. */
  send(frame: Frame): void;
  /** Changes with every connection. */
  readonly connection: object | null;
  readonly http: GatewayHttp;
  /** The same for requests of pages, limited so that others have room. */
  readonly uiHttp: GatewayHttp;
}

interface Waiting {
  resolve(result: JsonObject): void;
  reject(error: Error): void;
  onprogress: ((params: JsonObject) => void) | undefined;
}

const CONNECTION_LOST = -32000;
/** Concurrent calls; the others wait. For the gateway, an abandoned one stays in flight for a moment. */
const MAX_CALLS = IN_FLIGHT_LIMIT - 8;

export class BridgeView {
  readonly id: string;
  readonly app: string;
  readonly resource: string;
  readonly links: readonly string[];
  /** The token with which the bridge resumes this view; each is valid once. */
  token: string;
  private readonly wire: Wire;
  private readonly bulk: Bulk;
  private readonly events: ViewEvents;
  private readonly prefix = randomId();
  private readonly waiting = new Map<Id, Waiting>();
  private readonly serving = new Set<Id>();
  private readonly callGate = createGate(MAX_CALLS);
  private count = 0;

  constructor(wire: Wire, events: ViewEvents, opened: Extract<Frame, { type: "opened" }>, app: string) {
    this.wire = wire;
    this.bulk = new Bulk(wire.uiHttp);
    this.events = events;
    this.id = opened.view;
    this.app = app;
    this.resource = opened.resource;
    this.links = opened.links;
    this.token = opened.resume;
  }

  /**
   * Call the gateway on ui; a `Blob` as `body` of a tool's arguments is sent beside it. Rejects with BridgeError, or
   * with the signal's reason. Never sent twice.
   */
  async call(method: string, given: JsonObject, options: CallOptions = {}): Promise<JsonObject> {
    const { signal } = options;
    signal?.throwIfAborted();
    return rejectOnAbort(this.callGate(() => this.send(method, given, options)), signal);
  }

  private send(method: string, given: JsonObject, { signal, onprogress }: CallOptions): Promise<JsonObject> {
    const { params, blob } = extractBlob(given);
    const id = `${this.prefix}-${(this.count += 1)}`;
    const message = { jsonrpc: "2.0", id, method, params: onprogress ? withProgressToken(params, id) : params };
    return new Promise<JsonObject>((resolve, reject) => {
      signal?.throwIfAborted();
      const abort = (): void => this.cancel(id);
      const over = new AbortController();
      const settle = (): void => {
        over.abort(); // a running upload is aborted
        if (blob) this.bulk.release(id);
        this.waiting.delete(id);
        signal?.removeEventListener("abort", abort);
      };
      this.waiting.set(id, {
        resolve: (result) => (settle(), resolve(result)),
        reject: (error) => (settle(), reject(error)),
        onprogress,
      });
      signal?.addEventListener("abort", abort);
      if (blob) void this.postBulk(id, message, blob, over.signal, onprogress);
      else this.post("ui", message, over.signal);
    });
  }

  /** Send a message of the page's tools; an answer to a finished call is dropped here. */
  sendWebmcp(message: JsonObject): void {
    const id = idOf(message);
    if (id !== null && !("method" in message)) this.serving.delete(id);
    this.post("webmcp", message);
  }

  /** Attest that a person acted in the view at most `age` milliseconds ago. */
  gesture(age: number): void {
    this.wire.send({ type: "gesture", view: this.id, age });
  }

  /** Report that the person looks at this view. */
  focus(): void {
    this.wire.send({ type: "focus", view: this.id });
  }

  /** Close the view; its calls in flight fail. */
  close(reason: string): void {
    this.wire.send({ type: "close", view: this.id, reason });
    this.failAll("the view is closed");
  }

  /** Bridge: a message of the gateway arrived. */
  async receive(channel: Channel, named: JsonObject): Promise<void> {
    const body = bodyNamed(named);
    const bytes = channel === "ui" ? bytesReference(named) : null;
    // A complete message is not delayed: an answer must not overtake its call.
    const message =
      body !== null ? await this.withDownloadedBody(named, body) : bytes !== null ? await this.withDownloadedBytes(named, bytes) : named;
    if (channel === "webmcp") this.receiveWebmcp(message);
    else this.receiveUi(message);
  }

  /** Bridge: the connection is lost, and every call with it. */
  onDisconnect(): void {
    this.failAll("connection-lost");
    for (const requestId of this.serving) {
      const params = { requestId, reason: "connection-lost" };
      this.events.webmcp({ jsonrpc: "2.0", method: "notifications/cancelled", params });
    }
    this.serving.clear();
  }

  /** Bridge: the gateway closed the view. */
  receiveClose(reason: string): void {
    this.onDisconnect();
    this.events.closed(reason);
  }

  /** Bridge: the gateway does not know the view any more. */
  loseConnection(): void {
    this.onDisconnect();
    this.events.lost();
  }

  private receiveUi(message: JsonObject): void {
    const read = readMessage(message);
    if (read.kind === "answer") {
      this.settle(read.id, message);
    } else if (read.kind === "call") {
      this.post("ui", { jsonrpc: "2.0", id: read.id, result: {} }); // ping, the only call that may arrive
    } else if (read.method === "notifications/progress") {
      const params = message["params"] as JsonObject | undefined;
      const token = params?.["progressToken"];
      if (params && typeof token === "string") this.waiting.get(token)?.onprogress?.(params);
    } else {
      this.events.notification(message);
    }
  }

  private receiveWebmcp(message: JsonObject): void {
    const read = readMessage(message);
    if (read.kind === "call") this.serving.add(read.id);
    if (read.kind === "notice" && read.cancels !== null) this.serving.delete(read.cancels);
    this.events.webmcp(message);
  }

  private settle(id: Id | null, message: JsonObject): void {
    const waiting = id === null ? undefined : this.waiting.get(id);
    const error = message["error"] as { code: number; message: string; data?: unknown } | undefined;
    if (error) waiting?.reject(new BridgeError(error.code, error.message, error.data));
    else waiting?.resolve(message["result"] as JsonObject);
  }

  private cancel(id: Id): void {
    const waiting = this.waiting.get(id);
    if (!waiting) return;
    const params = { requestId: id, reason: "aborted" };
    this.wire.send(this.frame("ui", { jsonrpc: "2.0", method: "notifications/cancelled", params }));
    waiting.reject(new DOMException("aborted", "AbortError")); // its caller has received the signal's own reason
  }

  private post(channel: Channel, message: JsonObject, signal?: AbortSignal): void {
    try {
      if (isLarge(message)) void this.postLarge(channel, message, signal);
      else this.wire.send(this.frame(channel, message));
    } catch (error) {
      this.failUnsent(channel, message, String(error)); // structured clones contain values that JSON does not have
    }
  }

  /** Send a call whose request body is sent as bytes by HTTP; other messages overtake it. */
  private async postBulk(
    id: Id,
    message: JsonObject,
    blob: Blob,
    signal: AbortSignal,
    onprogress: CallOptions["onprogress"],
  ): Promise<void> {
    const { connection } = this.wire;
    const sent = onprogress && ((progress: number) => onprogress({ progress, total: blob.size }));
    try {
      const $bytes = await this.bulk.put(id, blob, signal, sent);
      if (signal.aborted) return;
      if (this.wire.connection !== connection) return this.failUnsent("ui", message, "connection-lost");
      this.wire.send(this.frame("ui", { ...message, params: { ...(message["params"] as JsonObject), $bytes } }));
    } catch (error) {
      this.failUnsent("ui", message, unsentMessage(error));
    }
  }

  /** Send a message whose body is sent by HTTP; other messages overtake it. */
  private async postLarge(channel: Channel, whole: JsonObject, signal?: AbortSignal): Promise<void> {
    const { connection } = this.wire;
    const body = randomId();
    const { message, text } = splitBody(whole, body);
    try {
      await this.wire[channel === "ui" ? "uiHttp" : "http"].putBody(body, text, signal);
    } catch (error) {
      this.failUnsent(channel, whole, unsentMessage(error));
      return;
    }
    if (signal?.aborted) return;
    if (this.wire.connection === connection) this.wire.send(this.frame(channel, message));
    else this.failUnsent(channel, whole, "connection-lost");
  }

  /** Fail a large call here; replace a large answer by a failure, so that its caller is informed. */
  private failUnsent(channel: Channel, message: JsonObject, text: string): void {
    const id = idOf(message);
    if (id === null) return;
    if ("method" in message) return this.settle(id, failure(id, CONNECTION_LOST, text));
    const content = [{ type: "text", text: `The tool has run, but its answer was not taken: ${text}` }];
    this.wire.send(this.frame(channel, { jsonrpc: "2.0", id, result: { isError: true, content } }));
  }

  private async withDownloadedBytes(named: JsonObject, bytes: string): Promise<JsonObject> {
    try {
      return withBytes(named, await this.wire.http.takeBytes(bytes));
    } catch {
      return failure(idOf(named) ?? "", CONNECTION_LOST, "the body of the answer could not be taken");
    }
  }

  private async withDownloadedBody(named: JsonObject, body: string): Promise<JsonObject> {
    try {
      return joinBody(named, await this.wire.http.takeBody(body));
    } catch {
      const id = idOf(named);
      if (id === null || "method" in named) throw new BridgeError(CONNECTION_LOST, "a body could not be taken");
      return failure(id, CONNECTION_LOST, "the body of the answer could not be taken");
    }
  }

  private failAll(text: string): void {
    for (const waiting of [...this.waiting.values()]) waiting.reject(new BridgeError(CONNECTION_LOST, text));
  }

  private frame(channel: Channel, message: JsonObject): Frame {
    return { type: "message", view: this.id, channel, message };
  }
}

function unsentMessage(error: unknown): string {
  return `the body was not handed over: ${error instanceof Error ? error.message : String(error)}`;
}

function withProgressToken(params: JsonObject, token: string): JsonObject {
  const meta = params["_meta"];
  return { ...params, _meta: { ...(typeof meta === "object" ? meta : {}), progressToken: token } };
}
