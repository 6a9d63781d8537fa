/** The record as it happens, newest first. */
import { html, LitElement, nothing, type PropertyValues, type TemplateResult } from "lit";
import { customElement, property, state } from "lit/decorators.js";
import { repeat } from "lit/directives/repeat.js";
import { count } from "./format";
import { icon } from "./icons";
import { INITIATORS, initiatorWord } from "./initiators";
import { base, chips, panel } from "./styles";
import { entriesOf, groupsOf, idsOf, newestGroups, groupsOfInitiator, drawnGroups, sizeOf, type Entry, type Group } from "./timeline";
import { groupTemplate, type OpenEntries } from "./timeline-entry";
import { timelineStyles } from "./timeline-styles";
import type { Initiator, Line, Question } from "./types";

/** Entries that are shown, and how many more at a click. */
const INITIAL_ENTRIES = 30;
/** Drawing blocks the apps of this page: at most so many new entries are drawn at a time, at intervals of so many milliseconds. */
const DRAW_PORTION = 8;
const DRAW_DELAY = 300;

@customElement("gateway-timeline")
export class TimelinePanel extends LitElement {
  static override styles = [base, panel, chips, timelineStyles];

  @property({ attribute: false }) lines: readonly Line[] = [];
  @property({ attribute: false }) questions: readonly Question[] = [];
  /** The app whose entries are shown. */
  @property({ attribute: false }) app: string | undefined;
  /** The MCP server of that app: the model's own calls there are shown beside their consequences in the app. */
  @property({ attribute: false }) upstream: string | null | undefined;
  @property({ attribute: false }) now: () => number = () => Date.now() / 1000;

  @state() private only: Initiator | undefined;
  @state() private opened: ReadonlySet<string> = new Set();
  @state() private most = INITIAL_ENTRIES;

  private drawn: ReadonlySet<string> = new Set();
  /** The most new entries that this draw may bring: unlimited for a person's action. */
  private portion = DRAW_PORTION;
  private next = 0;

  protected override willUpdate(changed: PropertyValues): void {
    this.portion = changed.has("only") || changed.has("most") ? Infinity : DRAW_PORTION;
  }

  protected override render(): TemplateResult {
    const mine = (of: { app: string }): boolean => !this.app || !of.app || of.app === this.app || of.app === this.upstream;
    const entries = entriesOf(this.lines, this.now()).filter(mine);
    const groups = groupsOfInitiator(groupsOf(entries, this.questions.filter(mine)), this.only);
    const size = sizeOf(groups);
    const shown = this.portionOf(newestGroups(groups, this.most));
    return html`<section class="panel" aria-labelledby="title">
      <header>
        ${icon("list")}
        <h2 id="title">Timeline</h2>
        ${entries.length ? countMark(entries.length) : nothing} ${this.filter(entries)}
      </header>
      <div class="body" tabindex="0" role="region" aria-label="Record of calls and requests">
        ${
          groups.length
            ? html`<ol>
                ${repeat(
                  shown,
                  (group) => group.key,
                  (group) => groupTemplate(group, this.toggles),
                )}
              </ol>
              ${size > this.most ? this.older(size - this.most) : nothing}`
            : this.empty(entries.length > 0)
        }
      </div>
    </section>`;
  }

  private portionOf(groups: readonly Group[]): readonly Group[] {
    const shown = drawnGroups(groups, this.drawn, this.portion);
    this.drawn = idsOf(shown);
    clearTimeout(this.next);
    if (this.drawn.size < idsOf(groups).size) this.next = window.setTimeout(() => this.requestUpdate(), DRAW_DELAY);
    return shown;
  }

  private readonly toggles: OpenEntries = {
    has: (id) => this.opened.has(id),
    toggle: (id, open) => {
      if (open === this.opened.has(id)) return;
      const opened = new Set(this.opened);
      if (open) opened.add(id);
      else opened.delete(id);
      this.opened = opened;
    },
  };

  private older(left: number): TemplateResult {
    return html`<button class="older" data-testid="older" @click=${() => (this.most += 2 * INITIAL_ENTRIES)}>
      Show older, ${left} more
    </button>`;
  }

  private filter(entries: readonly Entry[]): TemplateResult {
    const choice = (initiator: Initiator | undefined, word: string): TemplateResult =>
      html`<button
        class=${initiator ?? ""}
        data-testid="filter-${initiator ?? "all"}"
        aria-pressed=${this.only === initiator}
        aria-label=${`Show ${word.toLowerCase()}: ${of(entries, initiator)}`}
        @click=${() => (this.only = initiator)}
      >
        ${initiator ? icon(initiator) : nothing}${word}
      </button>`;
    return html`<div class="filter" role="group" aria-label="Filter by who caused it">
      ${choice(undefined, "All")}${INITIATORS.map((initiator) => choice(initiator, initiatorWord(initiator)))}
    </div>`;
  }

  private empty(filtered: boolean): TemplateResult {
    return filtered
      ? html`<div class="empty"><strong>None of these</strong><span>Nothing was caused by this one so far.</span></div>`
      : html`<div class="empty">
          <strong>Quiet so far</strong
          ><span>Each request of the app stands here, under the click or model call that caused it.</span>
        </div>`;
  }
}

function of(entries: readonly Entry[], initiator: Initiator | undefined): number {
  return initiator ? entries.filter((entry) => entry.initiator === initiator).length : entries.length;
}

function countMark(entries: number): TemplateResult {
  return html`<span class="count" title=${count(entries, "entry", "entries")}>${entries}</span>`;
}
