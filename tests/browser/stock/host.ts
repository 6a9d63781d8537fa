/**
 * Hosts such as others build, each around one opaque frame: ext-apps' bridge in callback mode, with an MCP client that
 * lives elsewhere; the same around a client of its own; and one that speaks mcp-b's envelope besides.
 */
import { IframeParentTransport } from "@mcp-b/transports";
import { AppBridge, PostMessageTransport, type McpUiHostCapabilities } from "@modelcontextprotocol/ext-apps/app-bridge";
import { Client, type CallToolRequest, type CallToolResult, type JSONRPCMessage, type Transport } from "@modelcontextprotocol/client";

declare global {
  interface Window {
    callServer: (params: CallToolRequest["params"]) => Promise<CallToolResult>;
    /** Carries a message to the server, and gives what that answers. */
    forward: (message: JSONRPCMessage) => Promise<JSONRPCMessage[]>;
    show: (html: string, result: CallToolResult) => Promise<void>;
    showAgain: () => Promise<void>;
    /** The host carries no calls of the page to anywhere. */
    showWithoutServer: (html: string, result: CallToolResult) => Promise<void>;
    showInClientMode: () => Promise<void>;
    showWithEnvelope: (html: string, result: CallToolResult) => Promise<void>;
    /** The envelope alone, without MCP Apps; its client connects `early`, before the frame has loaded, or late. */
    showWithoutApps: (html: string, early: boolean) => Promise<void>;
    heard: unknown[];
    bridge: AppBridge;
    page: Client;
    opened: string[];
  }
}

const INFO = { name: "stock-host", version: "1.0.0" };
const CAPABILITIES = { serverTools: {}, openLinks: {}, logging: {} };
const UI = { "io.modelcontextprotocol/ui": { mimeTypes: ["text/html;profile=mcp-app"] } };

window.opened = [];

function framed(): HTMLIFrameElement {
  const frame = document.createElement("iframe");
  frame.setAttribute("sandbox", "allow-scripts");
  frame.style.cssText = "position: fixed; inset: 0; width: 100%; height: 100%; border: 0";
  document.body.replaceChildren(frame);
  return frame;
}

async function show(bridge: AppBridge, html: string, result: CallToolResult): Promise<HTMLIFrameElement> {
  const frame = framed();
  const target = frame.contentWindow;
  if (!target) throw new Error("the frame has no window");
  window.bridge = bridge;
  const ready = new Promise<void>((resolve) => {
    bridge.oninitialized = () => resolve();
  });
  await bridge.connect(new PostMessageTransport(target, target));
  frame.srcdoc = html;
  await ready;
  await bridge.sendToolInput({ arguments: {} });
  await bridge.sendToolResult(result);
  return frame;
}

function withCallbacks(capabilities: McpUiHostCapabilities = CAPABILITIES): AppBridge {
  const bridge = new AppBridge(null, INFO, capabilities);
  bridge.oncalltool = (params) => window.callServer(params);
  bridge.onopenlink = async ({ url }) => {
    window.opened.push(url);
    return {};
  };
  return bridge;
}

window.show = async (html, result) => {
  window.showAgain = () => window.show(html, result);
  await show(withCallbacks(), html, result);
};

window.showWithoutServer = async (html, result) => {
  await show(withCallbacks({ openLinks: {} }), html, result);
};

window.showWithEnvelope = async (html, result) => {
  const iframe = await show(withCallbacks(), html, result);
  window.page = new Client(INFO);
  await window.page.connect(new IframeParentTransport({ iframe, targetOrigin: "*" }));
};

window.showWithoutApps = async (html, early) => {
  const iframe = framed();
  window.heard = [];
  addEventListener("message", ({ data }) => data.payload === "mcp-server-ready" && window.heard.push(data));
  window.page = new Client(INFO);
  const connect = () => window.page.connect(new IframeParentTransport({ iframe, targetOrigin: "*" }));
  const connected = early ? connect() : undefined;
  const loaded = new Promise((go) => iframe.addEventListener("load", go));
  iframe.srcdoc = html;
  await loaded;
  await (connected ?? connect());
};

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

window.showInClientMode = async () => {
  const client = new Client(INFO, { capabilities: { extensions: UI } });
  await client.connect(new Forwarding());
  const { tools } = await client.listTools();
  const ui = tools.find(({ name }) => name === "open_cart")?._meta?.["ui"] as { resourceUri: string };
  const { contents } = await client.readResource({ uri: ui.resourceUri });
  const [content] = contents;
  if (!content || !("text" in content)) throw new Error("there is no page");
  const opened = await client.callTool({ name: "open_cart", arguments: {} });
  await show(new AppBridge(client, INFO, { ...CAPABILITIES, serverResources: {} }), content.text as string, opened as CallToolResult);
};
