/** Items of OpenAI-style tool calls: Chat Completions and Responses, their streams and their stored messages. */
import { isRecord, type McpAppItem } from "./item";
import { ToolCallTable, type AdapterOptions, type ItemSource } from "./tool-calls";

type Fields = Record<string, unknown>;

/**
 * Takes chunks and events of streams, and messages and items as they are sent back to the model, in any order; `tools`
 * tells which tools have an app.
 */
export function toolCallItems(options: AdapterOptions = {}): ItemSource {
  const calls = new OpenAiCalls(options);
  return {
    receive: (value) => (isRecord(value) ? calls.receive(value) : []),
    cancel: (reason) => calls.table.cancelOpen(reason),
    get items() {
      return calls.table.items;
    },
  };
}

class OpenAiCalls {
  readonly table: ToolCallTable;
  /** The call of each choice and index of the current completion: only its first chunk has its id. */
  private readonly streamed = new Map<string, string>();
  /** The call of each item of the current response. */
  private readonly responded = new Map<string, string>();

  constructor(options: AdapterOptions) {
    this.table = new ToolCallTable(options);
  }

  receive(value: Fields): McpAppItem[] {
    const changed = new Set<string>();
    const { choices, role, type } = value;
    if (Array.isArray(choices)) for (const choice of choices) this.takeChoice(String(value["id"]), choice, changed);
    else if (role !== undefined && type !== "function_call_output") this.takeMessage(value, changed);
    else if (typeof type === "string" && type.startsWith("response.")) this.takeEvent(type, value, changed);
    else this.takeItem(value, changed, true);
    return [...changed].flatMap((id) => this.table.itemsOf(id));
  }

  /** A choice of a chunk (`delta`), or of a completion (`message`). */
  private takeChoice(completion: string, choice: unknown, changed: Set<string>): void {
    if (!isRecord(choice)) return;
    if (isRecord(choice["message"])) return this.takeMessage(choice["message"], changed);
    const delta = choice["delta"];
    const place = `${completion} ${String(choice["index"] ?? 0)}`;
    const parts = isRecord(delta) && Array.isArray(delta["tool_calls"]) ? delta["tool_calls"] : [];
    for (const part of parts.filter(isRecord)) {
      const key = `${place} ${String(part["index"] ?? 0)}`;
      if (typeof part["id"] === "string" && part["id"]) this.streamed.set(key, part["id"]);
      const id = this.streamed.get(key);
      const { name, arguments: text } = isRecord(part["function"]) ? part["function"] : {};
      if (id === undefined) continue;
      this.table.begin(id, typeof name === "string" ? name : undefined);
      if (typeof text === "string") this.table.append(id, text);
      changed.add(id);
    }
    if (typeof choice["finish_reason"] === "string") this.endChoice(`${place} `, changed);
  }

  private endChoice(place: string, changed: Set<string>): void {
    for (const [key, id] of this.streamed) {
      if (!key.startsWith(place)) continue;
      this.streamed.delete(key);
      this.table.complete(id);
      changed.add(id);
    }
  }

  private takeMessage(message: Fields, changed: Set<string>): void {
    const { role, tool_calls: calls, tool_call_id: answered, content } = message;
    if (role === "tool" && typeof answered === "string") {
      this.table.finish(answered, content);
      changed.add(answered);
    }
    for (const call of Array.isArray(calls) ? calls.filter(isRecord) : []) {
      const { name, arguments: text } = isRecord(call["function"]) ? call["function"] : {};
      if (typeof call["id"] !== "string" || typeof name !== "string") continue;
      this.table.begin(call["id"], name);
      this.table.complete(call["id"], text);
      changed.add(call["id"]);
    }
  }

  private takeEvent(type: string, event: Fields, changed: Set<string>): void {
    const { item, item_id: itemId, delta, arguments: text, response } = event;
    if (isRecord(item)) return this.takeItem(item, changed, type.endsWith(".done"));
    if (isRecord(response) && Array.isArray(response["output"])) {
      for (const one of response["output"].filter(isRecord)) this.takeItem(one, changed, true);
    }
    if (type === "response.failed" || type === "response.incomplete") {
      for (const { mcp_app_id: id } of this.table.cancelOpen()) changed.add(id);
    }
    const id = this.responded.get(String(itemId));
    if (id === undefined || !/^response\.(function_call|mcp_call)_arguments\./.test(type)) return;
    if (typeof delta === "string") this.table.append(id, delta);
    else this.table.complete(id, text);
    changed.add(id);
  }

  /** An item of a response, or of the input of the next one. */
  private takeItem(item: Fields, changed: Set<string>, complete: boolean): void {
    const { type, id: itemId, call_id: callId, name, arguments: text, output, error } = item;
    if (type === "function_call_output" && typeof callId === "string") {
      this.table.finish(callId, output);
      changed.add(callId);
    }
    if ((type !== "function_call" && type !== "mcp_call") || typeof name !== "string") return;
    const id = callId ?? itemId;
    if (typeof id !== "string") return;
    if (typeof itemId === "string") this.responded.set(itemId, id);
    this.table.begin(id, name);
    if (complete) this.table.complete(id, text);
    // A call that the model's server itself has made at an MCP server.
    if (type === "mcp_call" && error) this.table.finish(id, typeof error === "string" ? error : JSON.stringify(error), true);
    else if (type === "mcp_call" && typeof output === "string") this.table.finish(id, output);
    changed.add(id);
  }
}
