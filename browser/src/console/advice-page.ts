/** The page of `doctor APP`: the parts of an app that work in a view, that need a line, and that no host can run. */
import { css, html, LitElement, nothing, type PropertyValues, type TemplateResult } from "lit";
import { customElement, property, state } from "lit/decorators.js";
import type { Api } from "./api";
import { visibleLine } from "./format";
import { icon, type IconName } from "./icons";
import { appHash } from "./route";
import { base, buttons, narrowPage } from "./styles";
import type { Advice, Finding } from "./types";

const GROUPS: readonly [verdict: Finding["verdict"], heading: string, icon: IconName][] = [
  ["needs", "Needs a line, or a look", "alert"],
  ["never", "No host can do this", "bar"],
  ["works", "Works as it is", "check"],
];

@customElement("gateway-advice")
export class AdvicePage extends LitElement {
  static override styles = [
    base,
    buttons,
    narrowPage,
    css`
      main {
        max-width: 820px;
      }
      h2 {
        display: flex;
        gap: 8px;
        align-items: center;
        padding: 14px 16px 10px;
        font-size: 14px;
      }
      h2 .icon {
        color: var(--tone);
      }
      .needs {
        --tone: var(--warn);
      }
      .never {
        --tone: var(--bad);
      }
      .works {
        --tone: var(--ok);
      }
      li {
        display: grid;
        grid-template-columns: 110px minmax(0, 1fr);
        gap: 4px 16px;
        padding: 10px 16px;
        border-top: 1px solid var(--line);
        overflow-wrap: anywhere;
      }
      li > :not(.muted:first-child) {
        grid-column: 2;
      }
      pre {
        padding: 8px 10px;
        border: 1px solid var(--line);
        border-radius: 8px;
        background: var(--bg);
      }
      .problem {
        color: var(--bad);
      }
      @media (max-width: 560px) {
        li {
          grid-template-columns: minmax(0, 1fr);
        }
        li > :not(.muted:first-child) {
          grid-column: 1;
        }
      }
    `,
  ];

  @property({ attribute: false }) api!: Api;
  @property({ attribute: false }) app = "";

  @state() private found: Advice | undefined;
  @state() private problem = "";

  protected override willUpdate(changed: PropertyValues): void {
    if (changed.has("app")) void this.load(this.app);
  }

  protected override render(): TemplateResult {
    return html`<main>
      <h1>How ${this.app} fares in a view</h1>
      <p class="problem" role="alert">${this.problem}</p>
      ${this.found ? this.advice(this.found) : this.problem ? nothing : html`<p role="status" class="muted">Reading the app…</p>`}
      <a class="button bare" href=${appHash(this.app)}>Back to the app</a>
    </main>`;
  }

  private advice({ findings, problems, hosts }: Advice): TemplateResult {
    return html`${problems.map((problem) => html`<p class="problem">${visibleLine(problem)}</p>`)}
    ${GROUPS.map(([verdict, heading, name]) => {
      const of = findings.filter((one) => one.verdict === verdict);
      return of.length
        ? html`<section class="card ${verdict}" data-testid="advice-${verdict}" aria-label=${heading}>
            <h2>${icon(name)}${heading}</h2>
            <ul>
              ${of.map(row)}
            </ul>
          </section>`
        : nothing;
    })}
    ${problems.length ? nothing : hostsCard(hosts)}`;
  }

  private async load(app: string): Promise<void> {
    this.found = undefined;
    this.problem = "";
    try {
      const found = await this.api.advice(app);
      if (app === this.app) this.found = found;
    } catch (error) {
      this.problem = error instanceof Error ? error.message : String(error);
    }
  }
}

/** Returns a text for people, without the marks of names in a terminal. */
function plain(text: string): string {
  return visibleLine(text.replaceAll("`", ""));
}

function row({ topic, what, detail, lines, under, places }: Finding): TemplateResult {
  return html`<li>
    <span class="muted">${topic}</span>
    <span>${plain(what)}${detail ? html`: ${plain(detail)}` : nothing}</span>
    ${lines.length ? html`<pre>${lines.join("\n")}</pre>` : nothing}
    ${under ? html`<span class="muted">${under.startsWith("`") ? "under" : "in"} ${plain(under)}</span>` : nothing}
    ${places.length ? html`<code class="muted">${places.join(", ")}</code>` : nothing}
  </li>`;
}

function hostsCard(hosts: Advice["hosts"]): TemplateResult {
  return html`<section class="card" aria-label="In hosts" data-testid="advice-hosts">
    <h2>${icon("globe")}In hosts</h2>
    <ul>
      ${Object.entries(hosts).map(
        ([host, limits]) =>
          html`<li><span class="muted">${host}</span><span>${limits.length ? plain(limits.join("; ")) : "as above"}</span></li>`,
      )}
    </ul>
  </section>`;
}
