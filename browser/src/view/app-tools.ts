/** App tools: the page's tools for a host that calls them over ui itself, past the gateway. */

import { answer, type Message, type Request } from "./json-rpc";
import type { Registry } from "./registry";
import { createToolChannel } from "./tool-channel";

export interface AppTools {
  /** Takes `tools/list` and `tools/call` of the host. */
  receive(message: Request): void;
  cancel(id: unknown, reason?: unknown): boolean;
  /** The page goes. */
  left(): void;
  /** What may be offered changed. */
  changed(): void;
  /** The host has asked for them. */
  taken(): boolean;
}

interface Ends {
  /** The host asks for the first time. */
  first(): void;
  send(message: Message): void;
  /** Known only once `settled`, which waits for the page's own client too; what the gateway alone may offer is not. */
  offered(name: string): boolean;
  settled(): Promise<unknown>;
  began(): () => void;
}

export function createAppTools(registry: Registry, { send, offered, settled, first, began }: Ends): AppTools {
  let told = 0;
  let taken = false;
  /** What waits for it. */
  const waiting = new Set<unknown>();
  const tools = createToolChannel(registry, { send, offered, began });

  return {
    taken: () => taken,
    receive(message) {
      if (!taken) {
        taken = true;
        first();
      }
      waiting.add(message.id);
      void settled().then(() => {
        if (!waiting.delete(message.id)) return;
        if (message.method === "tools/call") tools.call(message);
        else send(answer(message.id, { tools: tools.definitions() }));
      });
    },
    cancel: (id, reason) => waiting.delete(id) || tools.cancel(id, reason),
    left: tools.left,
    changed() {
      const count = tools.definitions().length;
      // A host that was never told of a tool of ours has nothing to hear of.
      if (count || told) tools.changed();
      told = count;
    },
  };
}
