/** The person's accounts at other services: list, connect and disconnect them. */
import { css, html, LitElement, nothing, type TemplateResult } from "lit";
import { customElement, property, state } from "lit/decorators.js";
import type { Api } from "./api";
import { connectionsHash, type ConnectionsRoute } from "./route";
import { base, buttons, narrowPage } from "./styles";
import type { Account, Accounts } from "./types";

/** The session storage key for the secret of a login that this window began; other windows and sites cannot read it. */
const SECRET_KEY = "webmcp-gateway-connect";

@customElement("gateway-connections")
export class ConnectionsPage extends LitElement {
  static override styles = [
    base,
    buttons,
    narrowPage,
    css`
      li {
        display: grid;
        grid-template-columns: 1fr auto;
        gap: 4px 16px;
        align-items: center;
        padding: 16px;
      }
      li + li {
        border-top: 1px solid var(--line);
      }
      .words {
        padding: 24px;
      }
      li > * {
        grid-column: 1;
        overflow-wrap: anywhere;
      }
      li > button {
        grid-column: 2;
        grid-row: 1 / span 2;
      }
      .problem {
        color: var(--bad);
      }
    `,
  ];

  @property({ attribute: false }) api!: Api;
  @property({ attribute: false }) route!: ConnectionsRoute;
  @property({ attribute: false }) person = "";

  @state() private accounts: Accounts | undefined;
  @state() private problem = "";
  @state() private news = "";
  @state() private busy = false;

  override connectedCallback(): void {
    super.connectedCallback();
    void this.runTask(async () => {
      if (this.route.answer) await this.finish(this.route.answer);
      await this.load();
    });
  }

  protected override render(): TemplateResult {
    const { name, audience } = this.route;
    const foreign = audience !== "" && this.accounts !== undefined && audience !== this.accounts.for;
    const shown = this.accounts?.connections.filter((one) => name === "" || one.credential === name) ?? [];
    return html`<main>
      <h1>${name && shown[0] ? `Connect ${shown[0].title} for ${this.person}` : "Connected accounts"}</h1>
      <p role="status" data-testid="connections-news">${this.news}</p>
      <p class="problem" role="alert">${this.problem}</p>
      <div class="card">${foreign ? FOREIGN : this.content(shown)}</div>
      ${name ? html`<a class="button bare" href=${connectionsHash()}>All accounts</a>` : nothing}
      <a class="button bare" href="#/">Back to the console</a>
    </main>`;
  }

  private content(shown: readonly Account[]): TemplateResult {
    if (!this.accounts) return html`<p class="words muted">One moment…</p>`;
    if (!shown.length) return html`<p class="words muted">There is no account to connect here.</p>`;
    return html`<ul>
      ${shown.map((one) => this.row(one))}
    </ul>`;
  }

  private row(one: Account): TemplateResult {
    const connected = one.since !== null;
    const who = one.account ? `Connected as ${one.account}` : "Connected";
    const access = one.scope.length ? `Access: ${one.scope.join(", ")}` : "";
    return html`<li data-testid="connection-${one.credential}">
      <strong>${one.title}</strong>
      <span class="muted">${connected ? who : "Not connected"}${access ? html`<br />${access}` : nothing}</span>
      ${
        connected
          ? html`<button ?disabled=${this.busy} @click=${() => this.disconnect(one)}>Disconnect</button>`
          : html`<button class="primary" ?disabled=${this.busy} @click=${() => this.begin(one)}>Connect</button>`
      }
    </li>`;
  }

  private async load(): Promise<void> {
    this.accounts = await this.api.connections();
  }

  private begin(one: Account): Promise<void> {
    return this.runTask(async () => {
      const { location: target, secret } = await this.api.connect(one.credential, this.route.audience);
      sessionStorage.setItem(SECRET_KEY, secret);
      location.assign(target);
    });
  }

  private disconnect(one: Account): Promise<void> {
    return this.runTask(async () => {
      const told = await this.api.disconnect(one.credential);
      this.news = told ? `${one.title} is disconnected.` : `${one.title} is forgotten here; end it at ${one.title} too.`;
      await this.load();
    });
  }

  private async finish(answer: Record<string, string>): Promise<void> {
    const secret = sessionStorage.getItem(SECRET_KEY) ?? "";
    sessionStorage.removeItem(SECRET_KEY);
    history.replaceState(null, "", connectionsHash()); // the answer is used up, and private
    const one = await this.api.finish(secret, answer);
    this.news = `${one.title} is connected${one.account ? ` as ${one.account}` : ""}. You can close this page.`;
  }

  private async runTask(what: () => Promise<void>): Promise<void> {
    this.busy = true;
    this.problem = "";
    try {
      await what();
    } catch (error) {
      this.problem = error instanceof Error ? error.message : String(error);
      if (!this.accounts) await this.load().catch(() => {});
    } finally {
      this.busy = false;
    }
  }
}

const FOREIGN = html`<p class="words">This link belongs to another person. Nothing was started; request one of your own.</p>`;
