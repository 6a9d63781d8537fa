/** What the sandbox proxy lets through, and what it does not. */

/** All that an app's frame may ever do: no origin of its own, no navigation of the page around it, no popups. */
const SANDBOX = ["allow-scripts", "allow-forms"];

/** The proxy's own words, which no page may say. */
const OWN = "ui/notifications/sandbox-";

/** The origin of the page that may speak to this proxy, null where the address names none, or not the one above. */
export function hostOrigin(search: string, ancestor: string | undefined): string | null {
  const named = new URLSearchParams(search).get("host");
  if (named === null || !URL.canParse(named)) return null;
  const { protocol, origin } = new URL(named);
  if ((protocol !== "https:" && protocol !== "http:") || origin !== named) return null;
  return ancestor === undefined || ancestor === origin ? origin : null;
}

/** The inner frame's sandbox: a wish may only take away. */
export function narrowed(wish: unknown): string {
  if (typeof wish !== "string") return SANDBOX.join(" ");
  const wished = wish.toLowerCase().split(/\s+/);
  return SANDBOX.filter((token) => wished.includes(token)).join(" ");
}

/** The method of a JSON-RPC message, null for anything else. */
export function methodOf(data: unknown): string | null {
  if (typeof data !== "object" || data === null || !("method" in data)) return null;
  return typeof data.method === "string" ? data.method : null;
}

/** The bytes in an answer, which are handed on and not copied: nobody here needs them any more. */
export function bytesOf(data: unknown): ArrayBuffer[] {
  const { body } = (data as { result?: { structuredContent?: { body?: unknown } } } | null)?.result?.structuredContent ?? {};
  return body instanceof ArrayBuffer ? [body] : [];
}

/** Whether a message is the proxy's or the host's alone, and ends here. */
export function isOwn(data: unknown): boolean {
  return methodOf(data)?.startsWith(OWN) ?? false;
}

/** Whether a message answers the request `id`. */
export function isAnswer(data: unknown, id: string): boolean {
  return methodOf(data) === null && (data as { id?: unknown } | null)?.id === id;
}

/** What a page may be allowed to ask of the browser, as MCP Apps and as the permissions policy call it. */
const FEATURES = { camera: "camera", microphone: "microphone", geolocation: "geolocation", clipboardWrite: "clipboard-write" };

/** The `allow` of a frame for the permissions of a resource; what is unknown is left out. */
export function allowOf(permissions: unknown): string {
  if (typeof permissions !== "object" || permissions === null) return "";
  const names = Object.entries(FEATURES).filter(([name]) => Object.hasOwn(permissions, name));
  // The frames in between have one origin each, and the innermost has none that could be named.
  return names.map(([, feature]) => `${feature} *`).join("; ");
}

/** A page to show. */
export interface Shown {
  html: string;
  sandbox: string;
  allow: string;
}

/** The HTML that a first `sandbox-resource-ready` brings, with its wishes; null for anything else. */
export function resourceOf(data: unknown): Shown | null {
  if (methodOf(data) !== `${OWN}resource-ready`) return null;
  const { params } = data as { params?: { html?: unknown; sandbox?: unknown; permissions?: unknown } };
  if (typeof params?.html !== "string") return null;
  return { html: params.html, sandbox: narrowed(params.sandbox), allow: allowOf(params.permissions) };
}

/** A word of the proxy to its host. */
export function notice(name: "proxy-ready" | "gesture" | "page-left", params: object): object {
  return { jsonrpc: "2.0", method: OWN + name, params };
}
