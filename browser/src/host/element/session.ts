/** One showing of an app in its element: the mounted app, and the host's answers to it by events, handlers and defaults. */
import type { McpUiDisplayMode, McpUiHostContext } from "@modelcontextprotocol/ext-apps/app-bridge";
import type { AppSource, JsonObject } from "../../mux";
import { toHex } from "./digest";
import { BridgeError, type ViewEvents } from "../bridge-view";
import { moveInto, type FrameAddress } from "../frames";
import { filesIn, saveFile } from "../files";
import { GatewayRefusal } from "../gateway-http";
import type { ServerMethod } from "../page-requests";
import { MountedApp, type AppView, type Ending, type InitializeParams } from "../view";
import { announce, consult } from "./events";
import type { GatewayConnection } from "./gateway";
import { HandlerView, handledMethods, plainResult, type GivenPage } from "./handlers";
import type { McpApp } from "./mcp-app";
import { isAllowedLink, refusalOfTool } from "./options";
import type { Shell } from "./shell";
import type { PageTools } from "./tools-transport";

/** Milliseconds of a call of the host to a page's tool. */
const CALL_TIMEOUT = 120_000;
/** Characters of the longest link. */
const MAX_LINK = 8192;
const REFUSED = -32000;
const OUT_OF_SIGHT = "visibility:hidden;pointer-events:none;z-index:-1";

/** The source of an app: a gateway, or the host itself. */
export type Source =
  | { kind: "gateway"; gateway: GatewayConnection; app: AppSource; html: string | undefined }
  | { kind: "handlers"; page: GivenPage; sandboxUrl: string };

export interface SessionEvents {
  /** The page was passed to its frame. */
  onpage(): void;
  oninitialize(params: InitializeParams): void;
  oninitialized(): void;
  onended(ending: Ending): void;
  /** A value of the host cannot be sent to the page. */
  onproblem(problem: string): void;
}

const OWN_INFO = { name: "webmcp-gateway-host", version: "1" };

export class AppSession implements PageTools {
  readonly name: string;
  private readonly element: McpApp;
  private readonly shell: Shell;
  private readonly source: Source;
  private readonly events: SessionEvents;
  private readonly closing = new AbortController();
  private readonly toolListeners = new Set<() => void>();
  private readonly ready = Promise.withResolvers<void>();
  private mounted: MountedApp | undefined;
  private handlerView: HandlerView | undefined;
  private asking = false;
  private resource = "";
  private sent: { input?: true; result?: true; cancelled?: true } = {};

  constructor(element: McpApp, shell: Shell, source: Source, events: SessionEvents) {
    this.element = element;
    this.shell = shell;
    this.source = source;
    this.events = events;
    this.name = element.label;
    this.ready.promise.catch(() => undefined);
  }

  /** The current view's id on the bridge; empty without one. */
  get view(): string {
    return this.source.kind === "gateway" ? (this.mounted?.view ?? "") : "";
  }

  get isInitialized(): boolean {
    return this.mounted?.page != null;
  }

  /** Show the app. Rejects if the gateway or a handler refuses, or the page cannot be read. */
  async show(): Promise<void> {
    const { element, source } = this;
    const sandbox = source.kind === "gateway" ? await source.gateway.sandboxFor(source.app) : sandboxAt(withHost(source.sandboxUrl));
    this.closing.signal.throwIfAborted();
    this.mounted = new MountedApp({
      container: this.shell.stage,
      bridge: { open: (_, events) => this.open(events) },
      app: element.label,
      label: element.label,
      sandboxUrl: sandbox.url,
      expected: sandbox.expected,
      hostInfo: this.hostInfo(),
      hostContext: element.currentContext(),
      showsApprovals: element.showsApprovals === true,
      tellsTools: true,
      showsEndings: true,
      isBridged: source.kind === "gateway",
      ...(source.kind === "handlers" && { methods: handledMethods(element) }),
      onrequest: (method, params, signal) => this.answerRequest(method, params, signal),
      ...(element.onFallbackRequest && { onfallback: (method: string, params: JsonObject, signal: AbortSignal) => this.answerOther(method, params, signal) }),
      ...this.answersOfPerson(),
      onsizechange: (size) => this.resize(size),
      onlog: (log) => {
        announce(element, "mcp-app-notifications-message", log);
        announce(element, "mcp-app-log", log);
      },
      onproxyready: () => announce(element, "mcp-app-sandbox-proxy-ready", {}),
      onpage: ({ meta }, address) => {
        element.setBorder(meta.prefersBorder === true);
        if (source.kind === "gateway") source.gateway.remember(source.app, address);
        this.events.onpage();
        announce(element, "mcp-app-sandbox-resource-ready", { uri: this.resource });
      },
      oninitialize: (params) => this.events.oninitialize(params),
      oninitialized: () => {
        this.ready.resolve();
        this.events.oninitialized();
      },
      onteardownrequest: () => {
        if (announce(element, "mcp-app-teardown", { reason: "requested" })) void element.teardown();
      },
      onToolsChanged: () => this.tellToolsChanged(),
      onended: (ending) => this.end(ending),
    });
    if (element.partialInput && element.toolInput === undefined) this.tellPartial(element.partialInput as JsonObject);
    this.tellCall();
    await this.mounted.show();
  }

  /** Send what is known of the tool call that the app shows; each part once. */
  tellCall(): void {
    const { element, mounted, sent } = this;
    if (!mounted || !element.toolCallId) return;
    const { toolInput, toolResult, cancelled } = element;
    const isOver = toolResult !== undefined || cancelled !== undefined;
    if (!sent.input && (toolInput !== undefined || isOver)) {
      sent.input = true;
      mounted.tell({ is: "tool-input", params: { arguments: (toolInput !== undefined && this.plain(toolInput, "tool-input")) || {} } });
    }
    if (!sent.result && !sent.cancelled && toolResult !== undefined) {
      sent.result = true;
      const params = this.plain(toolResult, "tool-result");
      if (params) mounted.tell({ is: "tool-result", params: params as { content: [] } });
    } else if (!sent.result && !sent.cancelled && cancelled !== undefined) {
      sent.cancelled = true;
      mounted.tell({ is: "tool-cancelled", params: { reason: cancelled } });
    }
  }

  /** Send the arguments that the model has written so far. */
  tellPartial(given: JsonObject): void {
    if (!this.mounted || !this.element.toolCallId || this.sent.input) return;
    // A copy: proxies, in which frameworks keep their state, cannot be posted.
    const params = this.plain(given, "tool-input-partial");
    if (params) this.mounted.tell({ is: "tool-input-partial", params: { arguments: params } });
  }

  /** The name and the version of the host; others than two texts no app could read. */
  private hostInfo(): { name: string; version: string } {
    const { name, version } = (this.element.hostInfo as { name?: unknown; version?: unknown } | null | undefined) ?? OWN_INFO;
    if (typeof name === "string" && typeof version === "string") return { name, version };
    this.events.onproblem("hostInfo: {name, version}, two texts");
    return OWN_INFO;
  }

  /** A value of the host as JSON; null for one that is no JSON object, which is reported. */
  private plain(value: unknown, name: string): JsonObject | null {
    try {
      return plainResult(value, name, "it");
    } catch (error) {
      this.events.onproblem((error as Error).message);
      return null;
    }
  }

  setHostContext(context: McpUiHostContext): void {
    this.mounted?.setHostContext(context);
  }

  /**
   * Let the page save its state, then remove its frame. Meanwhile it goes on out of sight, and outside of the element,
   * which may be removed.
   */
  async close(): Promise<void> {
    const { mounted } = this;
    this.stop();
    const holder = this.moveAside();
    await mounted?.close();
    holder?.remove();
  }

  /** End at once: the frame is gone already. */
  drop(): void {
    const { mounted } = this;
    this.stop();
    mounted?.end({ reason: "closed", text: "" });
  }

  /** Move the frame out of the element with its state (DOM, `moveBefore`), or else only out of sight; returns its holder. */
  private moveAside(): HTMLElement | undefined {
    const frame = this.mounted?.iframe;
    if (!frame) return undefined;
    const holder = document.createElement("div");
    holder.inert = true;
    holder.style.cssText = `${OUT_OF_SIGHT};position:fixed;inset:0`;
    document.body.append(holder);
    if (this.isInitialized && moveInto(frame, holder)) return holder;
    holder.remove();
    frame.style.cssText += `;${OUT_OF_SIGHT};position:absolute`;
    return undefined;
  }

  /** A request of the host to the page's tools. Rejects if the page offers none, or is closed. */
  async request(method: "tools/list" | "tools/call", params: JsonObject, options: { signal: AbortSignal; onprogress?: (params: JsonObject) => void }): Promise<JsonObject> {
    await this.ready.promise;
    const page = this.mounted?.page;
    if (!page) throw new BridgeError(REFUSED, "The app is closed.");
    const signal = AbortSignal.any([options.signal, this.closing.signal]);
    // The gateway calls the page's tools under their policy, as for a model.
    if (this.source.kind === "gateway") return this.mounted!.callPageTools(method, params, { ...options, signal });
    if (!page.getAppCapabilities()?.tools) {
      if (this.handlerView) return this.handlerView.requestTools(method, params, AbortSignal.any([signal, AbortSignal.timeout(CALL_TIMEOUT)]));
      throw new BridgeError(REFUSED, "This page offers no tools to its host.");
    }
    const { onprogress } = options;
    const how = { signal, timeout: CALL_TIMEOUT, resetTimeoutOnProgress: true, ...(onprogress && { onprogress: (one: object) => onprogress(one as JsonObject) }) };
    return (await (method === "tools/list" ? page.listTools(params, how) : page.callTool(params as { name: string }, how))) as unknown as JsonObject;
  }

  watch(listener: () => void, signal: AbortSignal): void {
    this.toolListeners.add(listener);
    signal.addEventListener("abort", () => this.toolListeners.delete(listener));
  }

  private stop(): void {
    this.ready.reject(new BridgeError(REFUSED, "The app is closed."));
    this.closing.abort(new BridgeError(REFUSED, "The app is closed."));
  }

  private end(ending: Ending): void {
    const isOwn = this.closing.signal.aborted;
    this.stop();
    if (!isOwn) this.events.onended(ending);
  }

  private async open(events: ViewEvents): Promise<AppView> {
    const view = await this.openView(events);
    this.resource = view.resource;
    return view;
  }

  private async openView(events: ViewEvents): Promise<AppView> {
    const { source, element } = this;
    if (source.kind === "gateway") {
      const sha256 = source.html === undefined ? undefined : await toHex(source.html);
      return source.gateway.open({ ...source.app, ...(sha256 !== undefined && { sha256 }) }, events);
    }
    return (this.handlerView = new HandlerView(source.page, element, events));
  }

  private async answerRequest(method: ServerMethod, params: JsonObject, signal: AbortSignal): Promise<JsonObject | undefined> {
    const { element } = this;
    if (method === "tools/call") {
      const refusal = refusalOfTool(element.tools, params["name"]);
      if (refusal !== null) throw new BridgeError(-32602, refusal);
      const detail = { name: String(params["name"]), arguments: (params["arguments"] ?? {}) as JsonObject };
      return this.takeOwn(await consult(element, "mcp-app-tools-call", detail), "mcp-app-tools-call");
    }
    if (method === "resources/read") {
      return this.takeOwn(await consult(element, "mcp-app-resources-read", { uri: String(params["uri"]) }), "mcp-app-resources-read");
    }
    signal.throwIfAborted();
    return undefined;
  }

  private async answerOther(method: string, params: JsonObject, signal: AbortSignal): Promise<JsonObject> {
    return plainResult(await this.element.onFallbackRequest?.({ method, params }, { signal }), "onFallbackRequest");
  }

  /** Notify the page that a list of its server has changed; a gateway does so itself. */
  tellListChanged(list: "Tool" | "Resource" | "Prompt"): void {
    void this.mounted?.page?.[`send${list}ListChanged`]();
  }

  private takeOwn(answer: JsonObject | "prevented" | undefined, event: string): JsonObject | undefined {
    if (answer === "prevented") throw new BridgeError(REFUSED, "The host refused this request.");
    return answer === undefined ? undefined : plainResult(answer, event);
  }

  private answersOfPerson() {
    const { element } = this;
    const accepts = (answer: boolean | "prevented" | undefined): boolean => answer !== "prevented" && answer !== false;
    return {
      ...(element.can("message") && {
        onmessage: async (params: Parameters<NonNullable<McpApp["onMessage"]>>[0]) =>
          accepts(await consult(element, "mcp-app-message", params)) && (await element.onMessage?.(params)) !== false,
      }),
      ...(element.can("update-model-context") && {
        onupdatemodelcontext: async (params: Parameters<NonNullable<McpApp["onUpdateModelContext"]>>[0]) => {
          if (!accepts(await consult(element, "mcp-app-update-model-context", params))) throw new BridgeError(REFUSED, "The host refused this context.");
          await element.onUpdateModelContext?.(params);
        },
      }),
      onopenlink: (url: URL) => this.openLink(url),
      ondownloadfile: (params: { contents: Parameters<typeof filesIn>[0] }) => this.download(params),
      onrequestdisplaymode: (mode: McpUiDisplayMode) => element.requestDisplayMode(mode),
    };
  }

  private async openLink(url: URL): Promise<boolean> {
    const { element } = this;
    const answer = await consult(element, "mcp-app-open-link", { url: url.href });
    if (answer !== undefined) return answer === true;
    if (url.href.length > MAX_LINK || !isAllowedLink(element.allowedLinks, url)) return false;
    return this.askOnce(async () => {
      const decision = this.source.kind === "gateway" ? await this.source.gateway.decideLink(this.view, url.href) : null;
      if (decision?.decision === "declined") return false;
      const question = decision?.decision === "ask" ? decision.message : `${element.label} wants to open this link in a new tab.`;
      const agreed = await this.shell.ask(question, url.href, "Open link", this.closing.signal);
      if (decision?.decision === "ask" && this.source.kind === "gateway") {
        const last = await this.source.gateway.decideLink(this.view, url.href, agreed);
        if (last.decision !== "open") return false;
      }
      if (agreed) window.open(url.href, "_blank", "noopener,noreferrer");
      return agreed;
    });
  }

  private async download(params: { contents: Parameters<typeof filesIn>[0] }): Promise<boolean> {
    const { element } = this;
    const answer = await consult(element, "mcp-app-download-file", params);
    if (answer !== undefined) return answer === true;
    const files = filesIn(params.contents);
    if (files.length === 0) return false;
    return this.askOnce(async () => {
      const names = files.map(({ name, blob }) => `${name} (${blob.size} bytes)`).join("\n");
      const agreed = await this.shell.ask(`${element.label} offers ${files.length === 1 ? "this file" : "these files"}.`, names, "Save", this.closing.signal);
      if (this.source.kind === "gateway") await this.source.gateway.recordFiles(this.view, files, agreed);
      if (agreed) files.forEach(saveFile);
      return agreed;
    });
  }

  /** Ask one question at a time, and only after a person acted; a failure of the gateway is a no. */
  private async askOnce(run: () => Promise<boolean>): Promise<boolean> {
    if (this.asking || !navigator.userActivation.isActive) return false;
    this.asking = true;
    try {
      return await run();
    } catch (error) {
      if (!(error instanceof GatewayRefusal || error instanceof TypeError)) throw error;
      console.warn(`mcp-app: ${error.message}`);
      return false;
    } finally {
      this.asking = false;
    }
  }

  private resize(size: { width?: number; height?: number }): void {
    announce(this.element, "mcp-app-size-changed", size);
    this.mounted?.resizeFrame(size.height);
  }

  private tellToolsChanged(): void {
    announce(this.element, "mcp-app-tools-changed", {});
    for (const listener of this.toolListeners) listener();
  }
}

/** The sandbox proxy of the host itself: its address is the same for every app. */
function sandboxAt(url: string): { url: string; expected: FrameAddress } {
  return { url, expected: { url, allow: "" } };
}

/** The proxy answers only to the origin in its address. */
export function withHost(address: string): string {
  const url = new URL(address, document.baseURI);
  if (!url.searchParams.has("host")) url.searchParams.set("host", location.origin);
  return url.href;
}
