/** App tools: the page's tools for a host that calls them over ui itself, past the gateway. */

import { answer, isObject, type Answer, type Id, type Message, type Request } from "./json-rpc";
import type { Registry, Tool } from "./registry";
import { createToolChannel } from "./tool-channel";

export interface AppTools {
  /** Takes `tools/list` and `tools/call` of the host; false where the page's own client must answer. */
  receive(message: Request): boolean;
  /** The page's own answer to a `tools/list` that both answer, with our tools added. */
  merged(message: Answer): Answer | undefined;
  cancel(id: unknown, reason?: unknown): boolean;
  /** What may be offered changed. */
  changed(): void;
  /** The host has asked for them. */
  taken(): boolean;
}

interface Ends {
  /** The host asks for the first time. */
  first(): void;
  send(message: Message): void;
  /** Known only once `settled`; what the gateway alone may offer is not. */
  offered(name: string): boolean;
  settled(): Promise<void>;
  pageHasTools(): boolean;
  began(): () => void;
}

export function createAppTools(registry: Registry, { send, offered, settled, pageHasTools, began, first }: Ends): AppTools {
  const merging = new Set<Id>();
  let told = 0;
  let taken = false;
  const may = (tool: Tool): boolean => offered(tool.definition.name);
  const tools = createToolChannel(registry, { send, offered: may, began });

  function changed(): void {
    const count = tools.definitions().length;
    // A host that was never told of a tool of ours has nothing to hear of.
    if (count || told) tools.changed();
    told = count;
  }

  return {
    taken: () => taken,
    receive(message) {
      if (!taken) {
        taken = true;
        first();
      }
      if (message.method === "tools/call") {
        // Only what is nobody else's is refused here.
        if (!tools.offers(message.params?.["name"]) && pageHasTools()) return false;
        void settled().then(() => tools.call(message));
        return true;
      }
      if (pageHasTools()) {
        merging.add(message.id);
        return false;
      }
      void settled().then(() => send(answer(message.id, { tools: tools.definitions() })));
      return true;
    },
    merged(message) {
      if (!merging.delete(message.id)) return undefined;
      const own = message.result?.["tools"];
      if (!Array.isArray(own)) return undefined;
      const added = tools.definitions();
      const others = own.filter((tool) => !isObject(tool) || !added.some(({ name }) => name === tool["name"]));
      return answer(message.id, { ...message.result, tools: [...others, ...added] });
    },
    cancel: tools.cancel,
    changed,
  };
}
