/** The address of the page: which app is shown, or which one approval; and where the gateway's addresses begin. */

export type Route = { page: "app"; app: string | undefined } | { page: "approval"; id: string };

const APPROVAL = /\/approvals\/([^/]+)\/?$/;

/** The hash wins over the path: `#/apps/<id>`, `#/approvals/<id>`, or the path `/approvals/<id>`. */
export function parseRoute(location: { hash: string; pathname: string }): Route {
  const [, kind, id] = /^#\/(apps|approvals)\/([^/]+)$/.exec(location.hash) ?? [];
  if (kind === "approvals" && id) return { page: "approval", id: decode(id) };
  if (kind === "apps" && id) return { page: "app", app: decode(id) };
  const inPath = APPROVAL.exec(location.pathname)?.[1];
  if (inPath) return { page: "approval", id: decode(inPath) };
  return { page: "app", app: undefined };
}

export function appHash(id: string): string {
  return `#/apps/${encodeURIComponent(id)}`;
}

export function approvalHash(id: string): string {
  return `#/approvals/${encodeURIComponent(id)}`;
}

/** The folder that the gateway's own addresses (`api/`, `mcp/`, `bridge`) are relative to, with a slash at its end. */
export function rootOf(location: { origin: string; pathname: string }): string {
  const path = location.pathname.replace(APPROVAL, "/").replace(/[^/]*$/, "");
  return location.origin + path;
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
