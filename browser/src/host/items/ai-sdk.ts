/** Items of the AI SDK's tool parts (`UIMessage.parts`), static and dynamic, while they stream and when they are stored. */
import { isRecord, type McpAppItem } from "./item";
import { ToolCallTable, type AdapterOptions, type CallApp, type ItemSource } from "./tool-calls";

/** Takes tool parts, or whole messages. The parts of `@ai-sdk/mcp` name their app themselves (`toolMetadata.app`). */
export function toolPartItems(options: AdapterOptions = {}): ItemSource {
  const table = new ToolCallTable(options);
  const receive = (value: unknown): McpAppItem[] => {
    if (!isRecord(value)) return [];
    if (Array.isArray(value["parts"])) return value["parts"].flatMap(receive);
    const id = value["toolCallId"];
    const name = nameOf(value);
    if (typeof id !== "string" || name === null) return [];
    table.begin(id, name, appOf(value));
    takeState(table, id, value);
    return table.itemsOf(id);
  };
  return {
    receive,
    cancel: (reason) => table.cancelOpen(reason),
    get items() {
      return table.items;
    },
  };
}

function takeState(table: ToolCallTable, id: string, part: Record<string, unknown>): void {
  const { state, input, output, errorText, approval, preliminary, rawInput } = part;
  if (state === "input-streaming") {
    table.setPartial(id, input);
    return;
  }
  table.complete(id, input ?? rawInput ?? {});
  // The results of a tool that yields several: the last one counts.
  if (state === "output-available" && preliminary !== true) table.finish(id, output);
  if (state === "output-error") table.finish(id, String(errorText), true);
  if (state === "output-denied") {
    const reason = isRecord(approval) ? approval["reason"] : undefined;
    table.cancel(id, typeof reason === "string" ? reason : "The call was not approved.");
  }
}

function nameOf({ type, toolName }: Record<string, unknown>): string | null {
  if (type === "dynamic-tool") return typeof toolName === "string" ? toolName : null;
  return typeof type === "string" && type.startsWith("tool-") ? type.slice("tool-".length) : null;
}

/** In version 6, the app was in the metadata of the call's provider. */
function appOf({ toolMetadata, callProviderMetadata, title }: Record<string, unknown>): CallApp {
  const provider = isRecord(callProviderMetadata) ? callProviderMetadata["mcp"] : undefined;
  const named = typeof title === "string" ? { title } : {};
  for (const metadata of [toolMetadata, provider]) {
    const app = isRecord(metadata) ? metadata["app"] : undefined;
    const uri = isRecord(app) ? app["resourceUri"] : undefined;
    if (typeof uri === "string") return { ...named, resourceUri: uri };
  }
  return named;
}
