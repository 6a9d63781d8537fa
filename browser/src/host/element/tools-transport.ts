/** A page's tools for a standard MCP client: a small MCP server in front of them. */
import type { JSONRPCMessage, Transport } from "@modelcontextprotocol/client";
import { failure, isObject, readMessage, type Id, type JsonObject } from "../../mux";
import { attempt } from "../../view/attempt";
import { BridgeError } from "../bridge-view";
import { NO_METHOD } from "./handlers";

const VERSIONS = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"] as const;

/** The tools of a page. */
export interface PageTools {
  readonly name: string;
  request(method: "tools/list" | "tools/call", params: JsonObject, options: { signal: AbortSignal; onprogress?: (params: JsonObject) => void }): Promise<JsonObject>;
  /** Call `listener` after each change of the list, until `signal` aborts. */
  watch(listener: () => void, signal: AbortSignal): void;
}

export class PageToolsTransport implements Transport {
  onmessage?: Transport["onmessage"];
  onclose?: () => void;
  onerror?: (error: Error) => void;
  private readonly tools: PageTools;
  private readonly running = new Map<Id, AbortController>();
  private readonly closing = new AbortController();

  constructor(tools: PageTools) {
    this.tools = tools;
  }

  start(): Promise<void> {
    this.tools.watch(() => this.post({ jsonrpc: "2.0", method: "notifications/tools/list_changed" }), this.closing.signal);
    return Promise.resolve();
  }

  /** A message of the client. */
  send(given: JSONRPCMessage): Promise<void> {
    const message = given as unknown as JsonObject;
    const read = attempt(() => readMessage(message));
    const params = isObject(message["params"]) ? message["params"] : {};
    if (read?.kind === "notice" && read.cancels !== null) this.running.get(read.cancels)?.abort();
    if (read?.kind !== "call" || this.closing.signal.aborted) return Promise.resolve();
    // The client receives no answer before `send` has returned.
    queueMicrotask(() => void this.answer(read.id, read.method, params));
    return Promise.resolve();
  }

  close(): Promise<void> {
    if (this.closing.signal.aborted) return Promise.resolve();
    this.closing.abort();
    for (const call of this.running.values()) call.abort();
    this.onclose?.();
    return Promise.resolve();
  }

  private async answer(id: Id, method: string, params: JsonObject): Promise<void> {
    const call = new AbortController();
    this.running.set(id, call);
    try {
      const result = await this.result(method, params, call.signal);
      if (!call.signal.aborted) this.post({ jsonrpc: "2.0", id, result });
    } catch (error) {
      const code = (error as { code?: unknown } | null)?.code;
      const text = error instanceof Error ? error.message : String(error);
      if (!call.signal.aborted) this.post(failure(id, Number.isInteger(code) ? (code as number) : -32603, text));
    } finally {
      this.running.delete(id);
    }
  }

  private async result(method: string, params: JsonObject, signal: AbortSignal): Promise<JsonObject> {
    switch (method) {
      case "initialize": {
        const protocolVersion = VERSIONS.find((one) => one === params["protocolVersion"]) ?? VERSIONS[0];
        return { protocolVersion, capabilities: { tools: { listChanged: true } }, serverInfo: { name: this.tools.name, version: "1" } };
      }
      case "ping":
        return {};
      case "tools/list":
      case "tools/call":
        return this.tools.request(method, params, { signal, ...this.progress(params) });
      default:
        throw new BridgeError(NO_METHOD, `Method not found: ${method}`);
    }
  }

  private progress(params: JsonObject): { onprogress?: (params: JsonObject) => void } {
    const meta = params["_meta"];
    const progressToken = isObject(meta) ? meta["progressToken"] : undefined;
    if (progressToken === undefined) return {};
    return { onprogress: (progress) => this.post({ jsonrpc: "2.0", method: "notifications/progress", params: { ...progress, progressToken } }) };
  }

  private post(message: JsonObject): void {
    if (!this.closing.signal.aborted) this.onmessage?.(message as unknown as JSONRPCMessage);
  }
}

