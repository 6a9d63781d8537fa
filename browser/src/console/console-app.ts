/** The page: its layout, and the interactions of its parts. */
import { html, LitElement, nothing, type PropertyValues, type TemplateResult } from "lit";
import { customElement, property, query, state } from "lit/decorators.js";
import "./advice-page";
import "./nodes-page";
import "./app-frame";
import type { Mount } from "./app-frame";
import "./approval-page";
import "./approvals-panel";
import { titleFor, uncover } from "./attention";
import { callTool, stageOf, toolsOf, type Target } from "./callers";
import "./console-header";
import { count } from "./format";
import { icon } from "./icons";
import { layout } from "./layout-styles";
import { Model, type ToolResult } from "./model";
import "./connections-page";
import { appHash, approvalHash, parseRoute, type ConnectionsRoute, type Route } from "./route";
import type { Store } from "./store";
import type { Story } from "./story";
import { Notifier } from "./notifier";
import "./problems-banner";
import "./story-bar";
import { base, buttons } from "./styles";
import "./timeline-panel";
import "./tools-panel";
import type { Answer, AppInfo, JsonObject, ViewTool } from "./types";

const NAME = "webmcp-gateway";
const EXCLUDED =
  "Ask an administrator for access: `roles.user` and the `access` of each app in gateway.yaml say who may use it. " +
  "When you may, the apps appear here; if your role was changed where you log in, log in again.";
const NO_APPS = "Name an app under `apps:` in gateway.yaml; it appears here within two seconds.";

@customElement("gateway-console")
export class ConsoleApp extends LitElement {
  static override styles = [base, buttons, layout];

  @property({ attribute: false }) store: Store | undefined;
  @property({ attribute: false }) mount: Mount | undefined;

  @state() private route: Route = parseRoute(location);
  @state() private view = "";
  /** The announcement for screen readers. */
  @state() private news = "";
  @state() private approvalsInView = true;

  @query("gateway-approvals") private panel!: HTMLElement | null;

  private readonly notifier = new Notifier();
  private following: AbortController | undefined;
  private known: ReadonlySet<string> = new Set();
  private titles: ReadonlyMap<string, string> = new Map();
  private model: Model | undefined;
  private modelOf = "";
  private observed: HTMLElement | null = null;
  private readonly sight = new IntersectionObserver(
    ([entry]) => (this.approvalsInView = entry?.isIntersecting ?? true),
  );

  override connectedCallback(): void {
    super.connectedCallback();
    window.addEventListener("hashchange", this.onHash);
    window.addEventListener("popstate", this.onHash);
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    window.removeEventListener("hashchange", this.onHash);
    window.removeEventListener("popstate", this.onHash);
    this.sight.disconnect();
    this.following?.abort();
  }

  showApprovals(): void {
    this.panel?.scrollIntoView({ behavior: "smooth", block: "nearest" });
    const glow = { outline: "3px solid var(--glow)", outlineOffset: "3px", borderRadius: "var(--radius)" };
    this.panel?.animate([glow, { ...glow, outlineColor: "transparent" }], { duration: 900, easing: "ease-in" });
  }

  protected override willUpdate(changed: PropertyValues): void {
    if (changed.has("store") && this.store) this.follow(this.store);
  }

  protected override updated(): void {
    if (this.panel === this.observed) return;
    this.sight.disconnect();
    this.observed = this.panel;
    if (this.panel) this.sight.observe(this.panel);
    else this.approvalsInView = true;
  }

  protected override render(): TemplateResult | typeof nothing {
    const { store, route } = this;
    if (!store) return nothing;
    const app = route.page === "app" ? this.appOf(route.app) : undefined;
    return html`<gateway-header
        .gateway=${store.state}
        .app=${app?.id}
        .link=${store.link}
        .problem=${store.problem}
        @leave=${() => void store.leave()}
        @pick=${(event: CustomEvent<string>) => (location.hash = appHash(event.detail))}
      ></gateway-header>
      ${store.state && store.link === "lost" ? this.banner(store) : nothing}
      ${store.notices.length ? html`<gateway-problems .problems=${store.notices}></gateway-problems>` : nothing}
      <div class="quiet" role="alert">${this.news}</div>
      ${route.page === "nodes" ? html`<gateway-nodes .api=${store.api} .views=${store.liveViews}></gateway-nodes>` : route.page === "advice" ? this.advice(store, route.app) : route.page === "connections" ? this.connections(store, route) : route.page === "approval" ? this.approval(store, route.id) : app ? this.main(store, app) : this.noAppPage(store)}`;
  }

  private main(store: Store, app: AppInfo): TemplateResult {
    const questions = store.state?.asks === false ? [] : store.questions;
    const live = store.link === "open";
    const tools = toolsOf(this.target());
    const { story } = app;
    return html`<main>
      <h1 class="quiet">${app.title}</h1>
      <section class="app" aria-label=${app.title}>
        <gateway-frame
          .app=${app}
          .live=${store.state?.live ?? false}
          .mount=${this.mount}
          @view=${(event: CustomEvent<string>) => (this.view = event.detail)}
        ></gateway-frame>
        ${story ? this.storyBar(story, live && tools.length > 0, questions.length > 0) : nothing}
      </section>
      <div class="side">
        <gateway-approvals
          class=${questions.length ? "asks" : ""}
          .questions=${questions}
          .titles=${this.titles}
          .now=${this.now}
          .answer=${this.answer}
          .grants=${store.currentGrants}
          .revoke=${this.revoke}
          .api=${store.api}
          .notifier=${this.notifier}
        ></gateway-approvals>
        <gateway-tools .tools=${tools} .view=${this.view} .call=${this.call} .enabled=${live}></gateway-tools>
        <gateway-timeline
          .lines=${store.lines}
          .questions=${questions}
          .app=${app.id}
          .upstream=${app.upstream}
          .now=${this.now}
        ></gateway-timeline>
      </div>
      ${questions.length && !this.approvalsInView ? this.toast(questions.length) : nothing}
    </main>`;
  }

  private storyBar(story: Story, enabled: boolean, asks: boolean): TemplateResult {
    return html`<gateway-story .story=${story} .stage=${this.stage} .enabled=${enabled} .asks=${asks}></gateway-story>`;
  }

  private approval(store: Store, id: string): TemplateResult {
    return html`<gateway-approval-page
      .questions=${store.questions}
      .approval=${id}
      .titles=${this.titles}
      .loading=${!store.asked}
      .now=${this.now}
      .answer=${this.answer}
      .api=${store.api}
      .home=${store.api.root}
    ></gateway-approval-page>`;
  }

  private connections({ api, state: gateway }: Store, route: ConnectionsRoute): TemplateResult | typeof nothing {
    if (!gateway) return messagePage("One moment", "Connecting to the gateway…");
    return html`<gateway-connections .api=${api} .route=${route} .person=${gateway.principal.name}></gateway-connections>`;
  }

  private advice({ api }: Store, app: string): TemplateResult {
    return html`<gateway-advice .api=${api} .app=${app}></gateway-advice>`;
  }

  private noAppPage({ state: gateway, link, problem }: Store): TemplateResult {
    if (!gateway && link === "lost") return messagePage("The gateway does not answer", `${problem} Trying again…`);
    if (!gateway) return messagePage("One moment", "Connecting to the gateway…");
    if (gateway.apps.length === 0 && gateway.excluded) return messagePage("You may not use any app here", EXCLUDED);
    if (gateway.apps.length === 0) return messagePage("No apps yet", NO_APPS);
    const links = gateway.apps.map((app) => html`<li><a class="button" href=${appHash(app.id)}>${app.title}</a></li>`);
    return messagePage(
      "There is no such app here",
      "This gateway has:",
      html`<ul>
        ${links}
      </ul>`,
    );
  }

  private banner({ problem }: Store): TemplateResult {
    return html`<div class="banner" role="status" data-testid="banner">
      ${icon("alert")}<span>${problem} Trying again…</span>
    </div>`;
  }

  private toast(waiting: number): TemplateResult {
    return html`<button class="toast" @click=${() => this.showApprovals()}>
      ${icon("shield")} ${count(waiting, "approval waits", "approvals wait")} for you
    </button>`;
  }

  private follow(store: Store): void {
    this.following?.abort();
    this.following = new AbortController();
    store.addEventListener("change", () => this.onStoreChange(store), { signal: this.following.signal });
    void store.run(this.following.signal);
  }

  private onStoreChange(store: Store): void {
    const fresh = store.questions.filter((question) => !this.known.has(question.id));
    this.known = new Set(store.questions.map((question) => question.id));
    this.titles = new Map(store.state?.apps.map((app) => [app.id, app.title]));
    if (fresh.length) uncover();
    if (store.state?.asks !== false) this.notifier.follow(store.questions, fresh, (id) => (location.hash = approvalHash(id)));
    if (fresh.length) this.news = `Approval needed: ${fresh.map((question) => question.message).join("; ")}`;
    document.title = titleFor(store.questions.length, NAME);
    this.requestUpdate();
  }

  private appOf(id: string | undefined): AppInfo | undefined {
    const apps = this.store?.state?.apps ?? [];
    return id === undefined ? apps[0] : apps.find((app) => app.id === id);
  }

  private target(): Target {
    const app = this.route.page === "app" ? this.appOf(this.route.app) : undefined;
    return { view: this.view, app: app?.id ?? "", views: this.store?.liveViews ?? [] };
  }

  /** The MCP client of the shown app. */
  private client(): Model {
    const { app } = this.target();
    const store = this.store as Store;
    if (!this.model || this.modelOf !== app) {
      this.model = new Model(store.api.url(`mcp/${encodeURIComponent(app)}`), store.state?.version ?? "0");
      this.modelOf = app;
    }
    return this.model;
  }

  private readonly onHash = (): void => {
    this.route = parseRoute(location);
  };
  private readonly now = (): number => this.store?.api.now() ?? Date.now() / 1000;
  private readonly answer = (id: string, answer: Answer, grant: boolean): Promise<void> =>
    (this.store as Store).answer(id, answer, grant);
  private readonly revoke = (id: string): Promise<void> => (this.store as Store).api.revoke(id);
  private readonly call = (tool: ViewTool, args: JsonObject, signal: AbortSignal): Promise<ToolResult> =>
    callTool(this.client(), this.target(), tool, args, signal);
  private readonly stage = stageOf(
    () => this.client(),
    () => this.target(),
  );
}

function messagePage(heading: string, words: string, more: TemplateResult | typeof nothing = nothing): TemplateResult {
  return html`<main class="alone">
    <h1>${heading}</h1>
    <p>${words}</p>
    ${more}
  </main>`;
}
