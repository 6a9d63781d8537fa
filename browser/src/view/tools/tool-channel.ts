/** The tool methods of an MCP server over one channel: `tools/list`, `tools/call` with cancellation, list changes. */

import { coalesced } from "../coalesced";
import { answer, failure, INVALID_PARAMS, notification, type Id, type Message, type Request } from "../host/json-rpc";
import { call, type Definition, type Registry, type Tool } from "./registry";
import { toolFailure } from "./results";

export interface ToolChannel {
  definitions(): Definition[];
  call(message: Request): void;
  /** Cancels the call `id`; false if there is none. */
  cancel(id: unknown, reason?: unknown): boolean;
  /** Notifies the peer of a changed list, once for all changes of a moment. */
  changed(): void;
  /** Cancels all calls; the peer has gone, or restarts. */
  reset(): void;
  /** The page is being unloaded: all calls are answered now. */
  left(): void;
}

/** The gateway's own limit, which also bounds the message. */
const MOST = 200;
const LEFT = "The page went to another page, or was loaded again. The tool may have run.";

interface Ends {
  send(message: Message): void;
  /** By its name. */
  offered(tool: string): boolean;
  /** Called when a call starts; the returned function, when it ends. */
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
