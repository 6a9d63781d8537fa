/** Problems of the gateway's configuration, above everything else, with the places in files. */
import { css, html, LitElement, type TemplateResult } from "lit";
import { customElement, property } from "lit/decorators.js";
import { count, visibleLine } from "./format";
import { icon, type IconName } from "./icons";
import { base } from "./styles";
import type { Problem } from "./types";

type Kind = Problem["kind"];

const KINDS: readonly [kind: Kind, icon: IconName][] = [
  ["record", "alert"],
  ["broken", "alert"],
  ["upstream", "alert"],
  ["restart", "reload"],
  ["view", "alert"],
  ["report", "shield"],
];

@customElement("gateway-problems")
export class ProblemsBanner extends LitElement {
  static override styles = [
    base,
    css`
      :host {
        display: grid;
        gap: 8px;
      }
      section {
        --tone: var(--warn);
        display: grid;
        grid-template-columns: auto minmax(0, 1fr);
        gap: 2px 10px;
        max-height: 30dvh;
        overflow: auto;
        padding: 8px 14px;
        border: 1px solid color-mix(in srgb, var(--tone) 30%, var(--line));
        border-radius: 10px;
        background: color-mix(in srgb, var(--tone) 8%, var(--surface));
      }
      .record,
      .broken {
        --tone: var(--bad);
      }
      .icon {
        margin-top: 0.15em;
        color: var(--tone);
      }
      strong {
        font-weight: 600;
      }
      ul {
        grid-column: 2;
      }
      li {
        overflow-wrap: anywhere;
      }
      li code {
        color: var(--muted);
      }
    `,
  ];

  @property({ attribute: false }) problems: readonly Problem[] = [];

  protected override render(): TemplateResult {
    const known = KINDS.map(([kind, name]) => ({ kind, name, of: this.problems.filter((one) => one.kind === kind) }));
    return html`${known.filter(({ of }) => of.length > 0).map(({ kind, name, of }) => notice(kind, name, of))}`;
  }
}

function notice(kind: Kind, name: IconName, problems: readonly Problem[]): TemplateResult {
  return html`<section class=${kind} role="status" data-testid="problems" data-kind=${kind}>
    ${icon(name)}<strong>${heading(kind, problems.length)}</strong>
    <ul>
      ${problems.map((problem) => html`<li>${place(problem)} ${visibleLine(problem.message)}</li>`)}
    </ul>
  </section>`;
}

/** The heading above the problems of one kind. */
export function heading(kind: Kind, number: number): string {
  if (kind === "record") return "The record is not kept as it should be.";
  if (kind === "broken") return `Not taken: ${count(number, "problem", "problems")}. What was in effect before stays so.`;
  if (kind === "upstream") return `${count(number, "upstream fails, or offers", "upstreams fail, or offer")} tools that changed.`;
  if (kind === "restart") return `${count(number, "change waits", "changes wait")} for a restart of the gateway.`;
  if (kind === "view") return `${count(number, "app", "apps")} in no view: the site of ${number === 1 ? "this app" : "each"} works as before.`;
  return "Report mode: calls are let through that the policy would refuse.";
}

function place({ kind, file, line, column }: Problem): TemplateResult {
  const name = file.split(/[\\/]/).at(-1) ?? file;
  const where = kind === "broken" || kind === "view" ? `${name}:${line}:${column}` : name;
  return html`<code title=${visibleLine(file)}>${visibleLine(where)}</code>`;
}
