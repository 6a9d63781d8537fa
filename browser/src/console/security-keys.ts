/** The security keys of the person, if an approval requires the touch of one. */
import { css, html, LitElement, nothing, type TemplateResult } from "lit";
import { customElement, property, state } from "lit/decorators.js";
import { type Api, ApiError } from "./api";
import { dateTime } from "./format";
import { icon } from "./icons";
import { base, buttons } from "./styles";
import type { SecurityKey } from "./types";

@customElement("gateway-keys")
export class SecurityKeys extends LitElement {
  static override styles = [
    base,
    buttons,
    css`
      section {
        display: grid;
        gap: 8px;
        padding: 12px 16px;
        border-top: 1px solid var(--line);
        font-size: 13px;
      }
      li,
      .add {
        display: flex;
        align-items: center;
        gap: 10px;
      }
      li span {
        flex: 1;
        min-width: 0;
        overflow-wrap: anywhere;
      }
      summary {
        display: flex;
        align-items: center;
        gap: 6px;
        padding: 10px 16px;
        border-top: 1px solid var(--line);
        font-size: 12.5px;
        cursor: pointer;
        list-style: none;
      }
      summary::-webkit-details-marker {
        display: none;
      }
      .more {
        margin-left: auto;
        white-space: nowrap;
      }
      .bad {
        color: var(--bad);
      }
    `,
  ];

  @property({ attribute: false }) api: Api | undefined;
  @state() private keys: readonly SecurityKey[] = [];
  @state() private needed = false;
  @state() private busy = false;
  @state() private problem = "";

  override connectedCallback(): void {
    super.connectedCallback();
    void this.runTask(async () => {});
  }

  protected override render(): TemplateResult | typeof nothing {
    if (!this.needed) return nothing;
    const problem = this.problem ? html`<p class="bad" role="status">${this.problem}</p>` : nothing;
    if (!this.keys.length)
      return html`<section aria-label="Your security keys">
        <p class="muted">Here you approve by touching a security key. Add yours first.</p>
        ${this.addingTemplate("primary")} ${problem}
      </section>`;
    return html`<details>
      <summary class="muted" data-testid="keys">
        ${icon("shield")} You approve by touching your security key <span class="more">Manage ${icon("chevron")}</span>
      </summary>
      <section aria-label="Your security keys">
        <ul>
          ${this.keys.map((key) => this.line(key))}
        </ul>
        ${this.addingTemplate("")} ${problem}
      </section>
    </details>`;
  }

  private addingTemplate(kind: string): TemplateResult {
    return html`<div class="add">
      <button class=${kind} data-testid="add-key" ?disabled=${this.busy} @click=${this.add}>
        ${icon("shield")} ${this.busy ? "Touch the key…" : "Add a security key"}
      </button>
    </div>`;
  }

  private line(key: SecurityKey): TemplateResult {
    return html`<li data-testid="key">
      ${icon("shield")}<span>${key.name}</span><span class="muted">${dateTime(key.created)}</span>
      <button class="bare" ?disabled=${this.busy} @click=${() => void this.runTask((api) => api.removeKey(key.id))}>
        Remove
      </button>
    </li>`;
  }

  private add(): void {
    void this.runTask((api) => api.addKey(`Key ${this.keys.length + 1}`));
  }

  private async runTask(work: (api: Api) => Promise<void>): Promise<void> {
    if (!this.api) return;
    this.busy = true;
    this.problem = "";
    try {
      await work(this.api);
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) location.assign(this.api.freshLoginUrl(location));
      this.problem = error instanceof Error ? error.message : String(error);
    }
    try {
      const { presence, keys } = await this.api.keys();
      this.needed = presence;
      this.keys = keys;
    } catch {
      this.needed = false; // an unavailable gateway is reported elsewhere
    }
    this.busy = false;
  }
}
