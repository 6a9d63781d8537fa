/**
 * A `WebSocket` fails under the content policy of hosts; the console then explains what the browser's message does not.
 *
 * A separate script for pages that contain it.
 */

if (window.parent !== window) {
  const { warn } = console;
  addEventListener("securitypolicyviolation", ({ effectiveDirective, blockedURI }) => {
    if (effectiveDirective !== "connect-src" || !/^wss?\b/.test(blockedURI)) return;
    warn(`webmcp-gateway: ${blockedURI}: hosts carry no WebSocket; use EventSource, or a streamed fetch`);
  });
}
