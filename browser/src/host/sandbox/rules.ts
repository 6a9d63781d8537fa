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

/** The origins that a resource may name (MCP Apps, `McpUiResourceCsp`). */
const ORIGIN = /^(https?|wss?):\/\/[A-Za-z0-9.-]+(:[0-9]{1,5})?$/;
/** All subdomains of a site, by kind: published apps declare them for connections as for resources. */
const SUBDOMAINS: Readonly<Record<string, RegExp>> = {
  connectDomains: /^(https?|wss?):\/\/\*(\.[A-Za-z0-9-]+){2,}(:[0-9]{1,5})?$/,
  resourceDomains: /^https?:\/\/\*(\.[A-Za-z0-9-]+){2,}(:[0-9]{1,5})?$/,
};
/** Origins of one kind; further ones are left out. */
const MAX_ORIGINS = 64;

/**
 * The content security policy for the `csp` of a resource; null without one: then the proxy's address has the policy.
 * Invalid origins are omitted.
 */
export function contentPolicy(csp: unknown): string | null {
  if (typeof csp !== "object" || csp === null) return null;
  const origins = (kind: string): string => {
    const named: unknown = (csp as Record<string, unknown>)[kind];
    const all = (Array.isArray(named) ? named : []).filter((one): one is string => typeof one === "string");
    const good = all.filter((one) => ORIGIN.test(one) || SUBDOMAINS[kind]?.test(one));
    return good.slice(0, MAX_ORIGINS).map((one) => ` ${one}`).join("");
  };
  const resources = origins("resourceDomains");
  return [
    "default-src 'none'",
    `script-src 'self' 'unsafe-inline'${resources}`,
    `style-src 'self' 'unsafe-inline'${resources}`,
    `img-src 'self' data: blob:${resources}`,
    `font-src data:${resources}`,
    `media-src data: blob:${resources}`,
    `connect-src${origins("connectDomains") || " 'none'"}`,
    `frame-src${origins("frameDomains") || " 'none'"}`,
    "object-src 'none'",
    "base-uri 'none'",
    "form-action 'none'",
  ].join("; ");
}

/** A page to show: its HTML in an opaque frame, or the address of its document on the frame's own origin. */
export interface AppResource {
  content: { srcdoc: string } | { src: string };
  sandbox: string;
  allow: string;
  /** The policy that the host names, beside that of the proxy's address. */
  policy: string | null;
}

/**
 * The page in a `sandbox-resource-ready`, with its options; null for anything else. Only a document of `frame`, which is
 * not the proxy's origin, keeps its origin: on the proxy's, a page could attest gestures.
 */
export function resourceOf(data: unknown, frame: string | null): AppResource | null {
  if (methodOf(data) !== `${PROXY_PREFIX}resource-ready`) return null;
  const { params } = data as { params?: { html?: unknown; document?: unknown; sandbox?: unknown; permissions?: unknown; csp?: unknown } };
  const sandbox = sandboxTokens(params?.sandbox);
  const allow = allowAttribute(params?.permissions);
  const policy = contentPolicy(params?.csp);
  if (frame === null) return typeof params?.html === "string" ? { content: { srcdoc: params.html }, sandbox, allow, policy } : null;
  const src = params?.document;
  if (typeof src !== "string" || !URL.canParse(src) || new URL(src).origin !== frame) return null;
  return { content: { src }, sandbox: `${sandbox} allow-same-origin`, allow, policy };
}

/** A notification of the proxy to its host. */
export function notice(name: "proxy-ready" | "gesture" | "page-left" | "document" | "document-wanted", params: object): object {
  return { jsonrpc: "2.0", method: PROXY_PREFIX + name, params };
}
