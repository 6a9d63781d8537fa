/** How the three initiators are shown: a mark, a word, a colour. */
import { html, type TemplateResult } from "lit";
import { icon } from "./icons";
import type { Initiator } from "./types";

export const INITIATORS: readonly Initiator[] = ["person", "page", "model"];

const WORDS: Record<Initiator, string> = { person: "Person", page: "Page", model: "Model" };

const EVIDENCE: Record<string, string> = {
  "model-call": "a model called a tool of this page",
  "model-call-reported": "the page reports that a model made it do this",
  "attested-gesture": "a click in the app, attested by its frame",
  "view-gesture": "a click in the app, as the app itself says",
  "no-gesture": "the page did it without a click",
  "unproven-view": "the client could not prove which view it speaks for",
  console: "answered on the console",
};

export function initiatorWord(initiator: Initiator): string {
  return WORDS[initiator] ?? "Page";
}

export function initiatorMark(initiator: Initiator): TemplateResult {
  return html`<span class="mark ${initiator}">${icon(initiator)}<span>${initiatorWord(initiator)}</span></span>`;
}

/** The gateway's evidence in words, or its own word where there are none for it. */
export function evidenceWords(evidence: string): string {
  return EVIDENCE[evidence] ?? evidence.replaceAll("-", " ");
}
