/** A host such as others build: ext-apps' own bridge around one opaque frame, an MCP client that lives elsewhere. */
import { AppBridge, PostMessageTransport } from "@modelcontextprotocol/ext-apps/app-bridge";
import type { CallToolRequest, CallToolResult } from "@modelcontextprotocol/client";

declare global {
  interface Window {
    callServer: (params: CallToolRequest["params"]) => Promise<CallToolResult>;
    show: (html: string, result: CallToolResult) => Promise<void>;
    showAgain: () => Promise<void>;
    bridge: AppBridge;
    opened: string[];
  }
}

window.opened = [];

window.show = async (html, result) => {
  window.showAgain = () => window.show(html, result);
  const frame = document.createElement("iframe");
  frame.setAttribute("sandbox", "allow-scripts");
  frame.style.cssText = "position: fixed; inset: 0; width: 100%; height: 100%; border: 0";
  document.body.replaceChildren(frame);
  const target = frame.contentWindow;
  if (!target) throw new Error("the frame has no window");
  const capabilities = { serverTools: {}, openLinks: {}, logging: {} };
  const bridge = new AppBridge(null, { name: "stock-host", version: "1.0.0" }, capabilities);
  window.bridge = bridge;
  bridge.oncalltool = (params) => window.callServer(params);
  bridge.onopenlink = async ({ url }) => {
    window.opened.push(url);
    return {};
  };
  const ready = new Promise<void>((resolve) => {
    bridge.oninitialized = () => resolve();
  });
  await bridge.connect(new PostMessageTransport(target, target));
  frame.srcdoc = html;
  await ready;
  await bridge.sendToolInput({ arguments: {} });
  await bridge.sendToolResult(result);
};
