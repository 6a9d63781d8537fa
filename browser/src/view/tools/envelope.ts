/** The webmcp channel: an MCP server in the envelope of mcp-b's iframe transport, which announces itself once, and answers. */

import {
  answer, failure, INVALID_REQUEST, isMessage, isNotification, isObject, isRequest, METHOD_NOT_FOUND, type Request,
} from "../host/json-rpc";
import { createToolChannel } from "./tool-channel";
import type { Registry } from "./registry";

const CHANNEL = "mcp-iframe";
const LATEST = "2025-11-25";
const VERSIONS = [LATEST, "2025-06-18", "2025-03-26", "2024-11-05"];

export type Direction = "client-to-server" | "server-to-client";

export function isEnvelope(value: unknown): value is { direction: Direction; payload: unknown } {
  return isObject(value) && value["channel"] === CHANNEL && value["type"] === "mcp";
}

export interface Envelope {
  /** `port` may come with the readiness check: the answer and all later messages are sent there. */
  receive(value: { direction: Direction; payload: unknown }, port?: MessagePort): void;
  /** Announces the server once; readiness checks are answered from now on. */
  announce(): void;
  /** The page is unloaded. */
  abortCalls(): void;
  /** Whether the host has begun a session. */
  isInUse(): boolean;
}

interface EnvelopeDependencies {
  /** Called at `initialize`. */
  onFirstRequest(): void;
  app: string;
  send(envelope: { channel: string; type: "mcp"; direction: Direction; payload: unknown }): void;
  /** Valid only after `whenSettled`. */
  isOffered(tool: string): boolean;
  whenSettled(): Promise<void>;
  beginCall(): () => void;
}

export function createEnvelope(registry: Registry, { app, send, isOffered, whenSettled, beginCall, onFirstRequest }: EnvelopeDependencies): Envelope {
  let ready = false;
  let session: "none" | "begun" | "open" = "none";
  let readyPort: MessagePort | undefined;
  function post(payload: unknown): void {
    const message = { channel: CHANNEL, type: "mcp", direction: "server-to-client", payload } as const;
    if (readyPort) readyPort.postMessage(message);
    else send(message);
  }
  const tools = createToolChannel(registry, { send: post, isOffered, whenSettled, beginCall });
  registry.onChange(() => session === "open" && tools.notifyChange());

  function begin({ id, params }: Request): void {
    tools.reset();
    session = "begun";
    onFirstRequest();
    const wanted = String(params?.["protocolVersion"]);
    post(
      answer(id, {
        protocolVersion: VERSIONS.includes(wanted) ? wanted : LATEST,
        capabilities: { tools: { listChanged: true } },
        serverInfo: { name: app, version: "1" },
      }),
    );
  }

  function respond(request: Request): void {
    if (request.method === "initialize") return begin(request);
    if (request.method === "ping") return post(answer(request.id, {}));
    if (session === "none") return post(failure(request.id, INVALID_REQUEST, "initialize comes first"));
    if (request.method === "tools/list" || request.method === "tools/call") return tools.receive(request);
    post(failure(request.id, METHOD_NOT_FOUND, `Method not found: ${request.method}`));
  }

  const receive: Envelope["receive"] = ({ direction, payload }, port) => {
    if (direction !== "client-to-server") return;
    if (payload === "mcp-check-ready") {
      readyPort = port;
      if (readyPort) readyPort.onmessage = ({ data }) => receive(Object(data));
      if (ready) post("mcp-server-ready");
      return;
    }
    if (!ready || !isMessage(payload)) return;
    if (isRequest(payload)) respond(payload);
    else if (isNotification(payload) && payload.method === "notifications/initialized" && session === "begun") session = "open";
    else if (isNotification(payload) && payload.method === "notifications/cancelled") {
      tools.cancel(payload.params?.["requestId"], payload.params?.["reason"]);
    }
  };

  return {
    isInUse: () => session !== "none",
    receive,
    abortCalls: tools.abortCalls,
    announce() {
      if (!ready) post("mcp-server-ready");
      ready = true;
    },
  };
}
