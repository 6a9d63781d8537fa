/** App tools: the page's tools for a host that calls them over ui itself, past the gateway. */

import type { Message, Request } from "../host/json-rpc";
import type { Registry } from "./registry";
import { createToolChannel } from "./tool-channel";

export interface AppTools {
  /** Handles `tools/list` and `tools/call` of the host. */
  receive(message: Request): void;
  cancel(id: unknown, reason?: unknown): boolean;
  /** The page is unloaded. */
  abortCalls(): void;
  /** The offered tools have changed. */
  notifyChange(): void;
  /** Whether the host has requested them. */
  isInUse(): boolean;
}

interface AppToolDependencies {
  /** Called at the host's first request. */
  onFirstRequest(): void;
  send(message: Message): void;
  /** Valid only after `whenSettled`, which also waits for the page's own client; tools that need the gateway are not offered. */
  isOffered(name: string): boolean;
  whenSettled(): Promise<unknown>;
  beginCall(): () => void;
}

export function createAppTools(registry: Registry, { send, isOffered, whenSettled, onFirstRequest, beginCall }: AppToolDependencies): AppTools {
  let told = 0;
  let taken = false;
  const tools = createToolChannel(registry, { send, isOffered, whenSettled, beginCall });

  return {
    isInUse: () => taken,
    receive(message) {
      if (!taken) {
        taken = true;
        onFirstRequest();
      }
      tools.receive(message);
    },
    cancel: tools.cancel,
    abortCalls: tools.abortCalls,
    notifyChange() {
      const count = tools.definitions().length;
      // A host that never received a tool of ours needs no notification.
      if (count || told) tools.notifyChange();
      told = count;
    },
  };
}
