/** The tools of the current page, which the shell offers as its own; they change with the page. */

import { answer, isAnswer, isMessage, isNotification, isRequest, notification, objectOf, PeerError, request, type Params } from "../host/json-rpc";
import type { NextPage } from "../tools/next-page";

/** The page to which a call led, and what became of it. */
export interface LedTo extends NextPage {
  status: string;
  url: string;
}

export interface ShellTools {
  /** A new page is shown through `post`; its tools are read once it announces them. */
  pageShown(post: (message: unknown) => void): void;
  /** A message of the page's own MCP server. */
  receive(payload: unknown): void;
  /** The number of calls that the page has not answered. */
  running(): number;
  /** The page of the running calls has gone: `led` is the next one, or why there is none. */
  pageLeft(led: LedTo | Error): void;
}

interface Offered {
  json: string;
  controller: AbortController;
}

interface Context {
  registerTool(tool: object, options: { signal: AbortSignal }): unknown;
}

export function createShellTools(context: Context): ShellTools {
  const offered = new Map<string, Offered>();
  const waiting = new Map<string, PromiseWithResolvers<Params>>();
  const calls = new Set<PromiseWithResolvers<unknown>>();
  let post: (message: unknown) => void = () => undefined;
  let count = 0;
  let page = 0;

  const send = (payload: unknown): void => post({ channel: "mcp-iframe", type: "mcp", direction: "client-to-server", payload });

  function ask(method: string, params: Params): { id: string; result: Promise<Params> } {
    const id = `${page}-${++count}`;
    const settled = Promise.withResolvers<Params>();
    waiting.set(id, settled);
    send(request(id, method, params));
    return { id, result: settled.promise };
  }

  async function call(name: string, input: Params, signal: AbortSignal): Promise<unknown> {
    const outcome = Promise.withResolvers<unknown>();
    calls.add(outcome);
    const { id, result } = ask("tools/call", { name, arguments: input });
    result.then(outcome.resolve, outcome.reject);
    const abort = (): void => {
      send(notification("notifications/cancelled", { requestId: id, reason: String(signal.reason) }));
      outcome.reject(signal.reason);
    };
    signal.addEventListener("abort", abort, { once: true });
    try {
      return await outcome.promise;
    } finally {
      calls.delete(outcome);
      signal.removeEventListener("abort", abort);
    }
  }

  async function update(): Promise<void> {
    const here = page;
    const { tools } = await ask("tools/list", {}).result;
    if (here !== page || !Array.isArray(tools)) return;
    const wanted = new Map<string, Params>();
    for (const one of tools as unknown[]) if (typeof objectOf(one)["name"] === "string") wanted.set(objectOf(one)["name"] as string, one as Params);
    for (const [name, { json, controller }] of offered) {
      if (JSON.stringify(wanted.get(name)) === json) continue;
      offered.delete(name);
      controller.abort();
    }
    for (const [name, definition] of wanted) {
      if (offered.has(name)) continue;
      const controller = new AbortController();
      offered.set(name, { json: JSON.stringify(definition), controller });
      const execute = (input: Params, { signal }: { signal: AbortSignal }): Promise<unknown> => call(name, input, signal);
      void Promise.resolve(context.registerTool({ ...definition, execute }, { signal: controller.signal })).catch(() => undefined);
    }
  }

  async function begin(): Promise<void> {
    await ask("initialize", { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "shell", version: "1" } }).result;
    send(notification("notifications/initialized"));
    await update();
  }

  return {
    pageShown(to) {
      page++;
      waiting.clear();
      post = to;
    },
    receive(payload) {
      if (payload === "mcp-server-ready") void begin().catch(() => undefined);
      if (!isMessage(payload)) return;
      if (isAnswer(payload)) {
        const settled = waiting.get(String(payload.id));
        waiting.delete(String(payload.id));
        if (payload.result) settled?.resolve(payload.result);
        else settled?.reject(new PeerError(payload.error ?? { code: 0, message: "no result" }));
      } else if (isRequest(payload)) send(answer(payload.id, {}));
      else if (isNotification(payload) && payload.method === "notifications/tools/list_changed") void update().catch(() => undefined);
    },
    running: () => calls.size,
    pageLeft(led) {
      for (const outcome of calls) {
        if (led instanceof Error) outcome.reject(led);
        else outcome.resolve(led);
      }
    },
  };
}
