/** `WebSocket` for pages that contain it: a separate script after the runtime, which uses only `fetch` and its tools. */

import { createWebSocket } from "../http/web-socket";
import { createTurns } from "../turns";

interface Runtime {
  tier?: string;
  safeCallTool(name: string, args: object): Promise<{ isError?: boolean }>;
}

if (window.parent !== window) {
  const { fetch, Request } = window;
  const { webmcpGateway } = window as unknown as { webmcpGateway: Runtime };
  const { warn } = console;
  window.WebSocket = createWebSocket({
    resolve: (url) => new Request(url).url,
    open: (url, headers, signal) =>
      fetch(url, { method: "WEBSOCKET", headers, signal, cache: "no-store" }).then((response) => {
        if (webmcpGateway.tier !== "full") warn(`webmcp-gateway: ${url}: this host carries no WebSocket`);
        return response;
      }),
    send: async (args) => {
      const { isError } = await webmcpGateway.safeCallTool("webmcp_send", args);
      if (isError) throw new Error("not sent");
    },
    turn: createTurns(),
  });
}
