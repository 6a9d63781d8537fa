/** The tools of the page's own client (`App.registerTool`), kept among all others of the page, and called there. */

import { isObject, type Answer } from "./json-rpc";
import type { Definition, Registry, Tool } from "./registry";
import type { Requests } from "./requests";

const TIMEOUT = 5000;

export interface PageTools {
  /** Brings the list in line; to be called when the client is there, and when it says that its list changed. */
  renew(): Promise<void>;
  /** True if `message` of the page answers a question of this. */
  settle(message: Answer): boolean;
}

/** `requests` go to the page. */
export function createPageTools(registry: Registry, requests: Requests): PageTools {
  const taken = new Map<string, { json: string; tool: Tool }>();
  let line: Promise<void> = Promise.resolve();

  function take(definition: Definition): void {
    const { name } = definition;
    if (registry.get(name)) return;
    const tool: Tool = {
      definition,
      execute: (input, { signal }) => requests.send("tools/call", { name, arguments: input }, { signal }),
    };
    taken.set(name, { json: JSON.stringify(definition), tool });
    registry.add(tool);
  }

  async function renew(): Promise<void> {
    const { tools } = await requests.send("tools/list", {}, { timeout: TIMEOUT });
    const listed = (Array.isArray(tools) ? tools : []).filter((one) => isObject(one) && typeof one["name"] === "string") as Definition[];
    const now = new Set(listed.map((one) => JSON.stringify(one)));
    for (const [name, { json, tool }] of taken) {
      if (now.has(json)) continue;
      taken.delete(name);
      registry.remove(tool);
    }
    listed.forEach(take);
  }

  return {
    // One after the other; a client that does not answer keeps what it had.
    renew: () => (line = line.then(renew).catch(() => undefined)),
    settle: requests.settle,
  };
}
