/** The presentation of the three initiators: a mark, a word, a colour. */
import { html, type TemplateResult } from "lit";
import { icon, type IconName } from "./icons";
import type { Initiator } from "./types";

export const INITIATORS: readonly Initiator[] = ["person", "page", "model"];

const WORDS: Record<Initiator, string> = { person: "Person", page: "Page", model: "Model" };

/** More exact words for a `page` that is not an app's page in a frame. */
const ACTORS: Record<string, { word: string; icon: IconName }> = {
  "app-origin": { word: "Site", icon: "globe" },
  file: { word: "Gateway", icon: "shield" },
};

const UNKNOWN = "the gateway cannot tell whether the app or a model sent this";

const EVIDENCE: Record<string, string> = {
  "model-call": "a model called a tool of this page",
  "model-call-reported": "the page reports that a model made it do this",
  "attested-gesture": "a click in the app, attested by its frame",
  "view-gesture": "the view says that a person acted",
  "no-gesture": "the page did it without a click",
  "no-view-proof": UNKNOWN,
  "no-view": UNKNOWN,
  "unproven-view": UNKNOWN,
  "app-origin": "sent on the app's own site",
  file: "a policy file was changed",
  console: "answered on the console",
};

/** The word for an initiator; with its evidence, a more exact one. */
export function initiatorWord(initiator: Initiator, evidence = ""): string {
  return actorOf(initiator, evidence)?.word ?? WORDS[initiator] ?? "Page";
}

export function initiatorMark(initiator: Initiator, evidence: string): TemplateResult {
  const name = actorOf(initiator, evidence)?.icon ?? initiator;
  return html`<span class="mark ${initiator}">${icon(name)}<span>${initiatorWord(initiator, evidence)}</span></span>`;
}

function actorOf(initiator: Initiator, evidence: string): { word: string; icon: IconName } | undefined {
  return initiator === "page" && Object.hasOwn(ACTORS, evidence) ? ACTORS[evidence] : undefined;
}

/** The gateway's evidence in words, or unchanged if it is unknown. */
export function evidenceWords(evidence: string): string {
  return (Object.hasOwn(EVIDENCE, evidence) && EVIDENCE[evidence]) || evidence;
}
