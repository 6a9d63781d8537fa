/** The address of the page: the shown app, or a single approval; and the root of the gateway's addresses. */
import { attempt } from "../view/attempt";

/** `answer` contains the parameters of an authorization server's redirect. */
export interface ConnectionsRoute {
  page: "connections";
  name: string;
  audience: string;
  answer?: Record<string, string>;
}

export type Route = { page: "app"; app: string | undefined } | { page: "advice"; app: string } | { page: "approval"; id: string } | { page: "nodes" } | ConnectionsRoute;

export const NODES_HASH = "#/nodes";

const APPROVAL = /\/approvals\/([^/]+)\/?$/;

/** The hash wins over the path: `#/apps/<id>`, `#/check/<id>`, `#/approvals/<id>`, or the path `/approvals/<id>`. */
export function parseRoute(location: { hash: string; pathname: string }): Route {
  const [, kind, id] = /^#\/(apps|approvals|check)\/([^/]+)$/.exec(location.hash) ?? [];
  if (kind === "approvals" && id) return { page: "approval", id: decode(id) };
  if (kind === "check" && id) return { page: "advice", app: decode(id) };
  if (kind === "apps" && id) return { page: "app", app: decode(id) };
  if (location.hash === NODES_HASH) return { page: "nodes" };
  const connections = connectionsRoute(location.hash);
  if (connections) return connections;
  const inPath = APPROVAL.exec(location.pathname)?.[1];
  if (inPath) return { page: "approval", id: decode(inPath) };
  return { page: "app", app: undefined };
}

function connectionsRoute(hash: string): ConnectionsRoute | undefined {
  const [, query] = /^#\/connected\?(.*)$/.exec(hash) ?? [];
  if (query !== undefined)
    return { page: "connections", name: "", audience: "", answer: Object.fromEntries(new URLSearchParams(query)) };
  const [found, name, audience] = /^#\/connections(?:\/([^/]+))?(?:\/([^/]+))?$/.exec(hash) ?? [];
  if (found === undefined) return undefined;
  return { page: "connections", name: decode(name ?? ""), audience: decode(audience ?? "") };
}

export function connectionsHash(): string {
  return "#/connections";
}

export function appHash(id: string): string {
  return `#/apps/${encodeURIComponent(id)}`;
}

export function adviceHash(id: string): string {
  return `#/check/${encodeURIComponent(id)}`;
}

export function approvalHash(id: string): string {
  return `#/approvals/${encodeURIComponent(id)}`;
}

/** The folder that the gateway's own addresses (`api/`, `mcp/`, `bridge`) are relative to, with a trailing slash. */
export function rootOf(location: { origin: string; pathname: string }): string {
  const path = location.pathname.replace(APPROVAL, "/").replace(/[^/]*$/, "");
  return location.origin + path;
}

function decode(part: string): string {
  return attempt(() => decodeURIComponent(part)) ?? part;
}
