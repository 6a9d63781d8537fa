/** The tools of the page's own client (`App.registerTool`), merged into the page's tools, and called there. */

import { isObject, PeerError, type Answer, type Params } from "../host/json-rpc";
import type { Definition, Registry, Tool } from "./registry";
import type { Requests } from "../host/requests";

const TIMEOUT = 5000;
/** A client answers a ping before anything else happens in the page; the time is for asynchronous ones. */
const PING_TIMEOUT = 300;

export interface PageTools {
  /** Updates the list; to be called when the client appears, may have closed, or announces a change. */
  update(): Promise<void>;
  /** Calls `run` if no client of the page is left. */
  runIfClosed(run: () => void): void;
  /** True if `message` of the page answers a request of this. */
  receive(message: Answer): boolean;
}

/** `requests` are sent to the page. */
export function createPageTools(registry: Registry, requests: Requests): PageTools {
  const merged = new Map<string, { json: string; tool: Tool }>();
  let updates: Promise<void> = Promise.resolve();
  let client = new AbortController();

  function addTool(definition: Definition): void {
    const { name } = definition;
    if (registry.get(name)) return;
    const tool: Tool = {
      definition,
      execute: (input, { signal }) => requests.send("tools/call", { name, arguments: input }, { signal: AbortSignal.any([signal, client.signal]) }),
    };
    merged.set(name, { json: JSON.stringify(definition), tool });
    registry.add(tool);
  }

  /** Whether there is a client: an answer of any kind proves it. */
  const answersPing = (): Promise<boolean> => requests.send("ping", {}, { timeout: PING_TIMEOUT }).then(() => true, (error) => error instanceof PeerError);

  async function updateTools(): Promise<void> {
    const asked = requests.send("tools/list", {}, { timeout: TIMEOUT });
    const { tools } = await Promise.race<Params>([asked, answersPing().then((is) => (is ? asked : {}))]);
    if (!tools) {
      client.abort(new Error("The page closed the client of this tool"));
      client = new AbortController();
    }
    const listed = (Array.isArray(tools) ? tools : []).filter((one) => isObject(one) && typeof one["name"] === "string") as Definition[];
    const now = new Set(listed.map((one) => JSON.stringify(one)));
    for (const [name, { json, tool }] of merged) {
      if (now.has(json)) continue;
      merged.delete(name);
      registry.remove(tool);
    }
    listed.forEach(addTool);
  }

  return {
    // One after the other; a client that does not answer keeps its tools.
    update: () => (updates = updates.then(updateTools).catch(() => undefined)),
    runIfClosed: (run) => void answersPing().then((is) => is || run()),
    receive: requests.receive,
  };
}
