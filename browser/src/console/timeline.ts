/** The record as a timeline: lines are merged into entries, entries grouped by the model call or click that caused them. */
import { isObject, number, text, texts } from "./json";
import type { Initiator, JsonObject, Line, Question } from "./types";

export type Kind = (typeof KINDS)[number];
const KINDS = ["http", "tool", "approval", "view", "link", "download"] as const;
export type Status = "running" | "waiting" | "ok" | "refused" | "failed" | "unknown";

/** One exchange, tool call, approval, link or change of a view; `fields` are those of intent and outcome together. */
export interface Entry {
  id: string;
  kind: Kind;
  app: string;
  view: string | undefined;
  initiator: Initiator;
  evidence: string;
  cause: string | undefined;
  status: Status;
  /** The HTTP status, if there is one. */
  code: number | undefined;
  reason: string | undefined;
  /** The start, in seconds, and the duration, in milliseconds. */
  started: number;
  took: number | undefined;
  steps: { name: string; took: number }[];
  fields: JsonObject;
}

/** The consequences of one model call or one click; `head` is the call itself, absent for a click. */
export interface Group {
  key: string;
  initiator: Initiator;
  evidence: string;
  head: Entry | undefined;
  entries: Entry[];
  started: number;
}

export const MAX_ENTRIES = 500;
/** An intent without outcome is "result unknown" after so many seconds. */
const LOST_AFTER_SECONDS = 600;
/** Actions of a page itself within so many seconds are shown together. */
const BURST_SECONDS = 1.5;

const FAILED = new Set([
  "backend-unreachable",
  "backend-protocol",
  "backend-unavailable",
  "backend-timeout",
  "response-too-large",
  "credential-failed",
  "connection-lost",
  "condition-limit",
  "audit-unavailable",
  "state-unavailable",
  "internal",
]);

/** The lines with one more, each line once, the oldest dropped beyond the cap; the same array if nothing is new. */
export function withLine(lines: readonly Line[], line: Line): readonly Line[] {
  const known = lines.some((other) => other.id === line.id && other.phase === line.phase);
  return known ? lines : [...lines, line].slice(-2 * MAX_ENTRIES);
}

/** The entries of the lines, oldest first, at most `MAX_ENTRIES`; `now` in seconds. */
export function entriesOf(lines: readonly Line[], now: number): Entry[] {
  const byId = new Map<string, Line[]>();
  for (const line of lines) {
    const group = byId.get(line.id);
    if (group) group.push(line);
    else byId.set(line.id, [line]);
  }
  const entries = [...byId.values()].map((same) => cachedEntry(same) ?? entryOf(same, now));
  return entries.sort((one, other) => one.started - other.started).slice(-MAX_ENTRIES);
}

/** The groups of the entries, newest first; a pending question without an entry is placed by its own time. */
export function groupsOf(entries: readonly Entry[], pending: readonly Question[] = []): Group[] {
  const groups = new Map<string, Group>();
  let last: Group | undefined;
  const all = withPending(parkedEntries(entries, pending), pending);
  const tools = new Set(all.filter((entry) => entry.kind === "tool").map((entry) => entry.id));
  const asking = new Map(
    all.filter((entry) => entry.kind !== "approval").map((entry) => [approvalOf(entry) ?? "", entry]),
  );
  for (const entry of all) {
    // An answer is shown with the call that it answers.
    const placed = (entry.kind === "approval" && asking.get(approvalOf(entry) ?? entry.id)) || entry;
    const key = keyOf(placed, tools) ?? burstKey(placed, last) ?? `alone:${placed.id}`;
    const group = groups.get(key) ?? {
      key,
      initiator: placed.initiator,
      evidence: placed.evidence,
      head: undefined,
      entries: [],
      started: entry.started,
    };
    if (entry.kind === "tool" && key === `call:${entry.id}`)
      Object.assign(group, { head: entry, initiator: entry.initiator, evidence: entry.evidence });
    else group.entries.push(entry);
    groups.set(key, group);
    last = group;
  }
  return [...groups.values()].reverse();
}

/** Only entries of `initiator`; a call is kept with its requests. */
export function groupsOfInitiator(groups: readonly Group[], initiator: Initiator | undefined): readonly Group[] {
  if (!initiator) return groups;
  return groups
    .map((group) => ({ ...group, entries: group.entries.filter((entry) => entry.initiator === initiator) }))
    .filter((group) => group.head?.initiator === initiator || group.entries.length > 0);
}

/** The newest groups with `most` entries in total; the last one may be cut to its newest. */
export function newestGroups(groups: readonly Group[], most: number): readonly Group[] {
  const newest: Group[] = [];
  for (const group of groups) {
    if (most <= 0) break;
    newest.push(group.entries.length > most ? { ...group, entries: group.entries.slice(-most) } : group);
    most -= Math.max(1, group.entries.length);
  }
  return newest;
}

/** The part of the groups that is drawn next: the entries in `drawn`, and the newest `most` of the others. */
export function drawnGroups(groups: readonly Group[], drawn: ReadonlySet<string>, most: number): readonly Group[] {
  const isDrawn = ({ id }: Entry): boolean => drawn.has(id) || most-- > 0;
  return groups.flatMap((group) => {
    if (group.head && !isDrawn(group.head)) return [];
    const entries = [...group.entries].reverse().filter(isDrawn).reverse();
    return group.head || entries.length ? [{ ...group, entries }] : [];
  });
}

/** The ids of the entries in the groups, including calls. */
export function idsOf(groups: readonly Group[]): ReadonlySet<string> {
  return new Set(groups.flatMap(({ head, entries }) => [...(head ? [head.id] : []), ...entries.map(({ id }) => id)]));
}

/** The number of entries in the groups; a call without any counts as one. */
export function sizeOf(groups: readonly Group[]): number {
  return groups.reduce((sum, { entries }) => sum + Math.max(1, entries.length), 0);
}

/** Finished entries are immutable: a cache of the entries of outcomes, with their number of lines. */
const endedEntries = new WeakMap<Line, { entry: Entry; lines: number }>();

function cachedEntry(lines: readonly Line[]): Entry | undefined {
  const known = lines.map((line) => endedEntries.get(line)).find((found) => found);
  return known && known.lines >= lines.length ? known.entry : undefined;
}

function entryOf(lines: readonly Line[], now: number): Entry {
  const ordered = [...lines].sort((one, other) => Number(one.phase === "outcome") - Number(other.phase === "outcome"));
  const fields = Object.assign({}, ...ordered.map((line) => line.fields)) as JsonObject;
  const intent = lines.find((line) => line.phase === "intent");
  const outcome = lines.find((line) => line.phase === "outcome");
  const first = ordered[0] as Line;
  const steps = stepsOf(fields);
  const took = outcome ? tookOf(intent, outcome, steps) : undefined;
  const started = intent?.time ?? first.time - (took ?? 0) / 1000;
  const entry: Entry = {
    id: first.id,
    kind: kindOf(fields),
    app: text(fields["app"]) ?? "",
    view: text(fields["view"]),
    initiator: initiatorOf(fields),
    evidence: text(fields["evidence"]) ?? "",
    cause: text(fields["cause"]),
    status: statusOf(fields, outcome !== undefined, now - started),
    code: number(fields["status"]),
    reason: text(fields["reason"]),
    started,
    took,
    steps,
    fields,
  };
  if (outcome) endedEntries.set(outcome, { entry, lines: lines.length });
  return entry;
}

function statusOf(fields: JsonObject, done: boolean, age: number): Status {
  // The person is asked about a link at once, and may have left without an answer.
  if (!done && fields["kind"] === "link") return age > LOST_AFTER_SECONDS ? "unknown" : "waiting";
  if (!done && fields["kind"] === "approval") return "waiting";
  if (!done) return age > LOST_AFTER_SECONDS ? "unknown" : "running";
  if (fields["kind"] === "approval") return fields["decision"] === "approved" ? "ok" : "refused";
  const reason = text(fields["reason"]);
  if (reason) return FAILED.has(reason) ? "failed" : "refused";
  if (fields["decision"] === "deny") return "refused";
  return (number(fields["status"]) ?? 200) >= 400 ? "failed" : "ok";
}

function tookOf(intent: Line | undefined, outcome: Line, steps: Entry["steps"]): number {
  // Steps begin before the intent is written; but a failed one is not included.
  const sum = steps.reduce((total, step) => total + step.took, 0);
  const between = intent ? (outcome.time - intent.time) * 1000 : 0;
  return Math.max(sum, between);
}

function stepsOf(fields: JsonObject): Entry["steps"] {
  const timing = isObject(fields["timing"]) ? fields["timing"] : {};
  return Object.entries(timing).map(([name, took]) => ({ name, took: number(took) ?? 0 }));
}

function kindOf(fields: JsonObject): Kind {
  return KINDS.find((kind) => kind === fields["kind"]) ?? "http";
}

function initiatorOf(fields: JsonObject): Initiator {
  const initiator = fields["initiator"];
  return initiator === "person" || initiator === "model" ? initiator : "page";
}

function keyOf(entry: Entry, tools: ReadonlySet<string>): string | undefined {
  if (entry.cause) return tools.has(entry.cause) ? `call:${entry.cause}` : `cause:${entry.cause}`;
  return entry.kind === "tool" ? `call:${entry.id}` : undefined;
}

/** The previous group, if the same page did that by itself just before. */
function burstKey(entry: Entry, last: Group | undefined): string | undefined {
  const before = last?.entries.at(-1);
  if (!last?.key.startsWith("alone:") || !before) return undefined;
  const same =
    before.kind === entry.kind &&
    before.view === entry.view &&
    before.initiator === entry.initiator &&
    before.evidence === entry.evidence;
  return same && entry.started - before.started < BURST_SECONDS ? last.key : undefined;
}

/** A call that waits for a person has one line for that, and another one once it ran: one entry is shown. */
function parkedEntries(entries: readonly Entry[], pending: readonly Question[]): Entry[] {
  const calls = entries.filter((entry) => entry.kind !== "approval");
  const ran = new Set(calls.filter((entry) => !isParked(entry)).map(approvalOf));
  const open = new Set(pending.map((question) => question.id));
  const answers = new Map(
    entries.filter((entry) => entry.kind === "approval").map((entry) => [approvalOf(entry), entry]),
  );
  return entries
    .filter((entry) => !isParked(entry) || !ran.has(approvalOf(entry)))
    .map((entry) => (isParked(entry) ? { ...entry, ...statusFromApproval(entry, open, answers) } : entry));
}

function isParked(entry: Entry): boolean {
  const { kind, code, fields } = entry;
  return kind !== "approval" && code === 202 && approvalOf(entry) !== undefined && !("answered_by" in fields);
}

function statusFromApproval(
  entry: Entry,
  open: ReadonlySet<string>,
  answers: ReadonlyMap<string | undefined, Entry>,
): Partial<Entry> {
  const id = approvalOf(entry) ?? "";
  const still = { code: undefined, took: undefined };
  if (open.has(id)) return { ...still, status: "waiting" };
  const answer = answers.get(id);
  if (answer?.status === "ok") return { ...still, status: "running" };
  return { ...still, status: "refused", reason: answer ? "approval-declined" : "approval-expired" };
}

/** A question may arrive before its request is in the record: until then it has a separate entry. */
function withPending(entries: readonly Entry[], pending: readonly Question[]): Entry[] {
  const asked = new Set(entries.filter((entry) => entry.kind !== "approval").map(approvalOf));
  const waiting = pending
    .filter((question) => !asked.has(question.id))
    .map((question) => waitingEntry(question, entries));
  return [...entries, ...waiting].sort((one, other) => one.started - other.started);
}

function waitingEntry(question: Question, entries: readonly Entry[]): Entry {
  const call = entries
    .filter((entry) => entry.kind === "tool" && entry.status === "running")
    .filter((entry) => entry.view === (question.view ?? undefined))
    .at(-1);
  return {
    id: question.id,
    kind: "http",
    app: question.app,
    view: question.view ?? undefined,
    initiator: question.initiator,
    evidence: question.evidence,
    cause: question.initiator === "model" ? call?.id : undefined,
    status: "waiting",
    code: undefined,
    reason: undefined,
    started: question.created,
    took: undefined,
    steps: [],
    fields: { method: question.method, url: question.target, message: question.message, approval: question.id },
  };
}

function approvalOf(entry: Entry): string | undefined {
  return text(entry.fields["approval"]);
}

/** The policy's reasons, in words. */
export function reasonsOf(entry: Entry): string[] {
  return texts(entry.fields["reasons"]);
}
