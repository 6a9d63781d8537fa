/** The person's grants: each can be revoked at once. */
import { css, html, LitElement, nothing, type TemplateResult } from "lit";
import { customElement, property, state } from "lit/decorators.js";
import { ApiError } from "./api";
import { countdown, visible, visibleLine } from "./format";
import { icon } from "./icons";
import { base, buttons } from "./styles";
import type { Grant } from "./types";

@customElement("gateway-grants")
export class GrantsList extends LitElement {
  static override styles = [
    base,
    buttons,
    css`
      li {
        display: flex;
        align-items: center;
        gap: 10px;
        padding: 10px 16px;
        border-top: 1px solid var(--line);
      }
      .what {
        flex: 1;
        min-width: 0;
        font-size: 13px;
      }
      .what p {
        overflow-wrap: anywhere;
      }
      .rule {
        font-size: 12px;
      }
      .left {
        font-variant-numeric: tabular-nums;
        font-size: 12.5px;
        white-space: nowrap;
      }
      .bad {
        padding: 0 16px 10px;
        color: var(--bad);
        font-size: 12.5px;
      }
    `,
  ];

  @property({ attribute: false }) grants: readonly Grant[] = [];
  @property({ attribute: false }) titles: ReadonlyMap<string, string> = new Map();
  @property({ attribute: false }) now: () => number = () => Date.now() / 1000;
  @property({ attribute: false }) revoke: (id: string) => Promise<void> = () => Promise.resolve();
  @state() private problem = "";
  private timer = 0;

  override connectedCallback(): void {
    super.connectedCallback();
    this.timer = window.setInterval(() => this.requestUpdate(), 1000);
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    clearInterval(this.timer);
  }

  protected override render(): TemplateResult | typeof nothing {
    const held = this.grants.filter((grant) => grant.expires > this.now());
    if (!held.length) return nothing;
    return html`<ul aria-label="Allowed for a while">
        ${held.map((grant) => this.line(grant))}
      </ul>
      ${this.problem ? html`<p class="bad" role="status">${this.problem}</p>` : nothing}`;
  }

  private line(grant: Grant): TemplateResult {
    return html`<li data-testid="grant">
      ${icon("clock")}
      <div class="what">
        <p>Not asked in ${this.titles.get(grant.app) ?? grant.app}: <code>${visibleLine(grant.rule)}</code></p>
        <p class="muted rule">Allowed at “${visible(grant.message)}”</p>
      </div>
      <span class="muted left">${countdown(grant.expires - this.now())}</span>
      <button data-testid="revoke" @click=${() => void this.end(grant.id)}>Revoke</button>
    </li>`;
  }

  private async end(id: string): Promise<void> {
    this.problem = "";
    try {
      await this.revoke(id);
    } catch (error) {
      this.problem = error instanceof ApiError ? error.message : String(error);
    }
  }
}
