/** Asks the person about a link that an app wants to open, or files that it offers, and reports links that its policy forbids. */
import { css, html, LitElement, nothing, type TemplateResult } from "lit";
import { customElement, query, state } from "lit/decorators.js";
import { AnswerGuard } from "./answer-guard";
import { uncover } from "./attention";
import { visible, visibleLine } from "./format";
import { icon } from "./icons";
import { base, buttons } from "./styles";

/** Milliseconds between two checks of the page's focus. */
const CHECK_INTERVAL = 100;
/** Milliseconds for which a refusal is shown. */
const MESSAGE_DURATION = 8000;

/** The dialog's texts for its buttons. */
export interface Words {
  does: string;
  /** The consequence of a click. */
  then: string;
}

const OPENING: Words = { does: "Open", then: "It opens in a new tab." };

interface LinkQuestion {
  message: string;
  url: string;
  words: Words;
  /** Aborts once the asking app is closed. */
  closed: AbortSignal;
  answer(open: boolean): void;
}

@customElement("gateway-link-dialog")
export class LinkDialog extends LitElement {
  static override styles = [
    base,
    buttons,
    css`
      dialog {
        width: min(460px, calc(100vw - 32px));
        padding: 20px;
        border: 1px solid var(--line);
        border-radius: var(--radius);
        background: var(--surface);
        color: var(--text);
        box-shadow: var(--shadow);
      }
      dialog::backdrop {
        background: #0006;
      }
      h2 {
        font-size: 15.5px;
        font-weight: 600;
        line-height: 1.35;
        overflow-wrap: anywhere;
        unicode-bidi: isolate;
      }
      pre {
        max-height: 9em;
        margin: 12px 0;
        padding: 8px 10px;
        overflow: auto;
        border: 1px solid var(--line);
        border-radius: 9px;
        background: var(--raised);
      }
      .actions {
        display: flex;
        gap: 10px;
        margin-top: 14px;
      }
      .actions button {
        flex: 1;
        min-height: 38px;
      }
      .hint {
        min-height: 1.4em;
        font-size: 12.5px;
      }
      .refusal {
        position: fixed;
        top: 12px; /* At the bottom an app has notices of its own. */
        right: 16px;
        left: 16px;
        z-index: 3;
        display: flex;
        gap: 8px;
        width: fit-content;
        max-width: 560px;
        margin: auto;
        padding: 10px 14px;
        border: 1px solid color-mix(in srgb, var(--bad) 30%, var(--line));
        border-radius: 10px;
        background: color-mix(in srgb, var(--bad) 8%, var(--surface));
        box-shadow: var(--shadow);
        overflow-wrap: anywhere;
      }
      .refusal .icon {
        margin-top: 0.15em;
        color: var(--bad);
      }
    `,
  ];

  @state() private asked: LinkQuestion | undefined;
  @state() private ready = false;
  @state() private hint = "";
  @state() private refusal = "";

  @query("dialog") private dialog!: HTMLDialogElement;

  private readonly guard = new AnswerGuard();
  private looking = 0;
  private fading = 0;

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    clearTimeout(this.fading);
    this.answerQuestion(false);
  }

  /** Whether the person agrees to `url`; false if another question is open, or the app is closed before the answer. */
  async ask(message: string, url: string, closed: AbortSignal, words = OPENING): Promise<boolean> {
    if (this.asked || closed.aborted) return false;
    uncover();
    this.refusal = this.hint = "";
    const answer = new Promise<boolean>((resolve) => (this.asked = { message, url, words, closed, answer: resolve }));
    closed.addEventListener("abort", this.cancelQuestion);
    await this.updateComplete;
    if (!this.asked) return answer;
    this.dialog.showModal();
    this.looking = window.setInterval(() => this.checkSight(), CHECK_INTERVAL);
    return answer;
  }

  /** Show for a while why a link is not opened. */
  refuse(words: string): void {
    this.refusal = words;
    clearTimeout(this.fading);
    this.fading = window.setTimeout(() => (this.refusal = ""), MESSAGE_DURATION);
  }

  protected override render(): TemplateResult {
    return html`<dialog aria-labelledby="question" data-testid="link-dialog" @close=${() => this.answerQuestion(false)}>
        ${this.asked ? this.question(this.asked) : nothing}
      </dialog>
      <div role="status">
        ${
          this.refusal
            ? html`<p class="refusal" data-testid="link-refused">
                ${icon("bar")}<span>${visibleLine(this.refusal)}</span>
              </p>`
            : nothing
        }
      </div>`;
  }

  private question({ message, url, words }: LinkQuestion): TemplateResult {
    return html`<h2 id="question">${visible(message)}</h2>
      <pre data-testid="link-url">${url.split("\n").map(visibleLine).join("\n")}</pre>
      <p class="muted hint" role="status">${this.hint || (this.ready ? words.then : `Read first: ${words.does} works in a moment.`)}</p>
      <div class="actions">
        <button autofocus data-testid="link-cancel" @click=${() => this.answerQuestion(false)}>${icon("cross")} Cancel</button>
        <button
          class="primary"
          data-testid="link-open"
          ?disabled=${!this.ready}
          @pointerdown=${(event: PointerEvent) => this.press(event)}
          @click=${(event: PointerEvent) => this.choose(event)}
        >
          ${icon("open")} ${words.does}
        </button>
      </div>`;
  }

  private checkSight(): void {
    const focused = document.hasFocus() && document.visibilityState === "visible";
    const now = performance.now();
    // A modal dialog is above everything else of the page.
    this.guard.observeSight({ inView: true, focused, uncovered: !document.fullscreenElement }, now);
    this.ready = this.guard.armed(now);
  }

  private press(event: PointerEvent): void {
    this.checkSight();
    this.guard.press(event, performance.now());
  }

  private choose(event: PointerEvent): void {
    this.checkSight();
    if (this.guard.accepts(event, performance.now())) this.answerQuestion(true);
    else this.hint = "Answer with the mouse or by touch: a key pressed in passing must not do anything.";
  }

  private readonly cancelQuestion = (): void => {
    this.answerQuestion(false);
    this.refuse("The app was closed.");
  };

  private answerQuestion(open: boolean): void {
    const { asked } = this;
    asked?.closed.removeEventListener("abort", this.cancelQuestion);
    clearInterval(this.looking);
    this.guard.restart();
    this.asked = undefined;
    this.ready = false;
    this.dialog?.close();
    asked?.answer(open);
  }
}
