/** A view that the host page answers itself, by its handlers: there is no gateway. */
import type { McpUiResourceMeta } from "@modelcontextprotocol/ext-apps/app-bridge";
import { failure, idOf, isObject, type Id, type JsonObject } from "../../mux";
import { rejectOnAbort } from "../../view/abort";
import { BridgeError, type CallOptions, type ViewEvents } from "../bridge-view";
import { randomId } from "../gateway-http";
import type { ServerMethod } from "../page-requests";
import type { AppView } from "../view";

/** JSON-RPC 2.0: the method does not exist. */
export const NO_METHOD = -32601;

/** For a handler: aborts when the page cancels its request, or ends. */
export interface HandlerContext {
  signal: AbortSignal;
}

type Handler<Params> = (params: Params, context: HandlerContext) => unknown;

/** The host's own answers; each is optional, and a missing one is a missing capability. */
export interface Handlers {
  onCallTool?: Handler<{ name: string; arguments?: Record<string, unknown>; _meta?: Record<string, unknown> }> | null | undefined;
  onReadResource?: Handler<{ uri: string }> | null | undefined;
  onListResources?: Handler<{ cursor?: string }> | null | undefined;
  onListResourceTemplates?: Handler<{ cursor?: string }> | null | undefined;
  onListPrompts?: Handler<{ cursor?: string }> | null | undefined;
}

/** The handler of each method. */
export const HANDLER_OF: ReadonlyMap<ServerMethod, keyof Handlers> = new Map([
  ["tools/call", "onCallTool"],
  ["resources/read", "onReadResource"],
  ["resources/list", "onListResources"],
  ["resources/templates/list", "onListResourceTemplates"],
  ["prompts/list", "onListPrompts"],
]);

/** The methods that the host answers. */
export function handledMethods(handlers: Handlers): Set<ServerMethod> {
  return new Set([...HANDLER_OF].filter(([, name]) => typeof handlers[name] === "function").map(([method]) => method));
}

/** The answer of a handler as JSON. Rejects if it throws, or answers with anything else than an object. */
export async function callHandler(handlers: Handlers, method: ServerMethod, params: JsonObject, signal: AbortSignal): Promise<JsonObject> {
  const name = HANDLER_OF.get(method);
  const handler = name && (handlers[name] as Handler<JsonObject> | null | undefined);
  if (typeof handler !== "function") throw new BridgeError(NO_METHOD, `The host does not answer ${method}.`);
  const answer = await rejectOnAbort(Promise.resolve(handler.call(handlers, params, { signal })), signal);
  return plainResult(answer, String(name));
}

/** A result as JSON. Throws BridgeError for anything else than an object, which names `from` and `what` of it. */
export function plainResult(answer: unknown, from: string, what = "its answer"): JsonObject {
  let text: string | undefined;
  try {
    text = JSON.stringify(answer);
  } catch (error) {
    throw new BridgeError(-32603, `${from}: ${what} is not JSON: ${error instanceof Error ? error.message.split("\n")[0] : String(error)}`);
  }
  const plain: unknown = text === undefined ? undefined : JSON.parse(text);
  if (!isObject(plain)) throw new BridgeError(-32603, `${from}: ${what} is ${what === "it" ? "not a JSON object" : "no MCP result, which is an object"}`);
  return plain;
}

/** The page to show: HTML that the host has, or else `onReadResource` of its address. */
export interface GivenPage {
  uri: string;
  html: string | undefined;
  meta: McpUiResourceMeta | undefined;
}

const ENDED = "The app was closed.";

/** The view; it is an MCP client of a page that offers its tools in mcp-b's envelope. */
export class HandlerView implements AppView {
  readonly id = randomId();
  readonly resource: string;
  private readonly page: GivenPage;
  private readonly handlers: Handlers;
  private readonly events: ViewEvents;
  private readonly ending = new AbortController();
  private readonly waiting = new Map<Id, { resolve(result: JsonObject): void; reject(error: Error): void }>();
  private session: Promise<unknown> | undefined;
  private count = 0;

  constructor(page: GivenPage, handlers: Handlers, events: ViewEvents) {
    this.resource = page.uri;
    this.page = page;
    this.handlers = handlers;
    this.events = events;
  }

  async call(method: string, params: JsonObject, { signal }: CallOptions = {}): Promise<JsonObject> {
    const whole = signal ? AbortSignal.any([signal, this.ending.signal]) : this.ending.signal;
    const { html, meta, uri } = this.page;
    const isOwn = method === "resources/read" && params["uri"] === uri && isObject(params["_meta"]) && "webmcp-gateway/show" in params["_meta"];
    if (isOwn && html !== undefined) return { contents: [{ uri, text: html, ...(meta && { _meta: { ui: meta } }) }] } as unknown as JsonObject;
    if (!isOwn) return callHandler(this.handlers, method as ServerMethod, params, whole);
    const { _meta: _, ...given } = params;
    return callHandler(this.handlers, "resources/read", given, whole);
  }

  /** A request to the page's tools in the envelope; they are initialized first. */
  async requestTools(method: string, params: JsonObject, signal?: AbortSignal): Promise<JsonObject> {
    const clientInfo = { name: "webmcp-gateway-host", version: "1" };
    this.session ??= this.send("initialize", { protocolVersion: "2025-11-25", capabilities: {}, clientInfo }).then(() =>
      this.events.webmcp({ jsonrpc: "2.0", method: "notifications/initialized" }),
    );
    await rejectOnAbort(this.session, signal);
    return this.send(method, params, signal);
  }

  private send(method: string, params: JsonObject, signal?: AbortSignal): Promise<JsonObject> {
    const id = `host-${(this.count += 1)}`;
    const cancel = (): void => {
      this.waiting.delete(id);
      this.events.webmcp({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: id, reason: "aborted" } });
    };
    signal?.addEventListener("abort", cancel);
    const answer = new Promise<JsonObject>((resolve, reject) => this.waiting.set(id, { resolve, reject }));
    this.events.webmcp({ jsonrpc: "2.0", id, method, params });
    return rejectOnAbort(answer, signal).finally(() => signal?.removeEventListener("abort", cancel));
  }

  /** A message of the page's tools. */
  sendWebmcp(message: JsonObject): void {
    const id = idOf(message);
    if ("method" in message) {
      if (id !== null) this.events.webmcp(message["method"] === "ping" ? { jsonrpc: "2.0", id, result: {} } : failure(id, NO_METHOD, "Method not found"));
      return;
    }
    const waiting = id === null ? undefined : this.waiting.get(id);
    if (id !== null) this.waiting.delete(id);
    const error = message["error"] as { code: number; message: string; data?: unknown } | undefined;
    if (error) waiting?.reject(new BridgeError(error.code, error.message, error.data));
    else waiting?.resolve(message["result"] as JsonObject);
  }

  /** Gestures and the focus are reported to a gateway alone. */
  gesture(): void {}
  focus(): void {}

  close(): void {
    this.ending.abort(new BridgeError(-32000, ENDED));
    for (const { reject } of this.waiting.values()) reject(new BridgeError(-32000, ENDED));
    this.waiting.clear();
  }
}
