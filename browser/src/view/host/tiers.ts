/** The tier of the host, its presentation to the page, and the answers to requests without a host. */

import { attempt } from "../attempt";
import type { Handshake } from "./handshake";
import { isObject, objectOf, type Params } from "./json-rpc";
import { NO_HOST_DETAIL, problemResult } from "../http/problem";
import { call, type Registry } from "../tools/registry";
import type { Reports } from "./reports";
import { toolFailure, toolResult, type ToolResult } from "../tools/results";

export type Tier = "full" | "context-synced" | "static" | "standalone";

/** A person's action, in the page's own words. */
export interface Interaction {
  component?: string;
  action: string;
  data?: unknown;
  suggestion?: string;
}

/** `window.webmcpGateway` */
export interface PageSide {
  readonly tier: Tier | undefined;
  /** Calls the page's own tool `name`, else, unless `localOnly`, the server's, or reports the call. Never rejects. */
  safeCallTool(name: string, args?: Params, options?: { localOnly?: boolean }): Promise<ToolResult>;
  /** Informs the model; false if the host does not support it. */
  reportInteraction(interaction: Interaction): Promise<boolean>;
}

export interface Tiers {
  page: PageSide;
  /** The page's answer to a request without a host: the values of an `http_request` result. */
  answer(args: Params): Promise<Params>;
}

interface TierDependencies {
  registry: Registry;
  handshake: Pick<Handshake, "host" | "onOpen" | "can" | "watch">;
  reports: Reports;
  /** Calls a tool of the server. */
  callTool(name: string, args: Params): Promise<Params>;
  /** Informs the person. */
  onReported(): void;
}

/** Sets the tier where pages and their styles read it. */
function showTier(tier: Tier, previous?: Tier): void {
  document.documentElement.dataset["tier"] = tier;
  document.dispatchEvent(new CustomEvent("tierchange", { bubbles: true, detail: { tier, previous } }));
}

/**
 * The gateway's snapshot in the page, for hosts that carry no calls:
 *
 * `{version: 1, responses: {"<path?query>": {status, headers, body, bodyType}}, tools: ["<name>"]}`.
 */
export function readSnapshot(): Params {
  const written: unknown = attempt(() => JSON.parse(document.getElementById("webmcp-gateway-snapshot")!.textContent!));
  const snapshot = objectOf(written);
  return snapshot["version"] === 1 ? snapshot : {};
}

/** The page side without a host: the page's own tools run, and nothing is reported. */
export function standalone(registry: Registry): PageSide {
  showTier("standalone");
  return {
    tier: "standalone",
    async safeCallTool(name, args = {}) {
      const own = registry.get(name);
      return own ? call(own, args) : toolFailure(`This page has no tool ${name}`);
    },
    reportInteraction: async () => false,
  };
}

export function createTiers({ registry, handshake, reports, callTool, onReported }: TierDependencies): Tiers {
  let tier: Tier | undefined;
  let snapshot: Params | undefined;

  function updateTier(): void {
    const next = handshake.can("serverTools") ? "full" : handshake.can("updateModelContext") ? "context-synced" : "static";
    if (next === tier) return;
    const previous = tier;
    tier = next;
    showTier(next, previous);
  }
  handshake.onOpen(updateTier);
  handshake.watch(updateTier);
  // After a silence, a late answer is an upgrade.
  void handshake.host().then(updateTier);

  async function report(action: Params): Promise<string | undefined> {
    const id = handshake.can("updateModelContext") ? await reports.add(action) : undefined;
    if (id) onReported();
    return id;
  }

  return {
    page: {
      get tier() {
        return tier;
      },
      async safeCallTool(name, args = {}, { localOnly } = {}) {
        const own = registry.get(name);
        if (own) return call(own, args);
        if (localOnly) return toolFailure(`This page has no tool ${name}`);
        await handshake.host();
        try {
          if (handshake.can("serverTools")) return (await callTool(name, args)) as ToolResult;
        } catch (error) {
          if (handshake.can("serverTools")) return toolFailure(error);
        }
        const id = await report({ action: "call tool", tool: name, arguments: args });
        return id ? toolResult({ status: "reported-to-model", id }) : toolFailure(NO_HOST_DETAIL);
      },
      async reportInteraction({ component, action, data, suggestion }) {
        await handshake.host();
        return !!(await report({ action, component, data, suggestion }));
      },
    },
    async answer({ url, method, body }) {
      const none = problemResult(503, "no-host", NO_HOST_DETAIL);
      if (method === "GET" || method === "HEAD") {
        snapshot ??= objectOf(readSnapshot()["responses"]);
        const kept = snapshot[String(url)];
        return isObject(kept) ? { ...kept, url, ...(method === "HEAD" && { bodyType: "none" }) } : none;
      }
      const id = await report({ action: "request", method, path: url, body });
      return id ? problemResult(202, "reported-to-model", "The assistant was asked to do this.", { id }) : none;
    },
  };
}
