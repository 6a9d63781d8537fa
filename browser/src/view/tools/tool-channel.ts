/** The tool methods of an MCP server over one channel: `tools/list`, `tools/call` with cancellation, list changes. */

import { coalesce } from "../coalesce";
import { answer, failure, INVALID_PARAMS, notification, type Id, type Message, type Request } from "../host/json-rpc";
import { call, type Definition, type Registry } from "./registry";
import { toolFailure } from "./results";

export interface ToolChannel {
  definitions(): Definition[];
  /** Answers `tools/list` or `tools/call`, once the offered tools are known. */
  receive(message: Request): void;
  /** Cancels the request `id`; false if there is none. */
  cancel(id: unknown, reason?: unknown): boolean;
  /** Notifies the peer of a changed list, once for all changes of a moment. */
  notifyChange(): void;
  /** Cancels all requests; the peer has gone, or restarts. */
  reset(): void;
  /** The page is being unloaded: all calls are answered now. */
  abortCalls(): void;
}

/** The gateway's own limit, which also bounds the message. */
const MAX_TOOLS = 200;
const PAGE_UNLOADED = "The page went to another page, or was loaded again. The tool may have run.";

interface ToolChannelDependencies {
  send(message: Message): void;
  /** By its name; valid only after `whenSettled`. */
  isOffered(tool: string): boolean;
  /** A promise, if something must come before the tools are known. */
  whenSettled(): unknown;
  /** Called when a call starts; the returned function, when it ends. */
  beginCall(): () => void;
}

export function createToolChannel(registry: Registry, { send, isOffered, whenSettled, beginCall }: ToolChannelDependencies): ToolChannel {
  const running = new Map<Id, AbortController>();
  const definitions = (): Definition[] =>
    registry.all().map((tool) => tool.definition).filter(({ name }) => isOffered(name)).slice(0, MAX_TOOLS);

  async function respond({ id, method, params }: Request, signal: AbortSignal): Promise<Message> {
    if (method === "tools/list") return answer(id, { tools: definitions() });
    const name = params?.["name"];
    const tool = registry.get(name as string);
    if (!tool) return failure(id, INVALID_PARAMS, `Unknown tool: ${name}`);
    if (!isOffered(tool.definition.name)) return failure(id, INVALID_PARAMS, `${name} is called through the gateway only`);
    const ended = beginCall();
    const result = await call(tool, params?.["arguments"], signal);
    ended();
    return answer(id, result);
  }

  function cancel(id: unknown, reason?: unknown): boolean {
    const controller = running.get(id as Id);
    running.delete(id as Id);
    controller?.abort(new DOMException(typeof reason === "string" ? reason : "The call was cancelled", "AbortError"));
    return controller !== undefined;
  }

  return {
    definitions,
    async receive(message) {
      const { id } = message;
      if (running.has(id)) return send(failure(id, INVALID_PARAMS, `Call ${id} is running`));
      const controller = new AbortController();
      running.set(id, controller);
      // A cancelled request is not answered (MCP 2025-11-25, Cancellation).
      const isCancelled = (): boolean => running.get(id) !== controller;
      await whenSettled();
      if (isCancelled()) return;
      const response = await respond(message, controller.signal);
      if (isCancelled()) return;
      running.delete(id);
      try {
        send(response);
      } catch (error) {
        // It is nested deeper than messages may be.
        send(answer(id, toolFailure(error)));
      }
    },
    cancel,
    notifyChange: coalesce(() => send(notification("notifications/tools/list_changed"))),
    reset: () => running.forEach((_, id) => cancel(id)),
    abortCalls: () => running.forEach((controller) => controller.abort(new Error(PAGE_UNLOADED))),
  };
}
