/** One app on a host page: a view on the bridge, a sandboxed iframe, and the two conversations between them. */
import { AppBridge } from "@modelcontextprotocol/ext-apps/app-bridge";
import type { McpUiAppCapabilities, McpUiHostContext, McpUiResourceMeta, McpUiSizeChangedNotification } from "@modelcontextprotocol/ext-apps/app-bridge";
import { isObject, type JsonObject } from "../mux";
import { BridgeError, type BridgeView, type CallOptions, type ViewEvents } from "./bridge-view";
import { answerPage, capabilitiesOf, OF_PAGE, type GatewayRequests, type PersonAnswers } from "./page-requests";
import { readPage, type Page } from "./page-resource";
import { allowAttribute } from "./sandbox/rules";
import { placeFrame, proxyAddress, type FrameAddress } from "./frames";
import { PageLink } from "./page-link";
import { withFirstScript } from "./first-script";
import type { Blocked } from "./page-messages";
import { noticeOf, OPENED_BY_PERSON, sendNotice, type ToolNotice } from "./tool-notices";

const TEARDOWN_TIMEOUT = 1000;
const LARGEST_HEIGHT = 10_000;
/** Notifications that wait for a page. */
const MAX_NOTICES = 64;

/** The reason for which an app is no longer shown; `text` is for the person. */
export interface Ending {
  reason: "closed" | "closed-by-gateway" | "left" | "flooded" | "failed";
  text: string;
}

/** A view as its app needs it: on the bridge, or answered by the host page itself. */
export type AppView = Pick<BridgeView, "id" | "resource" | "call" | "sendWebmcp" | "gesture" | "focus" | "close">;

export interface MountOptions extends PersonAnswers, GatewayRequests {
  /** The parent of the iframe. */
  container: HTMLElement | ShadowRoot;
  /** Opens views; see `connectBridge`. */
  bridge: { open(app: string, events: ViewEvents): Promise<AppView> };
  app: string;
  /** The name of the iframe for assistive technology; by default the app's. */
  label?: string;
  /** The sandbox proxy's signed address from the gateway. */
  sandboxUrl: string;
  /** The expected address of the frame: it is loaded while the page is read. */
  expected?: FrameAddress | null;
  hostInfo?: { name: string; version: string };
  /** Theme, locale and the like; `setHostContext` changes them. */
  hostContext?: McpUiHostContext;
  /** This page shows what waits for approval, so the view does not. */
  showsApprovals?: boolean;
  /** The page around the app notifies it of tool calls, by `tell`; by default, the gateway does. */
  tellsTools?: boolean;
  /** The page around the app shows why it ended; by default, a text replaces the iframe. */
  showsEndings?: boolean;
  /** The view has this id from now on: at first, and after a reload or a restart of the gateway. */
  onview?: (view: string) => void;
  onToolsChanged?: () => void;
  onended?: (ending: Ending) => void;
  /** The content security policy blocked a feature that the configuration of the app's MCP server can permit. */
  onblocked?: (what: Blocked) => void;
  /** The sandbox proxy is loaded. */
  onproxyready?: () => void;
  /** The page was passed to the sandbox proxy, at this address. */
  onpage?: (page: Page, frame: FrameAddress) => void;
  /** The page sent `ui/initialize`; what is changed in `hostContext` before this returns is in the answer. */
  oninitialize?: (params: InitializeParams) => void;
  /** The page sent `ui/notifications/initialized`. */
  oninitialized?: () => void;
  /** The page asks to be closed; by default it is. */
  onteardownrequest?: () => void;
  /** By default, the height of the iframe follows the page. */
  onsizechange?: (size: McpUiSizeChangedNotification["params"]) => void;
}

export interface InitializeParams {
  appInfo?: { name: string; version: string };
  appCapabilities?: McpUiAppCapabilities;
  protocolVersion?: string;
}

/** Show an app. Rejects with BridgeError if the gateway refuses the view or its page. */
export async function mountApp(options: MountOptions): Promise<MountedApp> {
  const mounted = new MountedApp(options);
  try {
    await mounted.show();
  } catch (error) {
    mounted.end({ reason: "failed", text: `${options.app} could not be shown.` });
    throw error;
  }
  return mounted;
}

export class MountedApp {
  private readonly options: MountOptions;
  private readonly origin: string;
  private readonly url: URL;
  /** The context as the page has it, or will; the bridge's answer to `ui/initialize` is this object. */
  private readonly hostContext: McpUiHostContext;
  /** The context of that answer, since changes before `initialized` are sent after it. */
  private answered: McpUiHostContext = {};
  private open: AppView | null = null;
  private frame: HTMLIFrameElement | null = null;
  private link: PageLink | null = null;
  /** Messages of the gateway to the page's tools before the page was loaded. */
  private early: JsonObject[] = [];
  /** Notifications of a model's call for a page that is not loaded yet. */
  private calls: ToolNotice[] = [];
  /** The page sent `initialized`: before that it receives no notification (MCP Apps, lifecycle). */
  private initialized = false;
  private greeted = false;
  /** The page received the input of a call, or will when it is loaded: a page receives only one. */
  private told = false;
  private renewing = false;
  private apps: AppBridge | null = null;
  private meta: McpUiResourceMeta = {};
  private announcePage = (): void => {};
  /** The tool whose result the app shows. */
  private tool: string | null = null;
  private ended = false;
  /** The number of the shown page: an answer for an older one is outdated. */
  private generation = 0;

  constructor(options: MountOptions) {
    this.options = options;
    this.url = proxyAddress(options.sandboxUrl);
    // The proxy answers to this page only; its frame-ancestors decide whether this page is permitted.
    if (!this.url.searchParams.has("host")) this.url.searchParams.set("host", location.origin);
    this.origin = this.url.origin;
    this.hostContext = { ...options.hostContext, ...this.gatewayContext() };
    window.addEventListener("blur", this.reportFocus);
  }

  /** The id of the current view. */
  get view(): string {
    return this.open?.id ?? "";
  }

  get iframe(): HTMLIFrameElement | null {
    return this.frame;
  }

  /** The ui protocol of an initialized page, for the requests of this page to it. */
  get page(): AppBridge | null {
    return this.initialized ? this.apps : null;
  }

  /** Call the gateway about the tools of the page. */
  callPageTools(method: "tools/list" | "tools/call", params: JsonObject, options: CallOptions): Promise<JsonObject> {
    if (!this.open) throw new BridgeError(-32000, "connection-lost");
    const meta = params["_meta"];
    return this.open.call(method, { ...params, _meta: { ...(isObject(meta) ? meta : {}), [OF_PAGE]: true } }, options);
  }

  /** Open a view, and load its page. */
  async show(): Promise<void> {
    const generation = (this.generation += 1);
    const { expected } = this.options;
    if (expected && new URL(expected.url, document.baseURI).origin === this.origin) this.startFrame(expected);
    const open = await this.openView();
    if (generation !== this.generation) return open.close("gone");
    this.adopt(open);
    const page = await readPage(open);
    if (generation !== this.generation) return;
    await this.load(page);
  }

  /** Show the app anew: another iframe, another view. */
  async reload(): Promise<void> {
    if (this.ended) return;
    await this.tearDown("reload");
    if (!this.ended) await this.show();
  }

  /** Let the page save its state, then end it. */
  async close(): Promise<void> {
    if (this.ended) return;
    await this.tearDown("gone");
    this.end({ reason: "closed", text: "" });
  }

  /** Change members of the context, such as the theme; the page receives those that changed. */
  setHostContext(context: McpUiHostContext): void {
    const changes = changedMembers(this.hostContext, context);
    Object.assign(this.hostContext, changes);
    if (this.initialized && Object.keys(changes).length > 0) void this.apps?.sendHostContextChange(changes);
  }

  private gatewayContext(): McpUiHostContext {
    if (this.options.isBridged === false) return {};
    return { "webmcp-gateway": { bridge: true, approvals: this.options.showsApprovals === true } };
  }

  /**
   * Notify the page of the model's call that opens it, or once it is loaded. Each page is notified of one call: another
   * call begins in a new view.
   */
  tell(notice: ToolNotice): void {
    const whole = notice.is === "tool-input";
    const another = this.told && (whole || notice.is === "tool-input-partial");
    this.told = whole || (this.told && !another);
    if (another) {
      this.calls = [notice];
      void this.renew();
    } else if (this.apps && this.greeted && !this.renewing) void sendNotice(this.apps, notice);
    else if (this.calls.length < MAX_NOTICES) this.calls.push(notice);
  }

  /** End at once; a text replaces the iframe. */
  end(ending: Ending): void {
    if (this.ended) return;
    this.ended = true;
    this.generation += 1;
    window.removeEventListener("blur", this.reportFocus);
    this.open?.close(ending.reason);
    this.open = null;
    this.dropFrame();
    if (ending.text && !this.options.showsEndings) this.leaveNotice(ending.text);
    this.options.onended?.(ending);
  }

  /** Show the app anew for the notifications in `calls`. */
  private async renew(): Promise<void> {
    if (this.renewing) return;
    this.renewing = true;
    try {
      await this.reload();
    } catch {
      this.end({ reason: "failed", text: `${this.options.app} could not be opened again.` });
    } finally {
      this.renewing = false;
    }
  }

  private openView(): Promise<AppView> {
    let mine: AppView | null = null;
    const isMine = (): boolean => mine !== null && mine === this.open;
    const opening = this.options.bridge.open(this.options.app, {
      webmcp: (message) => isMine() && this.tellTools(message),
      notification: (message) => isMine() && this.passNotification(message),
      closed: (reason) => isMine() && this.closeByGateway(reason),
      lost: () => isMine() && void this.reopen(),
    });
    return opening.then((view) => (mine = view));
  }

  private adopt(open: AppView): void {
    this.open = open;
    this.options.onview?.(open.id);
  }

  private tellTools(message: JsonObject): void {
    if (this.link) this.link.sendWebmcp(message);
    else this.early.push(message);
  }

  /** The page continues with a new view: it reloaded in place, or the gateway has lost the old one. */
  private async reopen(): Promise<boolean> {
    const generation = (this.generation += 1);
    this.open = null;
    this.link?.expectTools();
    try {
      const open = await this.openView();
      if (generation === this.generation) this.adopt(open);
      else open.close("gone");
    } catch (error) {
      const why = error instanceof BridgeError || error instanceof TypeError ? ` ${error.message}` : "";
      const text = `${this.options.app} could not be opened again.${why}`;
      if (generation === this.generation) this.end({ reason: "failed", text });
    }
    return generation === this.generation && this.open !== null;
  }

  private async load({ meta, sandbox, tool, ...page }: Page): Promise<void> {
    const address = { url: sandbox ?? this.url.href, allow: allowAttribute(meta.permissions) };
    if (new URL(address.url).origin !== this.origin) throw new TypeError("the sandbox of an app must be of the gateway's origin for it");
    const link = this.startFrame(address);
    this.meta = meta;
    this.tool = tool;
    this.announcePage = () => this.options.onpage?.({ meta, sandbox, tool, ...page }, address);
    const html = sandbox === null || page.document !== null ? page.html : withFirstScript(page.html);
    await this.connect(link, { ...page, html });
    link.expectTools();
    for (const message of this.early.splice(0)) link.sendWebmcp(message);
  }

  /** Load the frame of this address, unless it is there already. */
  private startFrame({ url, allow }: FrameAddress): PageLink {
    const address = new URL(url, document.baseURI).href;
    if (this.link && this.frame?.src === address && this.frame.allow === allow) return this.link;
    this.link?.close();
    this.frame?.remove();
    const { frame, ready } = placeFrame({ url: address, allow }, this.options.container);
    frame.title = this.options.label ?? this.options.app;
    this.frame = frame;
    const window = frame.contentWindow;
    if (!window) throw new TypeError("the container must be in the document");
    return (this.link = this.linkTo(window, ready));
  }

  private linkTo(page: Window, isReady: boolean): PageLink {
    return new PageLink(page, this.origin, {
      onWebmcp: (message) => this.receiveTools(message),
      onInitialize: (params) => this.receiveInitialize(params),
      onGesture: (age) => this.open?.gesture(age),
      onReload: () => void this.handleReload(),
      onEmpty: () => void this.reload(),
      onLeave: (unreachable) => {
        const text =
          unreachable === undefined
            ? `${this.options.app} went to another page, which cannot be shown in its place.`
            : `${this.options.app} could not be loaded from its own origin, ${unreachable} (server.origins.dedicated).`;
        this.end({ reason: "left", text });
      },
      onDocumentWanted: () => void this.sendDocument(),
      onBlocked: (what) => this.options.onblocked?.(what),
      onFlood: () => {
        this.end({ reason: "flooded", text: `${this.options.app} was closed: it sent too many messages.` });
      },
    }, isReady);
  }

  /** Name a new address to a page that reloads: the former was used. */
  private async sendDocument(): Promise<void> {
    const { open, apps } = this;
    if (!open || !apps) return;
    try {
      const page = await readPage(open);
      if (apps === this.apps) await this.sendPage(apps, page);
    } catch {
      if (apps === this.apps) this.end({ reason: "failed", text: `${this.options.app} could not be loaded again.` });
    }
  }

  private sendPage(apps: AppBridge, { html, document }: Pick<Page, "html" | "document">): Promise<void> {
    const { permissions, csp } = this.meta;
    const rest = { ...(document !== null && { document }), ...(permissions && { permissions }) };
    // The gateway's signed address has the policy already.
    return apps.sendSandboxResourceReady({ html, ...rest, ...(this.options.isBridged === false && { csp: csp ?? {} }) });
  }

  /** Connect the ui protocol; `page` is for a proxy that has none yet. */
  private async connect(link: PageLink, page: Pick<Page, "html" | "document"> | null): Promise<void> {
    const { options } = this;
    const capabilities = capabilitiesOf(options, this.meta);
    const apps = new AppBridge(null, options.hostInfo ?? { name: "webmcp-gateway", version: "1" }, capabilities, {
      hostContext: this.hostContext,
    });
    answerPage(apps, () => this.open, options);
    apps.onsizechange = options.onsizechange ?? (({ height }) => this.resizeFrame(height));
    apps.onrequestteardown = options.onteardownrequest ?? (() => void this.close());
    apps.setNotificationHandler("notifications/tools/list_changed", () => options.onToolsChanged?.());
    apps.addEventListener("initialized", () => void this.greet(apps));
    if (page !== null) {
      const loadOnce = (): void => {
        apps.removeEventListener("sandboxready", loadOnce);
        options.onproxyready?.();
        void this.sendPage(apps, page);
        this.announcePage();
      };
      apps.addEventListener("sandboxready", loadOnce);
    }
    this.apps = apps;
    this.initialized = this.greeted = false;
    this.told = this.calls.some(({ is }) => is === "tool-input");
    await apps.connect(link.uiTransport());
  }

  /** Send the first notifications: the model's call that opens the page, or that the person did. */
  private async greet(apps: AppBridge): Promise<void> {
    this.initialized = true;
    const changes = changedMembers(this.answered, this.hostContext);
    if (Object.keys(changes).length > 0) await apps.sendHostContextChange(changes);
    this.options.oninitialized?.();
    if (!this.calls.length && !this.options.tellsTools) {
      this.told = true;
      await sendNotice(apps, OPENED_BY_PERSON);
      const outcome = await this.opening();
      if (apps !== this.apps) return; // another page has replaced it
      if (outcome) this.calls.unshift(outcome);
    }
    this.greeted = true;
    for (const notice of this.calls.splice(0)) await sendNotice(apps, notice);
  }

  private receiveInitialize(params: JsonObject): void {
    this.options.oninitialize?.(params as InitializeParams);
    this.answered = { ...this.hostContext };
  }

  /** The initial data of an app that the person opened: the result of its tool, if it has one. */
  private async opening(): Promise<ToolNotice | null> {
    const { open, tool } = this;
    if (tool === null || !open) return null;
    try {
      const params = await open.call("tools/call", { name: tool, arguments: {} });
      return { is: "tool-result", params: params as Extract<ToolNotice, { is: "tool-result" }>["params"] };
    } catch (error) {
      return { is: "tool-cancelled", params: { reason: error instanceof Error ? error.message : String(error) } };
    }
  }

  private async handleReload(): Promise<void> {
    const { link } = this;
    this.open?.close("reload");
    void this.apps?.close();
    this.apps = null;
    const reopened = await this.reopen();
    if (link && reopened) await this.connect(link, null);
  }

  private receiveTools(message: JsonObject): void {
    this.open?.sendWebmcp(message);
    const result = message["result"] as { tools?: unknown } | undefined;
    if (message["method"] === "notifications/tools/list_changed" || Array.isArray(result?.tools)) this.options.onToolsChanged?.();
  }

  private passNotification(message: JsonObject): void {
    const notice = noticeOf(message);
    if (notice) return this.options.tellsTools ? undefined : this.tell(notice);
    if (!this.initialized) return; // it requests everything first
    switch (message["method"]) {
      case "notifications/tools/list_changed":
        return void this.apps?.sendToolListChanged();
      case "notifications/resources/list_changed":
        return void this.apps?.sendResourceListChanged();
      case "notifications/prompts/list_changed":
        return void this.apps?.sendPromptListChanged();
      case "notifications/message": // logs of an upstream about the page's own call
        return void this.apps?.notification({ method: "notifications/message", params: message["params"] as JsonObject });
    }
  }

  private closeByGateway(reason: string): void {
    this.open = null;
    this.end({ reason: "closed-by-gateway", text: `The gateway closed ${this.options.app}: ${reason}` });
  }

  private async tearDown(reason: string): Promise<void> {
    this.generation += 1;
    if (this.initialized) await this.apps?.teardownResource({}, { timeout: TEARDOWN_TIMEOUT }).catch(() => undefined);
    this.open?.close(reason);
    this.open = null;
    this.dropFrame();
  }

  private dropFrame(): void {
    void this.apps?.close();
    this.link?.close();
    this.frame?.remove();
    this.apps = this.link = this.frame = null;
    this.early = [];
  }

  private leaveNotice(text: string): void {
    const notice = document.createElement("p");
    notice.setAttribute("role", "alert");
    notice.textContent = text;
    this.options.container.append(notice);
  }

  /** Give the iframe the height that the page asks for. */
  resizeFrame(height: number | undefined): void {
    if (!this.frame || height === undefined) return;
    this.frame.style.height = `${Math.min(Math.max(0, height), LARGEST_HEIGHT)}px`;
  }

  /** The window loses the focus to the iframe. */
  private readonly reportFocus = (): void => {
    const root = this.frame?.getRootNode();
    // In a shadow root the document reports only its host as focused.
    if ((root instanceof Document || root instanceof ShadowRoot) && root.activeElement === this.frame) this.open?.focus();
  };
}

/** The members of `context` that differ from those of `before`. */
function changedMembers(before: McpUiHostContext, context: McpUiHostContext): McpUiHostContext {
  const changed = Object.entries(context).filter(([name, value]) => JSON.stringify(before[name]) !== JSON.stringify(value));
  return Object.fromEntries(changed);
}
