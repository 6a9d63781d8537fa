/** App tools: the page's tools for a host that calls them over ui itself, past the gateway. */

import type { Message, Request } from "../host/json-rpc";
import type { Registry } from "./registry";
import { createToolChannel } from "./tool-channel";

export interface AppTools {
  /** Handles `tools/list` and `tools/call` of the host. */
  receive(message: Request): void;
  cancel(id: unknown, reason?: unknown): boolean;
  /** The page is unloaded. */
  left(): void;
  /** The offered tools have changed. */
  changed(): void;
  /** Whether the host has requested them. */
  taken(): boolean;
}

interface Ends {
  /** Called at the host's first request. */
  first(): void;
  send(message: Message): void;
  /** Valid only after `settled`, which also waits for the page's own client; tools that need the gateway are not offered. */
  offered(name: string): boolean;
  settled(): Promise<unknown>;
  began(): () => void;
}

export function createAppTools(registry: Registry, { send, offered, settled, first, began }: Ends): AppTools {
  let told = 0;
  let taken = false;
  const tools = createToolChannel(registry, { send, offered, settled, began });

  return {
    taken: () => taken,
    receive(message) {
      if (!taken) {
        taken = true;
        first();
      }
      tools.receive(message);
    },
    cancel: tools.cancel,
    left: tools.left,
    changed() {
      const count = tools.definitions().length;
      // A host that never received a tool of ours needs no notification.
      if (count || told) tools.changed();
      told = count;
    },
  };
}
