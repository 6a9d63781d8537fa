/** The page of a single approval, to which the notice in an app links. */
import { css, html, LitElement, type PropertyValues, type TemplateResult } from "lit";
import { customElement, property, state } from "lit/decorators.js";
import type { Api } from "./api";
import "./approval-card";
import { icon } from "./icons";
import "./security-keys";
import { base, buttons, narrowPage } from "./styles";
import type { Answer, Question } from "./types";

@customElement("gateway-approval-page")
export class ApprovalPage extends LitElement {
  static override styles = [
    base,
    buttons,
    narrowPage,
    css`
      .card {
        overflow: hidden;
      }
      .done {
        display: grid;
        gap: 6px;
        justify-items: center;
        padding: 40px 24px;
        text-align: center;
      }
      .done .icon {
        width: 36px;
        height: 36px;
        padding: 8px;
        border-radius: 50%;
        background: var(--raised);
        color: var(--muted);
      }
      .done.approve .icon {
        color: var(--ok);
      }
    `,
  ];

  @property({ attribute: false }) questions: readonly Question[] = [];
  @property({ attribute: false }) approval = "";
  @property({ attribute: false }) titles: ReadonlyMap<string, string> = new Map();
  @property({ attribute: false }) loading = false;
  @property({ attribute: false }) now: () => number = () => Date.now() / 1000;
  @property({ attribute: false }) answer: (id: string, answer: Answer, grant: boolean) => Promise<void> = () =>
    Promise.resolve();
  @property({ attribute: false }) api: Api | undefined;
  @property({ attribute: false }) home = "#/";

  @state() private answered: Answer | undefined;
  @state() private known: Question | undefined;

  protected override willUpdate(changed: PropertyValues): void {
    if (changed.has("approval")) this.answered = this.known = undefined;
    this.known = this.questions.find((question) => question.id === this.approval) ?? this.known;
  }

  protected override render(): TemplateResult {
    return html`<main>
      <h1>Approval</h1>
      <div class="card">${this.content()}<gateway-keys .api=${this.api}></gateway-keys></div>
      <a class="button bare" href=${this.home}>Back to the console</a>
    </main>`;
  }

  private content(): TemplateResult {
    const question = this.questions.find((one) => one.id === this.approval);
    if (this.answered === "approve")
      return outcomeTemplate("check", "Approved", "The call goes on. You can close this page.", "approve");
    if (this.answered) return outcomeTemplate("cross", "Declined", "The call was refused; nothing was sent.");
    if (question) return this.card(question);
    if (this.loading) return outcomeTemplate("clock", "One moment", "Asking the gateway for this approval.");
    if (this.known)
      return outcomeTemplate("clock", "No longer open", "It was answered elsewhere, expired, or its caller gave up.");
    const words = "It was answered already, has expired, is for somebody else to answer, or never existed.";
    return outcomeTemplate("unknown", "No such approval", words);
  }

  private card(question: Question): TemplateResult {
    return html`<gateway-approval
      .level=${2}
      .question=${question}
      .appTitle=${this.titles.get(question.app) ?? question.app}
      .now=${this.now}
      .answer=${this.answer}
      @answered=${(event: CustomEvent<Answer>) => (this.answered = event.detail)}
    ></gateway-approval>`;
  }
}

function outcomeTemplate(
  name: "check" | "cross" | "clock" | "unknown",
  heading: string,
  words: string,
  kind = "",
): TemplateResult {
  return html`<div class="done ${kind}" role="status">
    ${icon(name)}<strong>${heading}</strong><span class="muted">${words}</span>
  </div>`;
}
