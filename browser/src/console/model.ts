/** The page's model: an MCP client, protocol 2026-07-28, each request a separate POST. */
import { isObject, text } from "./json";
import { paramHeaders, headerValue } from "./mcp-headers";
import { events } from "./sse";
import type { Json, JsonObject } from "./types";

const VERSION = "2026-07-28";

export interface ToolResult {
  isError: boolean;
  /** The text blocks of the result, in order. */
  texts: string[];
  structured: Json | undefined;
}

export interface ListedTool {
  name: string;
  description: string;
  inputSchema: JsonObject;
}

export interface CallOptions {
  signal?: AbortSignal;
  schema?: JsonObject;
}

/** The part of the model client that a scripted model needs. */
export interface ModelClient {
  listTools(signal?: AbortSignal): Promise<ListedTool[]>;
  callTool(name: string, args: JsonObject, options?: CallOptions): Promise<ToolResult>;
}

/** A JSON-RPC error, or an invalid answer. */
class ModelError extends Error {
  readonly code: number;

  constructor(code: number, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "ModelError";
    this.code = code;
  }
}

export class Model implements ModelClient {
  private readonly url: string;
  private readonly version: string;
  private readonly fetch: typeof fetch;
  private next = 1;

  /** `url` is the MCP endpoint of one app; `version` is the console's, sent to the server. */
  constructor(url: string, version: string, fetcher: typeof fetch = (input, init) => fetch(input, init)) {
    this.url = url;
    this.version = version;
    this.fetch = fetcher;
  }

  async listTools(signal?: AbortSignal): Promise<ListedTool[]> {
    const tools: ListedTool[] = [];
    let cursor: string | undefined;
    do {
      const result = await this.request("tools/list", cursor ? { cursor } : {}, {}, signal);
      tools.push(...readTools(result["tools"]));
      cursor = text(result["nextCursor"]);
    } while (cursor);
    return tools;
  }

  async callTool(name: string, args: JsonObject, options: CallOptions = {}): Promise<ToolResult> {
    const headers = { "mcp-name": headerValue(name), ...paramHeaders(options.schema, args) };
    const params: JsonObject = { name, arguments: args };
    for (;;) {
      const result = await this.request("tools/call", params, headers, options.signal);
      if (result["resultType"] !== "input_required") return toolResult(result);
      // This client declares no elicitation, so the server may only request a retry.
      if (isObject(result["inputRequests"]))
        throw new ModelError(0, "The tool asks for input that this model has not.");
      params["requestState"] = result["requestState"] ?? null;
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  }

  private async request(
    method: string,
    params: JsonObject,
    headers: Record<string, string>,
    signal: AbortSignal | undefined,
  ): Promise<JsonObject> {
    const id = this.next++;
    const body = JSON.stringify({ jsonrpc: "2.0", id, method, params: { ...params, _meta: this.meta() } });
    const response = await this.fetch(this.url, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
        "mcp-protocol-version": VERSION,
        "mcp-method": method,
        ...headers,
      },
      body,
      cache: "no-store",
      signal: signal ?? null,
    }).catch((cause: unknown) => {
      if (signal?.aborted) throw cause;
      throw new ModelError(0, "The gateway does not answer.", { cause });
    });
    return unwrap(await message(response, id), response.status);
  }

  private meta(): JsonObject {
    return {
      "io.modelcontextprotocol/protocolVersion": VERSION,
      "io.modelcontextprotocol/clientInfo": { name: "webmcp-gateway-console", version: this.version },
      "io.modelcontextprotocol/clientCapabilities": {},
    };
  }
}

/** The JSON-RPC message that answers `id`, from a JSON body or an event stream. */
async function message(response: Response, id: number): Promise<unknown> {
  if (!response.headers.get("content-type")?.startsWith("text/event-stream")) {
    return response.json().catch(() => undefined);
  }
  for await (const event of events(response)) {
    const value: unknown = JSON.parse(event.data);
    if (isObject(value) && value["id"] === id) return value;
  }
  throw new ModelError(0, "The connection ended before the answer came.");
}

function unwrap(answer: unknown, status: number): JsonObject {
  if (isObject(answer)) {
    const { result, error } = answer;
    if (isObject(result)) return result;
    if (isObject(error)) throw new ModelError(Number(error["code"]), String(error["message"]));
    const said = text(answer["detail"]) ?? text(answer["title"]);
    if (said) throw new ModelError(status, said);
  }
  throw new ModelError(status, `The gateway answered ${status} without a result.`);
}

function readTools(tools: Json | undefined): ListedTool[] {
  return (Array.isArray(tools) ? tools : []).filter(isObject).map((tool) => ({
    name: String(tool["name"]),
    description: text(tool["description"]) ?? "",
    inputSchema: isObject(tool["inputSchema"]) ? tool["inputSchema"] : {},
  }));
}

function toolResult(result: JsonObject): ToolResult {
  const blocks = Array.isArray(result["content"]) ? result["content"].filter(isObject) : [];
  return {
    isError: result["isError"] === true,
    texts: blocks.map((block) => text(block["text"]) ?? `[${String(block["type"])}]`),
    structured: result["structuredContent"],
  };
}
