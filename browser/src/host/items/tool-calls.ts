/** Tool calls as items: what all adapters share, whichever stream the calls arrive in. */
import type { CallToolResult } from "@modelcontextprotocol/client";
import { isRecord, type McpAppItem } from "./item";
import { parsePartialObject } from "./partial-json";

/** A tool as `tools/list` of an MCP server describes it. */
export interface McpTool {
  name: string;
  title?: string | undefined;
  annotations?: { title?: string | undefined } | undefined;
  _meta?: { [key: string]: unknown } | undefined;
}

export interface AdapterOptions {
  /** The model's tools: those with `_meta.ui.resourceUri` have an app. */
  tools?: readonly McpTool[] | undefined;
  /** Fields of every item, or of the items of one tool: `upstream`, `display_mode`, `fallback_text` and so on. */
  item?: Partial<McpAppItem> | ((toolName: string) => Partial<McpAppItem>) | undefined;
}

/** Makes items of a stream, or of stored messages; every adapter is one. */
export interface ItemSource {
  /** Take an event, a part or a message; returns the items that it made or changed. Others are ignored. */
  receive(value: unknown): readonly McpAppItem[];
  /** The run was stopped: the calls without a result are cancelled. Returns their items. */
  cancel(reason?: string): readonly McpAppItem[];
  /** All items, in the order of their calls. */
  readonly items: readonly McpAppItem[];
}

/** The app of a tool call, as far as the stream names it. */
export interface CallApp {
  resourceUri?: string | undefined;
  title?: string | undefined;
}

interface Call {
  readonly id: string;
  app: CallApp;
  name: string;
  /** The arguments as they arrive. */
  text: string;
  /** The length of the text that `partial` was read from. */
  read: number;
  partial: Record<string, unknown> | undefined;
  input: Record<string, unknown> | undefined;
  result: CallToolResult | undefined;
  cancelled: string | undefined;
}

const STOPPED = "The call was stopped.";

/** The calls of one conversation. */
export class ToolCallTable {
  private readonly calls = new Map<string, Call>();
  private readonly options: AdapterOptions;

  constructor(options: AdapterOptions) {
    this.options = options;
  }

  get items(): McpAppItem[] {
    return [...this.calls.keys()].flatMap((id) => this.itemsOf(id));
  }

  /** The item of a call; none if its tool has no app. */
  itemsOf(id: string): McpAppItem[] {
    const call = this.calls.get(id);
    const item = call && this.itemOf(call);
    return item ? [item] : [];
  }

  has(id: string): boolean {
    return this.calls.has(id);
  }

  /** A call of the tool `name`, or the next news of it. */
  begin(id: string, name?: string, app: CallApp = {}): void {
    const call = this.find(id);
    if (name) call.name = name;
    // Later states of a part may lack what the first one had.
    call.app = { resourceUri: app.resourceUri ?? call.app.resourceUri, title: app.title ?? call.app.title };
  }

  /** The next piece of the arguments. */
  append(id: string, text: string): void {
    const call = this.find(id);
    if (call.input) return;
    call.text += text;
    // Reading all of it for each piece would take time with the square of its length.
    if (call.text.length - call.read <= call.text.length >> 6) return;
    call.read = call.text.length;
    call.partial = parsePartialObject(call.text) ?? call.partial;
  }

  setPartial(id: string, input: unknown): void {
    const call = this.find(id);
    if (isRecord(input) && !call.input) call.partial = input;
  }

  /** The arguments are complete: those that arrived, or `input`, an object or its JSON. */
  complete(id: string, input?: unknown): void {
    const call = this.find(id);
    if (call.input) return;
    call.input = argumentsOf(input ?? call.text);
    call.partial = undefined;
    call.text = "";
  }

  finish(id: string, output: unknown, isError = false): void {
    const call = this.find(id);
    this.complete(id);
    call.result = toToolResult(output, isError);
    call.cancelled = undefined;
  }

  cancel(id: string, reason = STOPPED): void {
    const call = this.find(id);
    if (!call.result) call.cancelled ??= reason;
  }

  cancelOpen(reason?: string): McpAppItem[] {
    const open = [...this.calls.values()].filter(({ result, cancelled }) => !result && cancelled === undefined);
    for (const { id } of open) this.cancel(id, reason);
    return open.flatMap(({ id }) => this.itemsOf(id));
  }

  private find(id: string): Call {
    let call = this.calls.get(id);
    if (!call) {
      call = { id, app: {}, name: "", text: "", read: 0, partial: undefined, input: undefined, result: undefined, cancelled: undefined };
      this.calls.set(id, call);
    }
    return call;
  }

  private itemOf(call: Call): McpAppItem | null {
    const { tools = [], item } = this.options;
    const tool = tools.find(({ name }) => name === call.name);
    const own = (typeof item === "function" ? item(call.name) : item) ?? {};
    const uri = call.app.resourceUri ?? resourceUriOf(tool) ?? resourceUriOf(call.result);
    if (uri === undefined && own.app === undefined && own.resource_html === undefined) return null;
    return compact({
      response_type: "mcp_app",
      title: call.app.title ?? tool?.title ?? tool?.annotations?.title ?? (call.name || "App"),
      mcp_app_id: call.id,
      fallback_text: textOf(call.result),
      resource_uri: uri,
      tool_name: call.name || undefined,
      tool_call_id: call.id,
      tool_input: call.input,
      tool_input_partial: call.partial,
      tool_result: call.result,
      tool_cancelled: call.cancelled,
      ...own,
    });
  }
}

/** The address of the app in `_meta` of a tool or of a result; the flat key is the older form. */
export function resourceUriOf(said: { _meta?: { [key: string]: unknown } | undefined } | undefined): string | undefined {
  const meta = said?._meta;
  const ui = meta?.["ui"];
  const uri = (isRecord(ui) ? ui["resourceUri"] : undefined) ?? meta?.["ui/resourceUri"];
  return typeof uri === "string" ? uri : undefined;
}

/** The output of a tool as a result of MCP: one already, JSON of one, text, parts of text, or anything else. */
export function toToolResult(output: unknown, isError = false): CallToolResult {
  const value = typeof output === "string" ? (parse(output) ?? output) : output;
  const failed = isError && { isError: true };
  if (isRecord(value) && Array.isArray(value["content"])) return { ...(value as CallToolResult), ...failed };
  if (isRecord(value) && isRecord(value["structuredContent"])) return { content: [], ...value, ...failed } as CallToolResult;
  if (Array.isArray(value) && value.length && value.every(isTextPart)) {
    return { content: value.map(({ text }) => ({ type: "text", text })), ...failed };
  }
  const text = typeof output === "string" ? output : (JSON.stringify(output) ?? "");
  return { content: text ? [{ type: "text", text }] : [], ...(isRecord(value) && { structuredContent: value }), ...failed };
}

/** Text parts of a message: `text` in Chat Completions, `input_text` and `output_text` in Responses. */
function isTextPart(part: unknown): part is { text: string } {
  return isRecord(part) && typeof part["text"] === "string" && /^(input_|output_)?text$/.test(String(part["type"]));
}

function textOf(result: CallToolResult | undefined): string | undefined {
  const texts = result?.content?.flatMap((block) => (block.type === "text" ? [block.text] : []));
  return texts?.length ? texts.join("\n") : undefined;
}

function argumentsOf(input: unknown): Record<string, unknown> {
  const value = typeof input === "string" ? parse(input) : input;
  return isRecord(value) ? value : {};
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

/** Without the fields that are undefined: an item is stored as JSON. */
function compact(item: McpAppItem): McpAppItem {
  return Object.fromEntries(Object.entries(item).filter(([, value]) => value !== undefined)) as unknown as McpAppItem;
}
