/** Reports actions in the page to the model: each report contains all that are not acknowledged yet. */

import { attempt } from "../attempt";
import type { Params } from "./json-rpc";

/** Actions of one report; the oldest are dropped first. */
const MAX_ACTIONS = 50;

export interface Reports {
  /** Reports one more action; returns its id, or undefined if the host does not take it. */
  add(action: Params): Promise<string | undefined>;
  /** The model has worked since: all reports before are acknowledged. */
  acknowledge(): void;
}

interface ReportDependencies {
  app: string;
  /** `ui/update-model-context`; each one replaces the previous one. */
  update(params: Params): Promise<unknown>;
  /** Whether requests and calls reach the server now. */
  canCallServer(): boolean;
  time(): string;
}

export function createReports({ app, update, canCallServer, time }: ReportDependencies): Reports {
  let waiting: Params[] = [];
  let taken = new Set<Params>();
  let count = 0;

  function text(): string {
    const actions = waiting.map((action) =>
      Object.entries(action).map(([key, value], place) => `${place ? "    " : "  - "}${key}: ${JSON.stringify(value)}\n`).join(""),
    );
    // A request has a path and a call a tool; the page's own reports have neither.
    const lost = !canCallServer() || waiting.some(({ path, tool }) => path ?? tool);
    return `---\napp: ${JSON.stringify(app)}\nactions:\n${actions.join("")}---\nThe person did this in the app.${lost ? " These did not reach its server: do each id once, in order, and say what came of it." : ""}`;
  }

  return {
    async add(action) {
      const id = `a${++count}`;
      const entry = attempt(() => JSON.parse(JSON.stringify({ id, ...action, time: time() })) as Params);
      // Values without JSON, such as cycles, cannot be reported; secrets must not be.
      if (!entry || (globalThis as { webmcpGatewaySecret?: (entry: Params) => boolean }).webmcpGatewaySecret?.(entry)) return undefined;
      waiting = [...waiting, entry].slice(-MAX_ACTIONS);
      const told = waiting;
      try {
        await update({ content: [{ type: "text", text: text() }] });
      } catch {
        waiting = waiting.filter((other) => other !== entry);
        return undefined;
      }
      taken = new Set(told);
      return id;
    },
    acknowledge() {
      waiting = waiting.filter((action) => !taken.has(action));
      taken.clear();
    },
  };
}
