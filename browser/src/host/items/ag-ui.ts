/** Items of AG-UI: the activities `mcp-apps` of its middleware, and tool calls whose tools have an app. */
import { isRecord, type McpAppItem } from "./item";
import { applyPatch } from "./json-patch";
import { ToolCallTable, type AdapterOptions, type ItemSource } from "./tool-calls";

/** The `activityType` that AG-UI's middleware for MCP Apps writes. */
export const MCP_APPS_ACTIVITY = "mcp-apps";

type Fields = Record<string, unknown>;

/** Takes events of a run, and stored messages. */
export function activityItems(options: AdapterOptions = {}): ItemSource {
  const run = new AgUiRun(options);
  return {
    receive: (value) => (isRecord(value) ? run.receive(value) : []),
    cancel: (reason) => run.table.cancelOpen(reason),
    get items() {
      return run.table.items;
    },
  };
}

class AgUiRun {
  readonly table: ToolCallTable;
  /** The call that each activity shows. */
  private readonly shown = new Map<string, string>();
  private readonly contents = new Map<string, unknown>();
  /** The call that was answered last: the middleware sends its activity next. */
  private answered: string | null = null;
  /** The call that chunks without an id continue. */
  private chunked: string | null = null;

  constructor(options: AdapterOptions) {
    this.table = new ToolCallTable(options);
  }

  receive(value: Fields): McpAppItem[] {
    const { type } = value;
    if (Array.isArray(value["messages"])) return value["messages"].filter(isRecord).flatMap((one) => this.takeMessage(one));
    if (type === "RUN_ERROR") return this.table.cancelOpen(typeof value["message"] === "string" ? value["message"] : undefined);
    if (type === "RUN_FINISHED") return this.endRun(value["outcome"]);
    if (typeof type === "string" && type.startsWith("ACTIVITY_")) return this.takeActivity(type, value);
    if (typeof type === "string" && type.startsWith("TOOL_CALL_")) return this.takeCall(type, value);
    return typeof value["role"] === "string" ? this.takeMessage(value) : [];
  }

  /** A stored message: an activity, a call of the assistant, or its result. */
  private takeMessage(message: Fields): McpAppItem[] {
    const { role, id, toolCalls, toolCallId, content, error } = message;
    if (role === "activity" && message["activityType"] === MCP_APPS_ACTIVITY) return this.show(String(id), content);
    if (role === "tool" && typeof toolCallId === "string") return this.answer(toolCallId, error ?? content, !!error);
    return (Array.isArray(toolCalls) ? toolCalls.filter(isRecord) : []).flatMap(({ id: call, function: called }) => {
      if (typeof call !== "string" || !isRecord(called)) return [];
      this.table.begin(call, String(called["name"]));
      this.table.complete(call, called["arguments"]);
      return this.table.itemsOf(call);
    });
  }

  private takeCall(type: string, event: Fields): McpAppItem[] {
    const { toolCallName: name, delta, content } = event;
    const id = event["toolCallId"] ?? (type === "TOOL_CALL_CHUNK" ? this.chunked : null);
    if (typeof id !== "string") return [];
    if (type === "TOOL_CALL_RESULT") return this.answer(id, content, false);
    this.chunked = id;
    this.table.begin(id, typeof name === "string" ? name : undefined);
    if (typeof delta === "string") this.table.append(id, delta);
    if (type === "TOOL_CALL_END") this.table.complete(id);
    return this.table.itemsOf(id);
  }

  private answer(id: string, content: unknown, isError: boolean): McpAppItem[] {
    this.answered = id;
    this.table.finish(id, content, isError);
    return this.table.itemsOf(id);
  }

  private takeActivity(type: string, event: Fields): McpAppItem[] {
    const { messageId, activityType, content, patch, replace } = event;
    if (typeof messageId !== "string" || activityType !== MCP_APPS_ACTIVITY) return [];
    if (type === "ACTIVITY_DELTA" && Array.isArray(patch)) return this.change(messageId, patch);
    return type !== "ACTIVITY_SNAPSHOT" || (replace === false && this.contents.has(messageId)) ? [] : this.show(messageId, content);
  }

  /** A patch that does not fit changes nothing: the rest of the run must still be shown. */
  private change(activity: string, patch: readonly unknown[]): McpAppItem[] {
    try {
      return this.show(activity, applyPatch(this.contents.get(activity) ?? {}, patch));
    } catch (error) {
      console.warn(`the activity ${activity} was not changed:`, error);
      return [];
    }
  }

  /** The content of an activity, whole or so far. */
  private show(activity: string, content: unknown): McpAppItem[] {
    this.contents.set(activity, content);
    if (!isRecord(content)) return [];
    const { resourceUri, toolInput, result } = content;
    const call = this.callOf(activity);
    this.table.begin(call, undefined, typeof resourceUri === "string" ? { resourceUri } : {});
    if (isRecord(result)) {
      this.table.complete(call, toolInput ?? {});
      // It has what the text of the tool's answer lacks.
      this.table.finish(call, { content: [], ...result });
    } else this.table.setPartial(call, toolInput);
    return this.table.itemsOf(call);
  }

  /** The call that an activity shows; of a stored activity, which names none, its own id. */
  private callOf(activity: string): string {
    let call = this.shown.get(activity);
    if (call === undefined) {
      const isTaken = [...this.shown.values()].includes(this.answered ?? "");
      call = this.answered === null || isTaken ? activity : this.answered;
      this.shown.set(activity, call);
    }
    return call;
  }

  /** Calls without a result wait for the application, or for the next run, unless the run was cancelled. */
  private endRun(outcome: unknown): McpAppItem[] {
    this.chunked = null;
    return isRecord(outcome) && outcome["type"] === "cancelled" ? this.table.cancelOpen("The run was cancelled.") : [];
  }
}
