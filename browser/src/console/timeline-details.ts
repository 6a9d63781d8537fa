/** All details of one entry in the record: initiator and evidence, the policy's decision, sizes, and the time of each step. */
import { html, nothing, type TemplateResult } from "lit";
import { dateTime, duration, size, visible } from "./format";
import { evidenceWords, initiatorWord } from "./initiators";
import { number, text } from "./json";
import { reasonsOf, type Entry } from "./timeline";
import type { Json } from "./types";

const PLAIN: readonly [field: string, label: string][] = [
  ["route", "Route"],
  ["tool", "Tool"],
  ["backend", "Backend"],
  ["credential", "Credential"],
  ["approval", "Approval"],
  ["answered_by", "Answered by"],
  ["policy_version", "Policy"],
  ["door", "Door"],
  ["view", "View"],
  ["principal", "Principal"],
  ["client", "Client"],
];

export function detailsTemplate(entry: Entry): TemplateResult {
  const { fields } = entry;
  return html`<div class="details">
    <dl>
      ${row("When", dateTime(entry.started))}
      ${row("Caused by", causeOf(entry))}
      ${row("Address", address(entry), true)}
      ${row("Decision", [text(fields["decision"]), ...reasonsOf(entry)].filter(Boolean).join(" · "))}
      ${row("Refused", entry.reason, true)} ${row("In words", text(fields["detail"]) ?? text(fields["message"]))}
      ${row("Page's authorization", authorization(fields["authorization"]))}
      ${PLAIN.map(([field, label]) => row(label, displayText(fields[field]), true))} ${row("Sizes", sizes(entry))}
      ${row("Arguments", displayText(fields["arguments"]), true)} ${row("Record", entry.id, true)}
    </dl>
    ${entry.steps.length ? bars(entry) : nothing}
  </div>`;
}

const AUTHORIZATION: { readonly [value: string]: string } = {
  dropped: "dropped, since the policy lets none through to this backend",
  pass: "passed to the backend",
  vault: "passed to the backend from the vault",
};

/** The treatment of the `Authorization` field that the page set. */
function authorization(value: Json | undefined): string | undefined {
  const written = text(value);
  return written && (AUTHORIZATION[written] ?? written);
}

function causeOf({ initiator, evidence }: Entry): string {
  return [initiatorWord(initiator, evidence), evidenceWords(evidence)].filter(Boolean).join(": ");
}

function row(label: string, value: string | undefined, code = false): TemplateResult | typeof nothing {
  if (!value) return nothing;
  return html`<div>
    <dt>${label}</dt>
    <dd class=${code ? "mono" : ""}>${visible(value)}</dd>
  </div>`;
}

function displayText(value: Json | undefined): string | undefined {
  if (value === undefined || value === null || value === "") return undefined;
  return typeof value === "string" ? value : JSON.stringify(value);
}

function address({ kind, fields }: Entry): string | undefined {
  return kind === "tool" ? undefined : [text(fields["method"]), text(fields["url"])].filter(Boolean).join(" ");
}

function sizes({ fields }: Entry): string | undefined {
  const [sent, got] = [number(fields["request_size"]), number(fields["response_size"])];
  return [sent === undefined ? "" : `${size(sent)} sent`, got === undefined ? "" : `${size(got)} received`]
    .filter(Boolean)
    .join(", ");
}

/** Each step as a bar from its beginning to its end; the steps follow one another. */
function bars(entry: Entry): TemplateResult {
  const total = entry.steps.reduce((sum, step) => sum + step.took, 0) || 1;
  let at = 0;
  const rows = entry.steps.map((step) => {
    const x = (at / total) * 100;
    at += step.took;
    const width = Math.max(0.6, (step.took / total) * 100);
    return html`<div class="step">
      <span>${step.name}</span>
      <svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
        <rect class="track" width="100" height="6" rx="1" />
        <rect class="bar" x=${Math.min(x, 99.4)} width=${width} height="6" rx="1" />
      </svg>
      <span class="took">${duration(step.took)}</span>
    </div>`;
  });
  return html`<div class="steps" role="group" aria-label="Time of each step">${rows}</div>`;
}
