/** The tool methods of an MCP server over one channel: `tools/list`, `tools/call` with cancellation, list changes. */

import { coalesced } from "./coalesced";
import { answer, failure, INVALID_PARAMS, notification, type Id, type Message, type Request } from "./json-rpc";
import { call, type Definition, type Registry, type Tool } from "./registry";
import { toolFailure } from "./results";

export interface ToolChannel {
  definitions(): Definition[];
  call(message: Request): void;
  /** Ends the call that runs under `id`; false where none does. */
  cancel(id: unknown, reason?: unknown): boolean;
  /** Tells the peer that the list changed, once for all changes of a moment. */
  changed(): void;
  /** Ends all calls; the peer has gone, or starts anew. */
  reset(): void;
  /** The page goes, as far as it knows: all calls are answered, for nobody will be there to do it. */
  left(): void;
}

/** The gateway looks at so many, and a list of ever more nobody would carry. */
const MOST = 200;
const LEFT = "The page went to another page, or was loaded again. The tool may have run.";

interface Ends {
  send(message: Message): void;
  /** By its name. */
  offered(tool: string): boolean;
  /** Called when a call starts; what it gives, when that ends. */
  began(): () => void;
}

export function createToolChannel(registry: Registry, { send, offered, began }: Ends): ToolChannel {
  const running = new Map<Id, AbortController>();

  async function run(id: Id, tool: Tool, input: unknown): Promise<void> {
    const controller = new AbortController();
    running.set(id, controller);
    const ended = began();
    const result = await call(tool, input, controller.signal);
    ended();
    // A cancelled call is not answered (MCP 2025-11-25, Cancellation).
    if (running.get(id) !== controller) return;
    running.delete(id);
    try {
      send(answer(id, result));
    } catch (error) {
      // It is nested deeper than messages may be.
      send(answer(id, toolFailure(error)));
    }
  }

  function cancel(id: unknown, reason?: unknown): boolean {
    const controller = running.get(id as Id);
    running.delete(id as Id);
    controller?.abort(new DOMException(typeof reason === "string" ? reason : "The call was cancelled", "AbortError"));
    return controller !== undefined;
  }

  return {
    definitions: () => registry.all().map((tool) => tool.definition).filter(({ name }) => offered(name)).slice(0, MOST),
    call({ id, params }) {
      const name = params?.["name"];
      const tool = registry.get(name as string);
      if (!tool) return send(failure(id, INVALID_PARAMS, `Unknown tool: ${name}`));
      if (!offered(tool.definition.name)) return send(failure(id, INVALID_PARAMS, `${name} is called through the gateway alone, if at all`));
      if (running.has(id)) return send(failure(id, INVALID_PARAMS, `Call ${id} is running`));
      void run(id, tool, params?.["arguments"]);
    },
    cancel,
    changed: coalesced(() => send(notification("notifications/tools/list_changed"))),
    reset: () => running.forEach((_, id) => cancel(id)),
    left: () => running.forEach((controller) => controller.abort(new Error(LEFT))),
  };
}
