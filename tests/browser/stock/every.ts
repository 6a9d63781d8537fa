/**
 * Every kind of host, around one page: ext-apps' bridge in both modes, with mcp-b's envelope besides, one that knows nothing but
 * `tools/call`, and one as ours. The gateway behind them is as small as one can be.
 */
import { IframeParentTransport } from "@mcp-b/transports";
import { AppBridge, PostMessageTransport } from "@modelcontextprotocol/ext-apps/app-bridge";
import { Client, type JSONRPCMessage, type Transport } from "@modelcontextprotocol/client";

type Values = { [name: string]: unknown };

const INFO = { name: "host", version: "1.0.0" };
const TIERS: { [tier: string]: object } = { full: { serverTools: {} }, "context-synced": { updateModelContext: { text: {} } }, static: {} };

const sent: Values[] = [];
const called: Values[] = [];
const origins = new Set<string>();
const waiting: ((result: Values) => void)[] = [];
let offered: { name: string }[] = [];
let event: Values | undefined;
let wake = (): void => undefined;

const values = (structuredContent: Values): Values => ({ content: [], structuredContent });

async function poll({ tools, wait, after }: Values): Promise<Values> {
  if (tools) offered = tools as { name: string }[];
  if (!event && wait)
    await new Promise<void>((resolve) => {
      wake = resolve;
      setTimeout(resolve, wait as number);
    });
  const events = event && (event["number"] as number) > (after as number) ? [event] : [];
  return values({ events, overtaken: false });
}

/** The peculiarities of a host (`gateway/apps/host_quirks.py`). */
interface Quirks {
  serial_calls: boolean;
  late_answers: boolean;
  drops_meta: boolean;
  display_modes: string[];
}

let queue: Promise<unknown> = Promise.resolve();
let quirks: Quirks = { serial_calls: false, late_answers: false, drops_meta: false, display_modes: ["inline"] };
/** Lets the host answer, if it is late. */
let answerNow = (): void => undefined;
/** Calls that are carried at the moment, and the most that were. */
const carried = { now: 0, most: 0 };

/** The host's way to the gateway: all calls at once, or one after the other. */
function carry(call: { name: string; arguments?: Values }): Promise<Values> {
  const counted = async (): Promise<Values> => {
    carried.most = Math.max(carried.most, (carried.now += 1));
    await new Promise((resolve) => setTimeout(resolve, 10)); // others may begin meanwhile
    return callTool(call).finally(() => (carried.now -= 1));
  };
  const answer = quirks.serial_calls ? queue.then(counted) : counted();
  queue = answer.catch(() => undefined);
  return answer;
}

/** A transport to the page whose first answer is late. */
class LateTransport extends PostMessageTransport {
  private readonly allowed = new Promise<void>((resolve) => (answerNow = resolve));
  override async send(...given: Parameters<PostMessageTransport["send"]>): Promise<void> {
    await this.allowed;
    return super.send(...given);
  }
}

/** The gateway. */
async function callTool({ name, arguments: args = {} }: { name: string; arguments?: Values }): Promise<Values> {
  called.push({ name, ...args });
  if (name === "webmcp_attach") return values({ view: "view1", key: "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8", proven: true, free: ["add", "own"] });
  if (name === "webmcp_poll") return poll(args);
  if (name === "webmcp_result") {
    waiting.shift()?.(args["result"] as Values);
    return values({ taken: true });
  }
  return values({ status: 200, statusText: "OK", url: args["url"], ok: true, redirected: false, bodyType: "text", headers: {}, body: `${name} ${args["url"]}` });
}

/** The same as an MCP server, for a client in this page. */
class Server implements Transport {
  onmessage?: Transport["onmessage"];
  onclose?: () => void;
  async start(): Promise<void> {}
  async close(): Promise<void> {
    this.onclose?.();
  }
  async send(message: JSONRPCMessage): Promise<void> {
    if (!("method" in message) || !("id" in message)) return;
    const { id, method, params } = message;
    const results: { [method: string]: () => Values | Promise<Values> } = {
      initialize: () => ({ protocolVersion: (params as Values)["protocolVersion"], capabilities: { tools: {} }, serverInfo: INFO }),
      "tools/call": () => carry(params as { name: string }),
    };
    this.onmessage?.({ jsonrpc: "2.0", id, result: (await results[method]?.()) ?? {} } as JSONRPCMessage);
  }
}

async function bridgeOf(kind: string, tier: string): Promise<AppBridge> {
  const capabilities = { openLinks: {}, ...TIERS[tier] };
  const availableDisplayModes = quirks.display_modes as ["inline"];
  const options = { hostContext: { availableDisplayModes, ...(kind === "ours" && { "webmcp-gateway": { bridge: true } }) } };
  if (kind === "client") {
    const client = new Client(INFO);
    await client.connect(new Server());
    return new AppBridge(client, INFO, capabilities, options);
  }
  const bridge = new AppBridge(null, INFO, capabilities, options);
  if (tier === "full") bridge.oncalltool = (params) => carry(params) as never;
  if (tier === "context-synced") bridge.onupdatemodelcontext = async () => ({});
  bridge.onrequestdisplaymode = async ({ mode }) => ({ mode: quirks.display_modes.includes(mode) ? mode : "inline" });
  return bridge;
}

async function place(iframe: HTMLIFrameElement, frame: string, html: string, bridge: AppBridge): Promise<void> {
  if (frame === "proxy") {
    const ready = new Promise<void>((resolve) => (bridge.onsandboxready = () => resolve()));
    iframe.src = "http://proxy.test/";
    await ready;
    return bridge.sendSandboxResourceReady({ html });
  }
  if (frame === "src") iframe.src = "/app.html";
  else if (frame === "dedicated") iframe.src = "https://dedicated.test/app.html";
  else if (frame === "blob") iframe.src = URL.createObjectURL(new Blob([html], { type: "text/html" }));
  else if (frame === "srcdoc") iframe.srcdoc = html;
  else {
    const written = iframe.contentDocument!;
    written.open();
    written.write(html);
    written.close();
  }
}

/** Shows a page, and gives how its tools are listed and called. */
async function show(kind: string, tier: string, frame: string, html: string, given: Partial<Quirks> = {}): Promise<void> {
  quirks = { ...quirks, ...given };
  const iframe = document.createElement("iframe");
  if (frame === "proxy" || frame === "dedicated") iframe.setAttribute("sandbox", "allow-scripts allow-same-origin allow-forms");
  else if (frame !== "write") iframe.setAttribute("sandbox", "allow-scripts");
  document.body.append(iframe);
  addEventListener("message", ({ data, origin }) => {
    sent.push(data as Values);
    origins.add(origin);
  });
  const bridge = await bridgeOf(kind, tier);
  const ready = new Promise<void>((resolve) => (bridge.oninitialized = () => resolve()));
  const target = iframe.contentWindow!;
  await bridge.connect(new (quirks.late_answers ? LateTransport : PostMessageTransport)(target, target));
  await place(iframe, frame, html, bridge);
  await ready;
  await bridge.sendToolInput({ arguments: {} });
  await bridge.sendToolResult({ content: [], ...(!quirks.drops_meta && { _meta: { "webmcp-gateway/launch": "launch" } }) });
  const page = new Client(INFO);
  if (kind === "envelope" || kind === "ours") await page.connect(new IframeParentTransport({ iframe, targetOrigin: "*" }));
  const relayed = async (name: string): Promise<Values> => {
    const result = new Promise<Values>((resolve) => waiting.push(resolve));
    event = { number: ((event?.["number"] as number) ?? 0) + 1, call: `call-${called.length}`, tool: name, arguments: {} };
    wake();
    return result;
  };
  const ways = {
    calls: { list: async () => offered, call: relayed },
    envelope: { list: async () => (await page.listTools()).tools, call: (name: string) => page.callTool({ name, arguments: {} }) },
    tools: { list: async () => (await bridge.listTools({})).tools, call: (name: string) => bridge.callTool({ name, arguments: {} }) },
  };
  const way = kind === "calls" ? ways.calls : kind === "envelope" || kind === "ours" ? ways.envelope : ways.tools;
  Object.assign(window, { way, close: () => bridge.teardownResource({}).catch(() => undefined) });
}

Object.assign(window, { show, sent, called, carried, answerNow: () => answerNow(), originsOf: () => [...origins] });
