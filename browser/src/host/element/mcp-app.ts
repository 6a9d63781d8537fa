/** The custom element `<mcp-app>`: an MCP App on any page. */
import type { McpUiAppCapabilities, McpUiHostContext, McpUiMessageRequest, McpUiUpdateModelContextRequest } from "@modelcontextprotocol/ext-apps/app-bridge";
import type { CallToolResult, ListToolsResult, Transport } from "@modelcontextprotocol/client";
import type { JsonObject } from "../../mux";
import { createGate } from "../../view/http/gate";
import type { Ending, InitializeParams } from "../view";
import { AppAttributes, HYDRATING } from "./attributes";
import { announce, consult, type ErrorCode } from "./events";
import { gatewayAt, gatewayBase } from "./gateway";
import type { Handlers } from "./handlers";
import { buildMcpHostContext, watchHostContext } from "./host-context";
import { ATTRIBUTES, DISPLAY_MODES, type AttributeName, type DisplayMode } from "./options";
import { AppSession, type Source } from "./session";
import { keepApp, releaseApp } from "../items/kept-apps";
import { Surface } from "../items/surface";
import type { SurfaceLabels } from "../items/surface-view";
import { Shell } from "./shell";
import { PageToolsTransport } from "./tools-transport";

/** Apps that load at once; each has processes of its own, and the page must stay responsive. */
const startGate = createGate(4);

export class McpApp extends AppAttributes implements Handlers {
  /** The host's own answers to the page's requests; without a gateway they are the only ones. */
  onCallTool: Handlers["onCallTool"];
  onReadResource: Handlers["onReadResource"];
  onListResources: Handlers["onListResources"];
  onListResourceTemplates: Handlers["onListResourceTemplates"];
  onListPrompts: Handlers["onListPrompts"];
  /** Answers requests of other methods than those of MCP Apps; throw an error for those that you do not know. */
  onFallbackRequest: ((request: { method: string; params: Record<string, unknown> }, context: { signal: AbortSignal }) => unknown) | null | undefined;
  /** The page speaks for the person; false refuses the message. */
  onMessage: ((params: McpUiMessageRequest["params"]) => boolean | void | Promise<boolean | void>) | null | undefined;
  /** The page tells the model of its state; each replaces the former. */
  onUpdateModelContext: ((params: McpUiUpdateModelContextRequest["params"]) => unknown) | null | undefined;
  /** The token of this page's person, for a gateway of another origin; or a callback that returns a current one. */
  token: string | null | undefined;
  getToken: (() => string | Promise<string>) | null | undefined;
  /** This page shows what waits for approval, so the app does not. */
  showsApprovals: boolean | undefined;
  /** The name and the version of the host, for apps. */
  hostInfo: { name: string; version: string } | undefined;

  /** The reason for which the tool call was cancelled. */
  cancelled: string | undefined;
  /** The last arguments that were sent while the model wrote them. */
  partialInput: Record<string, unknown> | undefined;

  private readonly listened = new Set<string>();
  private readonly shell: Shell;
  private readonly surface: Surface;
  private session: AppSession | undefined;
  private watching: AbortController | undefined;
  private declared: readonly DisplayMode[] | undefined;
  private mode: DisplayMode = "inline";
  /** The app was shown, or has a tile: from now on, a change of `display-mode` opens or closes it. */
  private begun = false;
  private words: Partial<SurfaceLabels> | undefined;
  private outdated = false;
  private updating = false;
  private timer: ReturnType<typeof setTimeout> | undefined;
  /** Counts showings, so that a late result of an earlier one is dropped. */
  private showing = 0;

  constructor() {
    super();
    const root = this.attachShadow({ mode: "open" });
    this.shell = new Shell(root, () => this.retry());
    this.surface = new Surface({ content: this.shell.content, events: this, onplaced: (mode) => this.receiveMode(mode) });
    root.append(this.surface.element);
  }

  /**
   * The mode in which the app is shown now. Before the element is shown, setting it gives an app in a panel or in the
   * workspace its tile; later it opens the app there, or closes it.
   */
  get displayMode(): DisplayMode {
    return this.mode;
  }
  set displayMode(given: string) {
    this.setValue("display-mode", given);
  }

  /** The words on the tile, and on the buttons of the panel and the workspace; in English by default. */
  get labels(): Partial<SurfaceLabels> | undefined {
    return this.words;
  }
  set labels(labels: Partial<SurfaceLabels> | null | undefined) {
    this.words = labels ?? undefined;
    this.surface.describe({ labels: this.words ?? {} });
  }

  /** The name of the app for people: the label for assistive technology, or the title. */
  get label(): string {
    return this.ariaLabel || this.title || this.app || this.toolName || "App";
  }

  /** The id of the view at the gateway; empty while there is none. */
  get view(): string {
    return this.session?.view ?? "";
  }

  get isInitialized(): boolean {
    return this.session?.isInitialized === true;
  }

  /** The modes that both the host and the app offer; before the app has said, those of the host. */
  get availableDisplayModes(): readonly DisplayMode[] {
    const offered = this.displayModes ?? DISPLAY_MODES;
    return DISPLAY_MODES.filter((mode) => mode === "inline" || (offered.includes(mode) && (this.declared?.includes(mode) ?? true)));
  }

  connectedCallback(): void {
    this.upgradeProperties();
    this.surface.connect();
    this.outdated = true;
    this.scheduleUpdate();
  }

  /** The browser has ended the frame already, unless it was moved by `moveBefore`. */
  disconnectedCallback(): void {
    this.endSession((session) => session.drop());
    this.surface.disconnect();
    releaseApp(this);
    this.watching?.abort();
    this.watching = undefined;
  }

  /** Moved with its state (`moveBefore`): the frame goes on. */
  connectedMoveCallback(): void {
    this.watch();
    this.updateContext();
  }

  override addEventListener<Type extends keyof HTMLElementEventMap>(
    type: Type,
    listener: (this: HTMLElement, event: HTMLElementEventMap[Type]) => unknown,
    options?: boolean | AddEventListenerOptions,
  ): void;
  override addEventListener(type: string, listener: EventListenerOrEventListenerObject, options?: boolean | AddEventListenerOptions): void;
  /** A listener for what only the host can take is a capability. */
  override addEventListener(type: string, listener: never, options?: boolean | AddEventListenerOptions): void {
    this.listened.add(type);
    super.addEventListener(type, listener, options);
  }

  /** Whether the host has this capability: a handler, a listener on the element, or its name in `capabilities`. */
  can(capability: "message" | "update-model-context"): boolean {
    const handler = capability === "message" ? this.onMessage : this.onUpdateModelContext;
    return !!handler || this.listened.has(`mcp-app-${capability}`) || this.capabilities?.includes(capability) === true;
  }

  /** Send changes of the host context, beside those that the element measures itself. */
  sendHostContext(partial: McpUiHostContext): void {
    this.hostContext = { ...this.hostContext, ...partial };
  }

  /** Send the arguments that the model has written so far; only for a `tool-call-id`, and before `tool-input`. */
  sendToolInputPartial(args: Record<string, unknown>): void {
    this.partialInput = args;
    this.session?.tellPartial(args as JsonObject);
  }

  /** Notify the page that the list of tools has changed; over a gateway, the gateway does. */
  sendToolListChanged(): void {
    this.session?.tellListChanged("Tool");
  }

  /** Notify the page that the list of resources has changed. */
  sendResourceListChanged(): void {
    this.session?.tellListChanged("Resource");
  }

  /** Notify the page that the list of prompts has changed. */
  sendPromptListChanged(): void {
    this.session?.tellListChanged("Prompt");
  }

  /** The tool call was cancelled; only for a `tool-call-id`, and before `tool-result`. */
  cancelTool(reason = "cancelled"): void {
    this.cancelled ??= reason;
    this.session?.tellCall();
  }

  /** The tools that the page itself offers. Rejects if it offers none. */
  async listTools(options: { signal?: AbortSignal } = {}): Promise<ListToolsResult> {
    const { signal = new AbortController().signal } = options;
    return (await this.shown().request("tools/list", {}, { signal })) as unknown as ListToolsResult;
  }

  /** Call a tool of the page. */
  async callTool(name: string, args: Record<string, unknown> = {}, options: { signal?: AbortSignal } = {}): Promise<CallToolResult> {
    const { signal = new AbortController().signal } = options;
    return (await this.shown().request("tools/call", { name, arguments: args as JsonObject }, { signal })) as unknown as CallToolResult;
  }

  /** A new transport for one MCP `Client`, which talks to the page's tools. */
  get transport(): Transport {
    const request = (...given: Parameters<AppSession["request"]>): Promise<JsonObject> => this.shown().request(...given);
    const watch = (listener: () => void, signal: AbortSignal): void => super.addEventListener("mcp-app-tools-changed", listener, { signal });
    return new PageToolsTransport({ name: this.label, request, watch });
  }

  /**
   * Let the page save its state (`ui/resource-teardown`, a second at most), then remove its frame. From the call on, the
   * element itself may be removed by any means.
   */
  async teardown(): Promise<void> {
    const session = this.release();
    if (!session) return;
    await session.close();
    announce(this, "mcp-app-teardown", { reason: "closed" });
  }

  /** Behind its tile, the app is one of too many: it is shown anew when it is opened. */
  unload(): void {
    this.outdated = true;
    void this.teardown();
  }

  /** Remove the element; its frame goes on, unseen, until the page has saved its state. */
  override remove(): void {
    this.endSession((session) => void session.close());
    super.remove();
  }

  override replaceWith(...nodes: (Node | string)[]): void {
    this.endSession((session) => void session.close());
    super.replaceWith(...nodes);
  }

  /** Show the app anew. */
  retry(): void {
    this.outdated = true;
    this.scheduleUpdate();
  }

  /**
   * The app asks for a mode; returns the one in effect. A listener may prevent it, or answer with another mode. Without
   * such an answer, only a person's gesture takes an app out of the flow.
   */
  async requestDisplayMode(mode: DisplayMode): Promise<DisplayMode> {
    const from = this.mode;
    const userActivated = navigator.userActivation.isActive;
    const answer = await consult(this, "mcp-app-request-display-mode", { mode, from, userActivated });
    const isAllowed = userActivated || mode === "inline" || answer !== undefined;
    if (answer === "prevented" || !isAllowed) return this.mode;
    const wanted = answer ?? mode;
    return this.availableDisplayModes.includes(wanted) ? this.surface.open(wanted, "page") : this.mode;
  }

  /** The context as the app has it, or will. */
  currentContext(): McpUiHostContext {
    const fills = this.mode !== "inline" || this.sizing === "fill";
    const placement = { displayMode: this.mode, availableDisplayModes: this.availableDisplayModes, fills };
    const measuredAt = this.mode === "inline" ? this : this.shell.content;
    const { displayMode, availableDisplayModes, ...measured } = buildMcpHostContext(measuredAt, placement);
    const own = this.hostContext;
    this.shell.setTheme(own.theme ?? measured.theme);
    return { ...measured, ...this.toolInfo(), ...own, displayMode, availableDisplayModes } as McpUiHostContext;
  }

  protected receiveValue(name: AttributeName): void {
    if (name === "tool-input" || name === "tool-result") return this.session?.tellCall();
    if (name === "display-mode") return this.changeMode();
    if (name === "host-context") return this.updateContext();
    if (name === "display-modes" || name === "sizing") this.offerModes();
    if (name === "title" || name === "aria-label" || name === "mcp-app-id") this.describeSurface();
    const remounts = "remounts" in ATTRIBUTES[name] || name === "tool-call-id";
    if (!remounts || !this.isConnected) return;
    if (name === "tool-call-id") this.cancelled = this.partialInput = undefined;
    this.outdated = true;
    this.scheduleUpdate();
  }

  /** One showing for all changes of a moment. */
  protected scheduleUpdate(): void {
    if (this.updating) return;
    this.updating = true;
    queueMicrotask(() => {
      this.updating = false;
      if (!this.isConnected || !this.outdated || this.hasAttribute(HYDRATING)) return;
      if (!this.begun) this.begin();
      // Behind a tile, nothing is loaded before the person opens it.
      if (!this.surface.isShown) return;
      this.outdated = false;
      void this.show();
    });
  }

  private async show(): Promise<void> {
    this.endSession((former) => void former.close());
    const showing = (this.showing += 1);
    this.declared = undefined;
    this.watch();
    if (!this.title) this.report("bad-attribute", "title: the app's title is required");
    this.shell.showLoading(this.label);
    try {
      const source = this.findSource();
      await startGate(async () => {
        if (showing !== this.showing) return;
        await this.beginSession(source, showing);
      });
    } catch (error) {
      if (showing === this.showing) this.fail("not-opened", error instanceof Error ? error.message : String(error));
    }
  }

  private async beginSession(source: Source, showing: number): Promise<void> {
    const isCurrent = (): boolean => showing === this.showing;
    const session = (this.session = new AppSession(this, this.shell, source, {
      onpage: () => isCurrent() && this.shell.showApp(),
      oninitialize: (params) => isCurrent() && this.receiveInitialize(params),
      oninitialized: () => isCurrent() && this.receiveInitialized(),
      onended: (ending) => isCurrent() && this.receiveEnding(ending),
      onproblem: (problem) => this.report("bad-attribute", problem),
    }));
    await new Promise<void>((resolve, reject) => {
      this.timer = setTimeout(() => {
        if (isCurrent()) this.receiveTimeout();
        resolve(); // others start meanwhile
      }, this.timeout * 1000);
      session.show().then(resolve, (error: unknown) => (isCurrent() ? reject(error) : resolve()));
    });
  }

  private findSource(): Source {
    const { gateway, app, upstream, resourceUri = "", resourceHtml: html, sandboxUrl } = this;
    if (gateway !== undefined) {
      if (!app && !(upstream && resourceUri)) throw new TypeError("app: it is missing; or `upstream` with `resource-uri`");
      const source = app ? { app } : { upstream: upstream!, resource: resourceUri };
      return { kind: "gateway", gateway: gatewayAt(gatewayBase(gateway), this), app: source, html };
    }
    if (!sandboxUrl) throw new TypeError("gateway: it is missing; without a gateway, `sandbox-url` names the sandbox proxy");
    if (html === undefined && !(resourceUri && this.onReadResource)) {
      throw new TypeError("resource-html: it is missing; or `resource-uri` with the handler `onReadResource`");
    }
    const meta = this.resourceMeta as Extract<Source, { kind: "handlers" }>["page"]["meta"];
    return { kind: "handlers", page: { uri: resourceUri || "ui://app/index.html", html, meta }, sandboxUrl };
  }

  private receiveInitialize({ appInfo, appCapabilities = {}, protocolVersion = "" }: InitializeParams): void {
    const { availableDisplayModes: modes } = appCapabilities;
    // The gateway's own apps are web pages, at home in windows of any size; most of them declare nothing.
    const isWebPage = modes === undefined && this.app !== undefined;
    this.declared = modes === undefined ? DISPLAY_MODES : DISPLAY_MODES.filter((mode) => Array.isArray(modes) && modes.includes(mode));
    // Others that declare nothing stay in the flow, until they ask for another mode themselves.
    if (modes === undefined && !isWebPage) this.surface.offer(["inline"]);
    this.offerModes();
    this.session?.setHostContext(this.currentContext());
    announce(this, "mcp-app-initialize", { appInfo: appInfo ?? null, appCapabilities, protocolVersion });
    this.appCapabilities = appCapabilities;
  }

  /** The capabilities that the app declared; null before. */
  appCapabilities: McpUiAppCapabilities | null = null;

  private receiveInitialized(): void {
    clearTimeout(this.timer);
    this.shell.showApp();
    announce(this, "mcp-app-initialized", { appCapabilities: this.appCapabilities ?? {} });
  }

  /** The frame stays: a page that does not speak MCP Apps can be useful, and a slow one may follow. */
  private receiveTimeout(): void {
    this.shell.showError(this.fallback, `The app was not initialized within ${this.timeout} seconds.`);
    this.report("timeout", `the app was not initialized within ${this.timeout} s`);
  }

  private receiveEnding({ reason, text }: Ending): void {
    this.release();
    if (reason === "closed") announce(this, "mcp-app-teardown", { reason });
    else this.fail("ended", text);
  }

  private get fallback(): string {
    return this.fallbackText || `${this.label} cannot be shown.`;
  }

  private fail(code: ErrorCode, problem: string): void {
    this.endSession((session) => session.drop());
    this.shell.showError(this.fallback, problem);
    this.report(code, problem);
  }

  protected report(code: ErrorCode, message: string): void {
    console.warn(`mcp-app: ${code}: ${message}`);
    announce(this, "mcp-app-error", { code, message });
  }

  /** The element is shown for the first time: where, is its own decision. */
  private begin(): void {
    this.describeSurface();
    this.changeMode();
    this.begun = true;
  }

  /** `display-mode` changed: before the first showing it is the place of the app, later a wish of the host. */
  private changeMode(): void {
    const wanted = (this.getValue("display-mode") as DisplayMode | undefined) ?? "inline";
    const mode = this.availableDisplayModes.includes(wanted) ? wanted : "inline";
    if (this.begun) this.surface.open(mode, "host");
    else this.surface.describe({ home: mode });
  }

  /** The app's modes, or the host's, are others now. */
  private offerModes(): void {
    this.shell.setFrame({ fills: this.mode !== "inline" || this.sizing === "fill" });
    if (this.declared) this.surface.offer(this.availableDisplayModes);
    this.updateContext();
  }

  private describeSurface(): void {
    const { title, ariaLabel, mcpAppId } = this;
    this.surface.describe({ title: title || this.label, label: ariaLabel && ariaLabel !== title ? ariaLabel : null, id: mcpAppId ?? null });
  }

  /** The app is somewhere else now. */
  private receiveMode(mode: DisplayMode): void {
    const from = this.mode;
    this.mode = mode;
    this.setAttribute("data-mode", mode);
    this.shell.setFrame({ fills: mode !== "inline" || this.sizing === "fill" });
    if (this.outdated) this.scheduleUpdate();
    if (this.session && !this.surface.isShown) keepApp(this);
    else releaseApp(this);
    if (mode === from) return;
    this.updateContext();
    if (this.session) this.watch();
    announce(this, "mcp-app-display-mode-changed", { mode, from });
  }

  /** The app prefers a border around itself. */
  setBorder(bordered: boolean): void {
    this.surface.describe({ bordered });
  }

  private updateContext(): void {
    if (this.session && this.isConnected && this.surface.isShown) this.session.setHostContext(this.currentContext());
  }

  private watch(): void {
    this.watching?.abort();
    this.watching = new AbortController();
    watchHostContext(this.shell.content, () => this.updateContext(), this.watching.signal);
  }

  private toolInfo(): Pick<McpUiHostContext, "toolInfo"> {
    const { toolCallId: id, toolName: name } = this;
    if (!id || !name) return {};
    const listed = this.tools?.find((tool) => tool.name === name);
    return { toolInfo: { id, tool: { inputSchema: { type: "object" }, ...listed, name } } } as Pick<McpUiHostContext, "toolInfo">;
  }

  private shown(): AppSession {
    if (!this.session) throw new TypeError("the app is not shown");
    return this.session;
  }

  private release(): AppSession | undefined {
    const { session } = this;
    clearTimeout(this.timer);
    this.session = undefined;
    this.showing += 1;
    return session;
  }

  private endSession(end: (session: AppSession) => void): void {
    const session = this.release();
    if (session) end(session);
  }
}

/** Define the element, once; outside of a browser, nothing happens. */
export function defineMcpApp(name = "mcp-app"): void {
  if (typeof customElements !== "undefined" && !customElements.get(name)) customElements.define(name, McpApp);
}
