/** Classifies a message of the sandbox proxy, or at a port of the page: the ui protocol, the webmcp envelope, or the proxy's own. */
import { BLOCKED } from "./first-script";
import { BAD_MESSAGE, failure, has, idOf, INTERNAL, isObject, MuxError, readMessage } from "../mux";
import type { Channel, JsonObject } from "../mux";
import { refusal } from "../view/host/json-rpc";

export type PageMessage =
  /** Bare JSON-RPC of MCP Apps. */
  | { kind: "ui"; message: JsonObject; initialize: boolean }
  /** MCP of the page's tools, or mcp-b's handshake. */
  | { kind: "webmcp"; payload: JsonObject | "mcp-server-ready" | "mcp-server-stopped" }
  /** The proxy: a person acted in the page at most `age` milliseconds ago. */
  | { kind: "gesture"; age: number }
  /** The proxy: it waits for the page. */
  | { kind: "proxy-ready"; message: JsonObject }
  /** The proxy: another document has replaced the page, or the page cannot be loaded from its origin. */
  | { kind: "left"; unreachable?: string }
  /** The proxy: the page reloads, and needs a new address. */
  | { kind: "document-wanted" }
  /** Our first script in a page: a violation of the content security policy. */
  | { kind: "blocked"; what: Blocked }
  /** A call that is no valid message, and the answer to it. */
  | { kind: "refused"; channel: Channel; answer: JsonObject }
  | { kind: "garbage" };

/** Features that the configuration of an MCP server may permit its app, by their names there. */
export type Blocked = "blob-workers" | "eval" | "wasm";

/** A function without code (HTML, `CreateDynamicFunction`): a library tests by it whether it may create code, and works without. */
const PROBE = /^\(?function anonymous\(\s*\) \{\s*\}\)?$/;
const CHANNEL = "mcp-iframe";
const GARBAGE: PageMessage = { kind: "garbage" };

/** Classify a message of the proxy's window. The proxy passes no `ui/notifications/sandbox-…` of its page. */
export function sortPageMessage(data: unknown): PageMessage {
  if (!isObject(data)) return GARBAGE;
  if (BLOCKED in data) return sortBlocked(data[BLOCKED]);
  return data["channel"] === CHANNEL ? sortEnvelope(data) : sortUi(data);
}

/** Classify a message at a port, which only the page's tools use. */
export function sortToolMessage(data: unknown): PageMessage {
  return isObject(data) && data["channel"] === CHANNEL ? sortEnvelope(data) : GARBAGE;
}

/** The envelope of a gateway's message to the page's tools. */
export function envelope(payload: JsonObject | "mcp-check-ready"): JsonObject {
  return { channel: CHANNEL, type: "mcp", direction: "client-to-server", payload };
}

function sortBlocked(said: unknown): PageMessage {
  const [directive, uri, sample = ""] = Array.isArray(said) ? said.map(String) : [];
  if (directive === "worker-src" && uri?.startsWith("blob")) return { kind: "blocked", what: "blob-workers" };
  if (uri === "eval" && PROBE.test(sample)) return GARBAGE;
  if (uri === "eval") return { kind: "blocked", what: "eval" };
  return uri === "wasm-eval" ? { kind: "blocked", what: "wasm" } : GARBAGE;
}

function sortEnvelope(data: JsonObject): PageMessage {
  const payload = data["payload"];
  if (data["type"] !== "mcp" || data["direction"] !== "server-to-client") return GARBAGE;
  if (payload === "mcp-server-ready" || payload === "mcp-server-stopped") return { kind: "webmcp", payload };
  if (!isObject(payload)) return GARBAGE;
  const fault = invalidReason(payload);
  if (fault === null) return { kind: "webmcp", payload };
  const id = idOf(payload);
  if (has(payload, "method") || id === null) return refuse("webmcp", payload, fault);
  // The model's call must not wait for another answer.
  return { kind: "webmcp", payload: failure(id, INTERNAL, `the page's answer is no message: ${fault}`) };
}

function sortUi(data: JsonObject): PageMessage {
  const refused = refusal(data);
  if (refused) return { kind: "refused", channel: "ui", answer: refused as unknown as JsonObject };
  const fault = invalidReason(data);
  if (fault !== null) return refuse("ui", data, fault);
  const wrong = wrongField(data);
  if (wrong !== null) return refuse("ui", data, wrong, INVALID_PARAMS);
  const method = data["method"];
  if (method === "ui/notifications/sandbox-gesture") return sortGesture(data);
  if (method === "ui/notifications/sandbox-page-left") return sortLeft(data);
  if (method === "ui/notifications/sandbox-document-wanted") return { kind: "document-wanted" };
  if (method === "ui/notifications/sandbox-proxy-ready") return { kind: "proxy-ready", message: data };
  if (typeof method === "string" && method.startsWith("ui/notifications/sandbox-")) return GARBAGE;
  return { kind: "ui", message: data, initialize: method === "ui/initialize" };
}

function sortLeft(data: JsonObject): PageMessage {
  const params = data["params"];
  const unreachable = isObject(params) ? params["unreachable"] : undefined;
  return typeof unreachable === "string" ? { kind: "left", unreachable } : { kind: "left" };
}

function sortGesture(data: JsonObject): PageMessage {
  const params = data["params"];
  const age = isObject(params) ? params["age"] : null;
  if (typeof age !== "number" || !(age >= 0)) return GARBAGE;
  return { kind: "gesture", age: Math.min(Math.ceil(age), 5000) };
}

/** The reason for which `message` is not valid; null if it is. */
function invalidReason(message: JsonObject): string | null {
  try {
    readMessage(message);
    return null;
  } catch (error) {
    if (error instanceof MuxError) return error.message;
    throw error;
  }
}

/** JSON-RPC 2.0. */
const INVALID_PARAMS = -32602;

type Kind = "text" | "object" | "list";
/** The parameters of a page's requests by method, those with `?` may be absent. The SDK answers a wrong one with its validator's text. */
const PARAMS: Readonly<Record<string, Readonly<Record<string, Kind | `${Kind}?`>>>> = {
  "tools/call": { name: "text", arguments: "object?" },
  "resources/read": { uri: "text" },
  "tools/list": { cursor: "text?" },
  "resources/list": { cursor: "text?" },
  "resources/templates/list": { cursor: "text?" },
  "prompts/list": { cursor: "text?" },
  "prompts/get": { name: "text", arguments: "object?" },
  "completion/complete": { ref: "object", argument: "object" },
  "ui/open-link": { url: "text" },
  "ui/message": { role: "text", content: "list" },
  "ui/update-model-context": { content: "list?", structuredContent: "object?" },
  "ui/download-file": { contents: "list" },
  "ui/request-display-mode": { mode: "text" },
};
const KINDS: Readonly<Record<Kind, [name: string, is: (value: unknown) => boolean]>> = {
  text: ["a string", (value) => typeof value === "string"],
  object: ["an object", isObject],
  list: ["an array", Array.isArray],
};

/** The error message for invalid parameters of a request, which names the field; null for valid ones. */
function wrongField({ id, method, params = {} }: JsonObject): string | null {
  if (id === undefined || typeof method !== "string" || !isObject(params)) return null;
  for (const [field, kind] of Object.entries(PARAMS[method] ?? {})) {
    const [name, is] = KINDS[kind.replace("?", "") as Kind];
    if (params[field] === undefined && kind.endsWith("?")) continue;
    if (!is(params[field])) return `${method}: \`${field}\` must be ${name}.`;
  }
  return null;
}

/** A message with this fault: a call is answered. */
function refuse(channel: Channel, { jsonrpc, id, method }: JsonObject, fault: string, code = BAD_MESSAGE): PageMessage {
  const isCall = jsonrpc === "2.0" && method !== undefined && (typeof id === "string" || typeof id === "number");
  return isCall ? { kind: "refused", channel, answer: failure(id, code, fault) } : GARBAGE;
}
