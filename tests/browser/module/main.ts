/** An app of somebody: its own `App`, React, and what it installed from npm. */
import { App } from "@modelcontextprotocol/ext-apps";
import { createElement, useState } from "react";
import { createRoot } from "react-dom/client";
import { initMcpFetch, initMcpHttp, initMcpXhr, onTierChange, reportInteraction, safeCallTool, type McpHttpHandle, type Tier } from "webmcp-gateway-view";
import "webmcp-gateway-view/fallback.css";
import { InteractiveGate, useHostTier, useReportInteraction, useWebMCP } from "webmcp-gateway-view/react";

declare global {
  interface Window {
    app: App;
    handle: McpHttpHandle;
    init: typeof initMcpHttp;
    initFetch: typeof initMcpFetch;
    initXhr: typeof initMcpXhr;
    tiers: (Tier | undefined)[];
    said: (tool: string) => Promise<string | undefined>;
    report: typeof reportInteraction;
    root: { unmount(): void };
    ready: boolean;
  }
}

function Counter() {
  const [count, setCount] = useState(0);
  const tier = useHostTier();
  const report = useReportInteraction({ component: "counter" });
  useWebMCP<{ by: number }>({
    name: "count",
    description: `Counts on from ${count > 1 ? "many" : "few"}.`,
    inputSchema: { type: "object", properties: { by: { type: "number" } } },
    execute({ by }) {
      setCount(count + by);
      return `${count} + ${by}`;
    },
  });
  return createElement(
    "div",
    {},
    createElement("p", { id: "tier" }, String(tier)),
    createElement("p", { id: "count" }, String(count)),
    createElement(InteractiveGate, { fallback: createElement("i", {}, "not here") }, createElement("button", {
      onClick: async () => setCount((await report({ action: "more" })) ? 100 : -1),
    }, "More")),
  );
}

window.tiers = [];
onTierChange((tier) => window.tiers.push(tier));
window.said = async (tool) => (await safeCallTool(tool)).content[0]?.text;
window.report = reportInteraction;
window.init = initMcpHttp;
window.initFetch = initMcpFetch;
window.initXhr = initMcpXhr;
const element = document.createElement("div");
document.body.append(element);
window.root = createRoot(element);
(window.root as ReturnType<typeof createRoot>).render(createElement(Counter));
window.app = new App({ name: "mini", version: "1" }, {}, { autoResize: false });
window.handle = initMcpHttp(window.app, { interceptPaths: ["/api"], timeoutMs: 9000 });
await window.app.connect();
window.ready = true;
