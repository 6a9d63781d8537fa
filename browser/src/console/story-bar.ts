/** The strip under the app that starts a story, shows it step by step, and stops it. */
import { css, html, LitElement, nothing, type TemplateResult } from "lit";
import { customElement, property, state } from "lit/decorators.js";
import { icon } from "./icons";
import { play, type Progress, type Stage, type Story } from "./story";
import { base, buttons } from "./styles";

@customElement("gateway-story")
export class StoryBar extends LitElement {
  static override styles = [
    base,
    buttons,
    css`
      .bar {
        display: flex;
        align-items: center;
        gap: 14px;
        min-height: 64px;
        padding: 10px 16px;
        border-top: 1px solid var(--line);
        background: var(--surface);
      }
      .bar.running {
        background: color-mix(in srgb, var(--model) 7%, var(--surface));
      }
      .bar.needs {
        background: color-mix(in srgb, var(--glow) 13%, var(--surface));
      }
      .mark {
        display: grid;
        place-items: center;
        flex: none;
        width: 34px;
        height: 34px;
        border-radius: 10px;
        background: color-mix(in srgb, var(--model) 14%, transparent);
        color: var(--model);
      }
      .needs .mark {
        background: color-mix(in srgb, var(--glow) 25%, transparent);
        color: var(--warn);
      }
      .words {
        flex: 1;
        min-width: 0;
        text-wrap: pretty;
      }
      .words strong {
        font-weight: 600;
      }
      .words .ask {
        color: var(--warn);
        font-weight: 600;
      }
      .words .problem {
        color: var(--bad);
      }
      .dots {
        display: flex;
        gap: 5px;
      }
      .dots span {
        width: 7px;
        height: 7px;
        border-radius: 50%;
        background: var(--line-strong);
      }
      .dots span.past {
        background: var(--model);
      }
      .dots span.now {
        width: 18px;
        border-radius: 4px;
        background: var(--model);
      }
      button {
        flex: none;
      }
      @media (max-width: 560px) {
        .bar {
          flex-wrap: wrap;
        }
        .words {
          flex-basis: calc(100% - 50px);
        }
        .dots {
          flex: 1;
        }
        button {
          margin-left: auto;
        }
      }
    `,
  ];

  @property({ attribute: false }) story!: Story;
  @property({ attribute: false }) stage!: Stage;
  @property({ attribute: false }) enabled = true;
  /** Whether a question waits for the person now. */
  @property({ attribute: false }) asks = false;

  @state() private progress: Progress | undefined;
  private running: AbortController | undefined;

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    this.running?.abort();
  }

  protected override render(): TemplateResult {
    const running = this.progress?.state === "running";
    const needs = running && this.asks && this.step()?.needs !== undefined;
    return html`<div
      class="bar ${running ? "running" : ""} ${needs ? "needs" : ""}"
      data-testid="story-bar"
      data-state=${this.progress?.state ?? "idle"}
    >
      <span class="mark">${icon(needs ? "shield" : "model")}</span>
      <p class="words" aria-live="polite">${this.words(needs)}</p>
      ${running ? this.dots() : nothing} ${this.button(running)}
    </div>`;
  }

  private words(needs: boolean): TemplateResult {
    const { progress } = this;
    const caption = this.step()?.caption ?? "";
    switch (progress?.state) {
      case undefined:
        return html`<strong>${this.story.title}</strong><br /><span class="muted"
            >A scripted model uses this page's tools, step by step. No key needed.</span
          >`;
      case "running":
        return html`${progress.note ?? caption}
        ${needs ? html`<span class="ask">${this.step()?.needs}</span>` : nothing}`;
      case "done":
        return html`${caption}`;
      case "stopped":
        return html`<span class="muted">Stopped. What it did so far stands in the timeline.</span>`;
      case "failed":
        return html`<span class="problem">It went no further: ${progress.problem}</span>`;
    }
  }

  private dots(): TemplateResult {
    const now = this.progress?.step ?? 0;
    const words = `Step ${now + 1} of ${this.story.steps.length}`;
    const kind = (index: number) => (index < now ? "past" : index === now ? "now" : "");
    return html`<div class="dots" role="img" aria-label=${words} title=${words}>
      ${this.story.steps.map((_, index) => html`<span class=${kind(index)}></span>`)}
    </div>`;
  }

  private button(running: boolean): TemplateResult {
    if (running)
      return html`<button data-testid="story-stop" @click=${() => this.running?.abort()}>${icon("stop")} Stop</button>`;
    return html`<button class="primary" data-testid="story" ?disabled=${!this.enabled} @click=${() => void this.play()}>
      ${icon("play")} ${this.progress ? "Play again" : "Play the story"}
    </button>`;
  }

  private step(): Story["steps"][number] | undefined {
    return this.story.steps[this.progress?.step ?? 0];
  }

  private async play(): Promise<void> {
    this.running = new AbortController();
    await play(this.story, this.stage, (progress) => (this.progress = progress), this.running.signal);
  }
}
