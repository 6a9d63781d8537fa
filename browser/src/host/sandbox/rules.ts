/** The rules of the sandbox proxy: which messages pass, and what frames may do. */

/** The maximum permissions of an app's frame: no navigation of the page around it, no popups. */
const SANDBOX = ["allow-scripts", "allow-forms"];

/** The prefix of the proxy's own messages, which no page may send. */
const PROXY_PREFIX = "ui/notifications/sandbox-";

/** The origin of the page that may use this proxy; null if the URL has none, or the parent's differs. */
export function hostOrigin(search: string, ancestor: string | undefined): string | null {
  const named = new URLSearchParams(search).get("host");
  if (named === null || !URL.canParse(named)) return null;
  const { protocol, origin } = new URL(named);
  if ((protocol !== "https:" && protocol !== "http:") || origin !== named) return null;
  return ancestor === undefined || ancestor === origin ? origin : null;
}

/** The inner frame's sandbox: the given value may only restrict it. */
export function sandboxTokens(wish: unknown): string {
  if (typeof wish !== "string") return SANDBOX.join(" ");
  const wished = wish.toLowerCase().split(/\s+/);
  return SANDBOX.filter((token) => wished.includes(token)).join(" ");
}

/** The dedicated origin of the app's frame, which the gateway signed; null if the frame is opaque, and never `own`. */
export function frameOrigin(search: string, own: string): string | null {
  const frame = new URLSearchParams(search).get("frame");
  return frame !== own ? frame : null;
}

/** The method of a JSON-RPC message, null for anything else. */
export function methodOf(data: unknown): string | null {
  if (typeof data !== "object" || data === null || !("method" in data)) return null;
  return typeof data.method === "string" ? data.method : null;
}

/** The bytes in an answer, which are transferred and not copied. */
export function bytesOf(data: unknown): ArrayBuffer[] {
  const { body } = (data as { result?: { structuredContent?: { body?: unknown } } } | null)?.result?.structuredContent ?? {};
  return body instanceof ArrayBuffer ? [body] : [];
}

/** Whether a message is between proxy and host only. */
export function isProxyMessage(data: unknown): boolean {
  return methodOf(data)?.startsWith(PROXY_PREFIX) ?? false;
}

/** Whether a message answers the request `id`. */
export function isAnswer(data: unknown, id: string): boolean {
  return methodOf(data) === null && (data as { id?: unknown } | null)?.id === id;
}

/** The browser permissions of a page, by their names in MCP Apps and in the permissions policy. */
const FEATURES = { camera: "camera", microphone: "microphone", geolocation: "geolocation", clipboardWrite: "clipboard-write" };

/** The `allow` of a frame for the permissions of a resource; unknown ones are omitted. */
export function allowAttribute(permissions: unknown): string {
  if (typeof permissions !== "object" || permissions === null) return "";
  const names = Object.entries(FEATURES).filter(([name]) => Object.hasOwn(permissions, name));
  // The frames in between have different origins, and the innermost is opaque.
  return names.map(([, feature]) => `${feature} *`).join("; ");
}

/** A page to show: its HTML in an opaque frame, or the address of its document on the frame's own origin. */
export interface AppResource {
  content: { srcdoc: string } | { src: string };
  sandbox: string;
  allow: string;
}

/**
 * The page in a `sandbox-resource-ready`, with its options; null for anything else. Only a document of `frame`, which is
 * not the proxy's origin, keeps its origin: on the proxy's, a page could attest gestures.
 */
export function resourceOf(data: unknown, frame: string | null): AppResource | null {
  if (methodOf(data) !== `${PROXY_PREFIX}resource-ready`) return null;
  const { params } = data as { params?: { html?: unknown; document?: unknown; sandbox?: unknown; permissions?: unknown } };
  const sandbox = sandboxTokens(params?.sandbox);
  const allow = allowAttribute(params?.permissions);
  if (frame === null) return typeof params?.html === "string" ? { content: { srcdoc: params.html }, sandbox, allow } : null;
  const src = params?.document;
  if (typeof src !== "string" || !URL.canParse(src) || new URL(src).origin !== frame) return null;
  return { content: { src }, sandbox: `${sandbox} allow-same-origin`, allow };
}

/** A notification of the proxy to its host. */
export function notice(name: "proxy-ready" | "gesture" | "page-left" | "document" | "document-wanted", params: object): object {
  return { jsonrpc: "2.0", method: PROXY_PREFIX + name, params };
}
