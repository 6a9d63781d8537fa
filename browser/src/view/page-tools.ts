/** The tools of the page's own client (`App.registerTool`), kept among all others of the page, and called there. */

import { isObject, PeerError, type Answer, type Params } from "./json-rpc";
import type { Definition, Registry, Tool } from "./registry";
import type { Requests } from "./requests";

const TIMEOUT = 5000;
/** A client that is there answers a ping before anything else happens in the page; this is for those that do it apart. */
const CLOSED = 300;

export interface PageTools {
  /** Brings the list in line; to be called when the client is there, may have gone, and says that its list changed. */
  renew(): Promise<void>;
  /** Calls `run` where no client of the page is there any more. */
  ifClosed(run: () => void): void;
  /** True if `message` of the page answers a question of this. */
  settle(message: Answer): boolean;
}

/** `requests` go to the page. */
export function createPageTools(registry: Registry, requests: Requests): PageTools {
  const taken = new Map<string, { json: string; tool: Tool }>();
  let line: Promise<void> = Promise.resolve();
  let client = new AbortController();

  function take(definition: Definition): void {
    const { name } = definition;
    if (registry.get(name)) return;
    const tool: Tool = {
      definition,
      execute: (input, { signal }) => requests.send("tools/call", { name, arguments: input }, { signal: AbortSignal.any([signal, client.signal]) }),
    };
    taken.set(name, { json: JSON.stringify(definition), tool });
    registry.add(tool);
  }

  /** Whether a client is there: an answer of any kind says so. */
  const there = (): Promise<boolean> => requests.send("ping", {}, { timeout: CLOSED }).then(() => true, (error) => error instanceof PeerError);

  async function renew(): Promise<void> {
    const asked = requests.send("tools/list", {}, { timeout: TIMEOUT });
    const { tools } = await Promise.race<Params>([asked, there().then((is) => (is ? asked : {}))]);
    if (!tools) {
      client.abort(new Error("The page closed the client of this tool"));
      client = new AbortController();
    }
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
    ifClosed: (run) => void there().then((is) => is || run()),
    settle: requests.settle,
  };
}
