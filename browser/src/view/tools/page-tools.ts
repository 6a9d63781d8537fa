/** The tools of the page's own client (`App.registerTool`), merged into the page's tools, and called there. */

import { isObject, PeerError, type Answer, type Params } from "../host/json-rpc";
import type { Definition, Registry, Tool } from "./registry";
import type { Requests } from "../host/requests";

const TIMEOUT = 5000;
/** A client answers a ping before anything else happens in the page; the time is for asynchronous ones. */
const CLOSED = 300;

export interface PageTools {
  /** Updates the list; to be called when the client appears, may have closed, or announces a change. */
  renew(): Promise<void>;
  /** Calls `run` if no client of the page is left. */
  ifClosed(run: () => void): void;
  /** True if `message` of the page answers a request of this. */
  settle(message: Answer): boolean;
}

/** `requests` are sent to the page. */
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

  /** Whether there is a client: an answer of any kind proves it. */
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
    // One after the other; a client that does not answer keeps its tools.
    renew: () => (line = line.then(renew).catch(() => undefined)),
    ifClosed: (run) => void there().then((is) => is || run()),
    settle: requests.settle,
  };
}
