/** The pending approvals of the principal. */
import { css, html, LitElement, nothing, type TemplateResult } from "lit";
import { customElement, property, state } from "lit/decorators.js";
import { repeat } from "lit/directives/repeat.js";
import type { Api } from "./api";
import "./approval-card";
import "./grants-list";
import { icon } from "./icons";
import type { Notifier, Permission } from "./notifier";
import "./security-keys";
import { base, buttons, panel } from "./styles";
import type { Answer, Grant, Question } from "./types";

const NONE = html`<span class="none">Nothing waits for you</span>`;

@customElement("gateway-approvals")
export class ApprovalsPanel extends LitElement {
  static override styles = [
    base,
    buttons,
    panel,
    css`
      .panel.asks {
        border-color: color-mix(in srgb, var(--glow) 70%, var(--line));
        box-shadow:
          0 0 0 3px color-mix(in srgb, var(--glow) 22%, transparent),
          var(--shadow);
      }
      .asks header .icon {
        color: var(--warn);
      }
      .asks .count {
        background: var(--warn);
        border-color: transparent;
        color: var(--surface);
        font-weight: 650;
      }
      header button {
        margin-left: auto;
      }
      header .none + button {
        margin-left: 8px;
      }
      header .none {
        margin-left: auto;
        color: var(--muted);
        font-size: 13px;
      }
      :host {
        container-type: inline-size;
      }
      /* All of the heading stands in one line. */
      @container (max-width: 410px) {
        header .none + button span {
          display: none;
        }
      }
      @media (min-width: 980px) {
        /* Question and buttons must fit into the panel together, or the buttons never work. */
        gateway-approval {
          --call-height: clamp(96px, 100dvh - 640px, 200px);
        }
      }
      gateway-approval + gateway-approval {
        border-top: 1px solid var(--line);
      }
    `,
  ];

  @property({ attribute: false }) questions: readonly Question[] = [];
  @property({ attribute: false }) titles: ReadonlyMap<string, string> = new Map();
  @property({ attribute: false }) now: () => number = () => Date.now() / 1000;
  @property({ attribute: false }) answer: (id: string, answer: Answer, grant: boolean) => Promise<void> = () =>
    Promise.resolve();
  @property({ attribute: false }) grants: readonly Grant[] = [];
  @property({ attribute: false }) revoke: (id: string) => Promise<void> = () => Promise.resolve();
  @property({ attribute: false }) api: Api | undefined;
  @property({ attribute: false }) notifier: Notifier | undefined;

  @state() private permission: Permission = "none";

  override connectedCallback(): void {
    super.connectedCallback();
    this.permission = this.notifier?.permission ?? "none";
  }

  protected override render(): TemplateResult {
    const asks = this.questions.length > 0;
    return html`<section class="panel ${asks ? "asks" : ""}" aria-labelledby="title">
      <header>
        ${icon("shield")}
        <h2 id="title">Approvals</h2>
        ${asks ? html`<span class="count">${this.questions.length}</span>` : NONE}
        ${this.permission === "default" ? this.bell() : nothing}
      </header>
      ${asks ? html`<div class="body" tabindex="0" role="region" aria-label="Questions">${this.cards()}</div>` : nothing}
      <gateway-grants
        .grants=${this.grants}
        .titles=${this.titles}
        .now=${this.now}
        .revoke=${this.revoke}
      ></gateway-grants>
      <gateway-keys .api=${this.api}></gateway-keys>
    </section>`;
  }

  private bell(): TemplateResult {
    const words = "Notify me on the desktop";
    return html`<button class="bare" data-testid="notify" title=${words} aria-label=${words} @click=${this.askToNotify}>
      ${icon("bell")} <span>Notify me</span>
    </button>`;
  }

  private async askToNotify(): Promise<void> {
    this.permission = (await this.notifier?.requestPermission()) ?? "none";
  }

  private cards(): unknown {
    const neighbours = this.questions.map((question) => question.id).join(" ");
    return repeat(
      this.questions,
      (question) => question.id,
      (question) =>
        html`<gateway-approval
          .question=${question}
          .appTitle=${this.titles.get(question.app) ?? question.app}
          .now=${this.now}
          .answer=${this.answer}
          .neighbours=${neighbours}
        ></gateway-approval>`,
    );
  }
}
