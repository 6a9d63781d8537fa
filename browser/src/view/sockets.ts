/** A `WebSocket` fails as the content policy of hosts makes it; the console says why, which the browser's words do not. */

export function explainSockets(warn: (line: string) => void): void {
  addEventListener("securitypolicyviolation", ({ effectiveDirective, blockedURI }) => {
    if (effectiveDirective !== "connect-src" || !/^wss?\b/.test(blockedURI)) return;
    warn(`${blockedURI}: hosts carry no WebSocket; use EventSource, or a streamed fetch`);
  });
}
