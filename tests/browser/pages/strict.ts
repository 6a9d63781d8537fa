/** A React page in StrictMode: each effect is begun, ended and begun again, as in development. */
import { useApp } from "EXT_APPS/react";
import { createElement as h, StrictMode, useState } from "react";
import { createRoot } from "react-dom/client";
import { InteractiveGate, useHostTier, useReportInteraction, useWebMCP } from "../src/module/react";

declare global {
  interface Window {
    begun?: number;
  }
}

const ran: string[] = [];

function Counter() {
  const [count, setCount] = useState(0);
  const report = useReportInteraction({ component: "counter" });
  useWebMCP({
    name: "count",
    description: "Counts.",
    execute: ({ by = 1 }: { by?: number }) => {
      ran.push("count");
      setCount((now) => now + by);
      return { was: count };
    },
  });
  return h("button", { id: "count", onClick: () => void report({ action: "look" }).then((told) => ran.push(`told ${told}`)) }, String(count));
}

function Page() {
  const [shown, show] = useState(true);
  const tier = useHostTier();
  const { isConnected, error } = useApp({
    appInfo: { name: "strict", version: "1" },
    capabilities: { tools: { listChanged: true } },
    onAppCreated: (app) => {
      window.begun = (window.begun ?? 0) + 1;
      app.registerTool("own", { description: "The client's." }, async () => {
        ran.push("own");
        return { content: [{ type: "text", text: "own" }] };
      });
    },
  });
  Object.assign(window, { show, ran, connected: isConnected, problem: error?.message });
  return h("main", null, h("p", { id: "tier" }, tier), shown && h(InteractiveGate, { fallback: "nothing" }, h(Counter)));
}

createRoot(document.getElementById("root")!).render(h(StrictMode, null, h(Page)));
