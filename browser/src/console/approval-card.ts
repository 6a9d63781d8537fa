/** One question to the person, with its two answers; the answer guard decides when they count. */
import { css, html, LitElement, nothing, type PropertyValues, type TemplateResult } from "lit";
import { customElement, property, query, state } from "lit/decorators.js";
import { guard } from "lit/directives/guard.js";
import { AnswerGuard, type Sight } from "./answer-guard";
import { countdown, span, visible, visibleLine } from "./format";
import { icon } from "./icons";
import { evidenceWords, initiatorMark } from "./initiators";
import { rawRequest, rawStyles } from "./raw-request";
import { base, buttons, chips } from "./styles";
import type { Answer, Question } from "./types";

/** Milliseconds between two checks of the card's position and the page's focus. */
const CHECK_INTERVAL = 100;

@customElement("gateway-approval")
export class ApprovalCard extends LitElement {
  static override styles = [
    base,
    buttons,
    chips,
    rawStyles,
    css`
      article {
        display: grid;
        grid-template-columns: minmax(0, 1fr);
        gap: 10px;
        padding: 14px 16px 16px;
      }
      .top,
      .actions {
        display: flex;
        align-items: center;
        gap: 10px;
        flex-wrap: wrap;
      }
      .top {
        font-size: 12.5px;
        color: var(--muted);
      }
      .time {
        margin-left: auto;
        font-variant-numeric: tabular-nums;
      }
      .time.short {
        color: var(--bad);
        font-weight: 600;
      }
      h3 {
        max-height: 9em;
        overflow: auto;
        font-size: 15.5px;
        font-weight: 600;
        line-height: 1.35;
        letter-spacing: -0.01em;
        overflow-wrap: anywhere;
        unicode-bidi: isolate;
        white-space: pre-wrap;
      }
      .why {
        font-size: 12.5px;
      }
      details {
        border: 1px solid var(--line);
        border-radius: 9px;
        background: var(--raised);
      }
      summary {
        display: flex;
        align-items: center;
        flex-wrap: wrap;
        gap: 6px;
        padding: 6px 10px;
        cursor: pointer;
        font-size: 12.5px;
        color: var(--muted);
        list-style: none;
      }
      summary::-webkit-details-marker {
        display: none;
      }
      summary code {
        flex: 1 1 110px;
        min-width: 0;
        overflow: hidden;
        color: var(--text);
        font-size: 13px;
        text-overflow: ellipsis;
        white-space: nowrap;
      }
      summary .raw {
        margin-left: auto;
        white-space: nowrap;
      }
      summary .icon {
        transition: transform 0.12s;
      }
      details[open] summary .icon {
        transform: rotate(90deg);
      }
      .actions button {
        position: relative;
        flex: 1;
        min-height: 38px;
        overflow: hidden;
      }
      .actions button::before {
        content: "";
        position: absolute;
        inset: 0;
        background: currentColor;
        opacity: 0.12;
        transform: scaleX(0);
        transform-origin: left;
      }
      .actions.arming button::before {
        transform: scaleX(1);
        transition: transform 0.8s linear;
      }
      .actions.ready button::before {
        opacity: 0;
        transform: none;
      }
      .actions .lasting {
        flex-basis: 100%;
      }
      .hint {
        font-size: 12.5px;
        min-height: 1.4em;
      }
      .hint.bad {
        color: var(--bad);
      }
    `,
  ];

  @property({ attribute: false }) question!: Question;
  @property({ attribute: false }) appTitle = "";
  /** The level of its heading: one more than that of the heading above it. */
  @property({ attribute: false }) level = 3;
  @property({ attribute: false }) now: () => number = () => Date.now() / 1000;
  @property({ attribute: false }) answer: (id: string, answer: Answer, grant: boolean) => Promise<void> = () =>
    Promise.resolve();
  /** Changes when other questions came or went, so that the pointer may be over another button. */
  @property({ attribute: false }) neighbours = "";

  @state() private ready = false;
  @state() private arming = false;
  @state() private left = 0;
  @state() private sending: Answer | undefined;
  @state() private lasting = false;
  @state() private hint = "";
  @state() private problem = "";

  @query("h3") private message!: HTMLElement;
  @query(".actions") private actions!: HTMLElement;

  private readonly guard = new AnswerGuard();
  private readonly seen = new Map<Element, boolean>();
  private observer: IntersectionObserver | undefined;
  private timer = 0;
  private place = "";

  override connectedCallback(): void {
    super.connectedCallback();
    this.timer = window.setInterval(() => this.checkSight(), CHECK_INTERVAL);
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    clearInterval(this.timer);
    this.observer?.disconnect();
    this.observer = undefined;
    this.guard.restart();
  }

  protected override updated(changed: PropertyValues): void {
    if (changed.has("neighbours") || changed.get("question")?.id !== undefined) this.guard.restart();
    if (!this.observer) this.watch();
  }

  protected override render(): TemplateResult {
    const { message, method, target, initiator, evidence, whose } = this.question;
    return html`<article data-testid="approval" data-id=${this.question.id} aria-label="Approval needed">
      <div class="top">
        ${initiatorMark(initiator, evidence)}<span>in ${this.appTitle}${whose ? html`, for ${visible(whose)}` : nothing}</span>
        <span class="time ${this.left < 20 ? "short" : ""}">${icon("clock")} ${countdown(this.left)} left</span>
      </div>
      <h3 aria-level=${this.level}>${visible(message)}</h3>
      <p class="muted why">Why you are asked: ${visible(evidenceWords(evidence))}.</p>
      <details>
        <summary>
          <span class="chip mono">${visibleLine(method)}</span><code>${visibleLine(target)}</code
          ><span class="raw">Raw request ${icon("chevron")}</span>
        </summary>
        ${guard([this.question], () => rawRequest(this.question))}
      </details>
      ${this.buttons()}
      <p class="hint ${this.problem ? "bad" : "muted"}" role="status">${this.problem || this.hint || this.waitText()}</p>
    </article>`;
  }

  private buttons(): TemplateResult {
    const off = !this.ready || this.sending !== undefined;
    const { grant } = this.question;
    const button = (answer: Answer, word: string, kind: string, lasting = false): TemplateResult =>
      html`<button
        class=${kind}
        data-testid=${lasting ? "grant" : answer}
        ?disabled=${off}
        @pointerdown=${(event: PointerEvent) => this.press(event)}
        @click=${(event: PointerEvent) => this.choose(event, answer, lasting)}
        @keydown=${(event: KeyboardEvent) => this.key(event)}
      >
        ${icon(lasting ? "clock" : answer === "approve" ? "check" : "cross")}
        ${this.sending === answer && this.lasting === lasting ? "Sending…" : word}
      </button>`;
    const phase = this.ready ? "ready" : this.arming ? "arming" : "";
    return html`<div class="actions ${phase}">
      ${button("decline", "Decline", "")}${button("approve", "Approve", "primary")}
      ${grant ? button("approve", `Approve, and all such calls for ${span(grant)}`, "lasting", true) : nothing}
    </div>`;
  }

  private waitText(): string | typeof nothing {
    if (this.sending) return nothing;
    if (this.left <= 0) return "This has expired: nothing was sent.";
    if (this.ready) return "Nothing is sent unless you approve.";
    return this.arming
      ? "Read first: the buttons work in a moment."
      : "The buttons work once this is in sight and the window is active.";
  }

  private watch(): void {
    this.observer = new IntersectionObserver(
      (entries) => {
        for (const entry of entries) this.seen.set(entry.target, entry.intersectionRatio >= 0.95);
        this.checkSight();
      },
      { threshold: [0, 0.95, 1] },
    );
    this.observer.observe(this.message);
    this.observer.observe(this.actions);
  }

  private sight(): Sight {
    const pip = (window as { documentPictureInPicture?: { window: Window | null } }).documentPictureInPicture;
    return {
      inView: this.seen.size === 2 && [...this.seen.values()].every(Boolean),
      focused: document.hasFocus() && document.visibilityState === "visible",
      uncovered: !document.fullscreenElement && !document.pictureInPictureElement && !pip?.window,
    };
  }

  private checkSight(): void {
    if (!this.question || !this.actions) return;
    const { left, top } = this.actions.getBoundingClientRect();
    const place = `${Math.round(left)},${Math.round(top)}`;
    if (place !== this.place) this.guard.restart();
    this.place = place;
    const now = performance.now();
    this.guard.observeSight(this.sight(), now);
    this.left = this.question.expires - this.now();
    this.ready = this.guard.armed(now) && this.left > 0;
    this.arming = this.guard.wait(now) !== undefined;
  }

  private press(event: PointerEvent): void {
    this.checkSight();
    this.guard.press(event, performance.now());
  }

  private choose(event: PointerEvent, answer: Answer, lasting: boolean): void {
    this.checkSight();
    if (!this.guard.accepts(event, performance.now())) return this.explain();
    void this.send(answer, lasting);
  }

  private key(event: KeyboardEvent): void {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    this.explain();
  }

  private explain(): void {
    this.hint = "Answer with the mouse or by touch: a key pressed in passing must not approve anything.";
  }

  private async send(answer: Answer, lasting: boolean): Promise<void> {
    this.sending = answer;
    this.lasting = lasting;
    this.problem = "";
    try {
      await this.answer(this.question.id, answer, lasting);
      this.dispatchEvent(new CustomEvent("answered", { detail: answer }));
    } catch (error) {
      this.problem = error instanceof Error ? error.message : String(error);
      this.sending = undefined;
    }
  }
}
