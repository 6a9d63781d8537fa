/** Two more hosts such as others build: ext-apps' bridge around an MCP client of its own, and one that speaks mcp-b's envelope. */
import { IframeParentTransport } from "@mcp-b/transports";
import { AppBridge, PostMessageTransport } from "@modelcontextprotocol/ext-apps/app-bridge";
import { Client, type CallToolRequest, type CallToolResult, type JSONRPCMessage, type Transport } from "@modelcontextprotocol/client";

declare global {
  interface Window {
    /** Carries a message to the server, and gives what that answers. */
    forward: (message: JSONRPCMessage) => Promise<JSONRPCMessage[]>;
    callServer: (params: CallToolRequest["params"]) => Promise<CallToolResult>;
    showInClientMode: () => Promise<void>;
    showWithEnvelope: (html: string, result: CallToolResult) => Promise<void>;
    bridge: AppBridge;
    page: Client;
  }
}

const INFO = { name: "stock-host", version: "1.0.0" };
const UI = { "io.modelcontextprotocol/ui": { mimeTypes: ["text/html;profile=mcp-app"] } };

/** The server lives elsewhere. */
class Forwarding implements Transport {
  onmessage?: Transport["onmessage"];
  onclose?: () => void;
  async start(): Promise<void> {}
  async close(): Promise<void> {
    this.onclose?.();
  }
  async send(message: JSONRPCMessage): Promise<void> {
    for (const answer of await window.forward(message)) this.onmessage?.(answer);
  }
}

async function show(bridge: AppBridge, html: string, result: CallToolResult, ready?: (frame: HTMLIFrameElement) => Promise<unknown>): Promise<void> {
  const frame = document.createElement("iframe");
  frame.setAttribute("sandbox", "allow-scripts");
  frame.style.cssText = "position: fixed; inset: 0; width: 100%; height: 100%; border: 0";
  document.body.replaceChildren(frame);
  const target = frame.contentWindow;
  if (!target) throw new Error("the frame has no window");
  window.bridge = bridge;
  const initialized = new Promise<void>((resolve) => {
    bridge.oninitialized = () => resolve();
  });
  await bridge.connect(new PostMessageTransport(target, target));
  frame.srcdoc = html;
  await initialized;
  await bridge.sendToolInput({ arguments: {} });
  await bridge.sendToolResult(result);
  await ready?.(frame);
}

window.showInClientMode = async () => {
  const client = new Client(INFO, { capabilities: { extensions: UI } });
  await client.connect(new Forwarding());
  const { tools } = await client.listTools();
  const ui = tools.find(({ name }) => name === "open_cart")?._meta?.["ui"] as { resourceUri: string };
  const { contents } = await client.readResource({ uri: ui.resourceUri });
  const [content] = contents;
  if (!content || !("text" in content)) throw new Error("there is no page");
  const opened = await client.callTool({ name: "open_cart", arguments: {} });
  const bridge = new AppBridge(client, INFO, { serverTools: {}, serverResources: {}, openLinks: {}, logging: {} });
  await show(bridge, content.text as string, opened as CallToolResult);
};

window.showWithEnvelope = async (html, result) => {
  const bridge = new AppBridge(null, INFO, { serverTools: {}, openLinks: {}, logging: {} });
  bridge.oncalltool = (params) => window.callServer(params);
  await show(bridge, html, result, async (iframe) => {
    window.page = new Client(INFO);
    await window.page.connect(new IframeParentTransport({ iframe, targetOrigin: "*" }));
  });
};
