/**
 * A `WebSocket` fails as the content policy of hosts makes it; the console says why, which the browser's words do not.
 * A script of its own for pages that name it.
 */

if (window.parent !== window) {
  const { warn } = console;
  addEventListener("securitypolicyviolation", ({ effectiveDirective, blockedURI }) => {
    if (effectiveDirective !== "connect-src" || !/^wss?\b/.test(blockedURI)) return;
    warn(`webmcp-gateway: ${blockedURI}: hosts carry no WebSocket; use EventSource, or a streamed fetch`);
  });
}
