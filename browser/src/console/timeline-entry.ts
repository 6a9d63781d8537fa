/** One entry of the timeline as an expandable line. */
import { html, nothing, type TemplateResult } from "lit";
import { repeat } from "lit/directives/repeat.js";
import { clock, duration, size, visible, visibleLine } from "./format";
import { icon, type IconName } from "./icons";
import { initiatorMark, initiatorWord } from "./initiators";
import { isObject, number, text } from "./json";
import type { Entry, Group, Status } from "./timeline";
import { detailsTemplate } from "./timeline-details";

const STATUS: Record<Status, { icon: IconName; word: string }> = {
  running: { icon: "clock", word: "running" },
  waiting: { icon: "shield", word: "waits for approval" },
  ok: { icon: "check", word: "ok" },
  refused: { icon: "bar", word: "refused" },
  failed: { icon: "alert", word: "failed" },
  unknown: { icon: "unknown", word: "result unknown" },
};

/** The ids of the expanded entries. */
export interface OpenEntries {
  has(id: string): boolean;
  toggle(id: string, open: boolean): void;
}

export function groupTemplate(group: Group, opened: OpenEntries): TemplateResult {
  const { head, entries, initiator } = group;
  const around = initiatorWord(initiator, group.evidence);
  const item = (entry: Entry): TemplateResult =>
    html`<li>${entryTemplate(entry, opened, requestLine(entry, around))}</li>`;
  return html`<li class="group ${initiator}">
    ${head ? entryTemplate(head, opened, callLine(head)) : causeLine(group)}
    ${
      entries.length
        ? html`<ul>
            ${repeat(entries, (entry) => entry.id, item)}
          </ul>`
        : nothing
    }
  </li>`;
}

function entryTemplate(entry: Entry, opened: OpenEntries, line: TemplateResult): TemplateResult {
  const open = opened.has(entry.id);
  return html`<details
    class="record ${entry.status}"
    data-testid="record"
    data-id=${entry.id}
    data-kind=${entry.kind}
    data-initiator=${entry.initiator}
    data-status=${entry.status}
    data-code=${entry.code ?? nothing}
    data-reason=${entry.reason ?? nothing}
    data-cause=${entry.cause ?? nothing}
    ?open=${open}
    @toggle=${(event: Event) => opened.toggle(entry.id, (event.target as HTMLDetailsElement).open)}
  >
    <summary>${line}</summary>
    ${open ? detailsTemplate(entry) : nothing}
  </details>`;
}

function causeLine(group: Group): TemplateResult {
  return html`<div class="cause">
    ${initiatorMark(group.initiator, group.evidence)}<span class="what">${causeWords(group)}</span><time>${clock(group.started)}</time>
  </div>`;
}

function callLine(entry: Entry): TemplateResult {
  return html`<span class="line head">
    ${initiatorMark(entry.initiator, entry.evidence)}
    <span class="what">called <code>${visibleLine(text(entry.fields["tool"]) ?? "a tool")}</code></span>
    ${outcome(entry, html`<time>${clock(entry.started)}</time>`)}
  </span>`;
}

function requestLine(entry: Entry, around: string): TemplateResult {
  const word = initiatorWord(entry.initiator, entry.evidence);
  return html`<span class="line">
    ${word === around ? html`<span class="quiet">${word}</span>` : initiatorMark(entry.initiator, entry.evidence)}
    <span class="method">${methodWord(entry)}</span>
    <code class="url" title=${visibleLine(urlWord(entry))}>${visible(urlWord(entry))}</code>
    ${outcome(entry)}
  </span>`;
}

function outcome(entry: Entry, time: TemplateResult | typeof nothing = nothing): TemplateResult {
  const { icon: name, word } = STATUS[entry.status];
  const words = outcomeWords(entry) || word;
  const told = words === word ? nothing : html`<span class="quiet">${word}</span>`;
  const took = entry.kind === "approval" || entry.took === undefined ? nothing : duration(entry.took);
  return html`<span class="outcome">
    <span class="chip ${entry.status}" title=${entry.reason ?? word}>
      ${icon(name)}${told}<span class="words">${words}</span>
    </span>
    ${took === nothing ? nothing : html`<span class="took">${took}</span>`}${time}
  </span>`;
}

/** The HTTP status and the reason of a refusal; for an approval the decision; empty if there is no more to show. */
function outcomeWords(entry: Entry): string {
  if (entry.kind === "approval") return text(entry.fields["decision"]) ?? "";
  if (entry.kind === "link" && entry.status === "ok") return "opened";
  if (entry.kind === "download" && entry.status === "ok") return "saved";
  const code = entry.kind === "http" && entry.code ? `${entry.code}` : "";
  return [code, entry.reason].filter(Boolean).join(" ");
}

function methodWord(entry: Entry): string {
  return entry.kind === "http" || entry.kind === "tool" ? (text(entry.fields["method"]) ?? "") : entry.kind;
}

function urlWord({ fields }: Entry): string {
  if (fields["kind"] === "download") return filesWord(fields["files"]);
  const [message, url] = [text(fields["message"]), text(fields["url"])];
  return (fields["kind"] === "approval" ? (message ?? url) : (url ?? message)) ?? text(fields["tool"]) ?? "";
}

function filesWord(files: unknown): string {
  const names = (Array.isArray(files) ? files : []).map((file) => (isObject(file) ? `${text(file["name"])} (${size(number(file["size"]) ?? 0)})` : ""));
  return names.filter(Boolean).join(", ");
}

function causeWords(group: Group): string {
  if (group.key.startsWith("call:") || group.initiator === "model") return "caused this";
  if (group.key.startsWith("cause:") && group.initiator === "person") return "clicked in the app";
  if (group.evidence === "app-origin") return "on the app's own site";
  if (group.evidence === "file") return "read a changed policy";
  return group.initiator === "page" ? "by itself" : "used the app";
}
