import { expect, test } from "vitest";
import { MAX_ENTRIES, entriesOf, groupsOf, idsOf, newestGroups, groupsOfInitiator, drawnGroups, sizeOf, withLine } from "./timeline";
import type { Json, Line, Question } from "./types";

const NOW = 1000;

function line(id: string, phase: Line["phase"], time: number, fields: { [key: string]: Json }): Line {
  return { id, phase, time, fields };
}

const CALL = [
  line("t1", "intent", 10, { kind: "tool", initiator: "model", tool: "add_to_cart", view: "v" }),
  line("h1", "intent", 10.1, {
    kind: "http",
    initiator: "model",
    cause: "t1",
    method: "POST",
    url: "/api/cart",
    view: "v",
  }),
  line("h1", "outcome", 10.3, {
    kind: "http",
    initiator: "model",
    cause: "t1",
    status: 201,
    timing: { decide: 1, send: 219 },
  }),
  line("t1", "outcome", 10.4, { kind: "tool", initiator: "model", tool: "add_to_cart", decision: "allow" }),
];

test("intent and outcome of one exchange are one entry", () => {
  const [, http] = entriesOf(CALL, NOW);
  expect(http).toMatchObject({
    id: "h1",
    status: "ok",
    code: 201,
    started: 10.1,
    fields: { method: "POST", url: "/api/cart" },
  });
  expect(http?.took).toBe(220);
});

test("the time of a step that failed, and so is not told, lies between the two lines", () => {
  const lines = [
    line("a", "intent", 10, {}),
    line("a", "outcome", 40, { reason: "connection-lost", timing: { decide: 1 } }),
  ];
  expect(entriesOf(lines, NOW)[0]?.took).toBe(30_000);
});

test("a request stands under the model's call that caused it", () => {
  const [group, ...others] = groupsOf(entriesOf(CALL, NOW));
  expect(others).toEqual([]);
  expect(group?.head?.id).toBe("t1");
  expect(group?.entries.map((entry) => entry.id)).toEqual(["h1"]);
});

test("requests of one click stand together, those of another apart", () => {
  const click = (id: string, cause: string) => line(id, "outcome", 20, { initiator: "person", cause, status: 200 });
  const groups = groupsOf(entriesOf([click("a", "g1"), click("b", "g1"), click("c", "g2")], NOW));
  expect(groups.map((group) => [group.key, group.entries.length])).toEqual([
    ["cause:g2", 1],
    ["cause:g1", 2],
  ]);
});

test("what a page does by itself in one breath stands together, later requests apart", () => {
  const own = (id: string, time: number) => line(id, "outcome", time, { initiator: "page", view: "v", status: 200 });
  const groups = groupsOf(entriesOf([own("a", 1), own("b", 1.4), own("c", 9)], NOW));
  expect(groups.map((group) => group.entries.map((entry) => entry.id))).toEqual([["c"], ["a", "b"]]);
});

test.each([
  [{ reason: "policy-denied", status: 403 }, "refused"],
  [{ reason: "approval-declined", status: 403 }, "refused"],
  [{ reason: "backend-timeout", status: 504 }, "failed"],
  [{ status: 500 }, "failed"],
  [{ status: 204 }, "ok"],
])("an outcome %o is %s", (fields, status) => {
  expect(entriesOf([line("a", "outcome", 1, fields)], NOW)[0]?.status).toBe(status);
});

test("an intent runs, and after ten minutes without outcome its result is unknown", () => {
  const intent = line("a", "intent", 100, {});
  expect(entriesOf([intent], 101)[0]?.status).toBe("running");
  expect(entriesOf([intent], 900)[0]?.status).toBe("unknown");
});

test("a pending question waits under the running call of its view", () => {
  const intent = line("t1", "intent", 10, { kind: "tool", initiator: "model", view: "v" });
  const [group] = groupsOf(entriesOf([intent], 11), [question({ id: "q1", view: "v" })]);
  expect(group?.head?.id).toBe("t1");
  expect(group?.entries[0]).toMatchObject({ id: "q1", status: "waiting", fields: { method: "DELETE" } });
});

test("a pending question that the record knows gets no second entry", () => {
  const entries = entriesOf([line("h1", "intent", 10, { approval: "q1" })], 11);
  expect(groupsOf(entries, [question({ id: "q1" })])).toHaveLength(1);
});

test("an answer stands with the call that it answers, before and after that call is in the record", () => {
  const intent = line("t1", "intent", 10, { kind: "tool", initiator: "model", view: "v" });
  const answer = line("a1", "outcome", 12, {
    kind: "approval",
    initiator: "person",
    cause: "q1",
    approval: "q1",
    decision: "approved",
  });
  const sent = line("h1", "outcome", 13, {
    kind: "http",
    initiator: "model",
    cause: "t1",
    approval: "q1",
    status: 200,
  });
  const [group, ...others] = groupsOf(entriesOf([intent, answer, sent], 14));
  expect(others).toEqual([]);
  expect(group?.entries.map((entry) => [entry.id, entry.status])).toEqual([
    ["a1", "ok"],
    ["h1", "ok"],
  ]);
  expect(groupsOf(entriesOf([intent, answer], 12), [question({ id: "q1", view: "v" })])).toHaveLength(1);
});

test("what a backend accepts after a person's yes does not wait any more", () => {
  const fields = { kind: "http", approval: "q1", status: 202, answered_by: "ada" };
  const [group] = groupsOf(entriesOf([line("h1", "outcome", 13, fields)], 14), []);
  expect(group?.entries[0]).toMatchObject({ id: "h1", status: "ok", code: 202 });
});

test("a call that waits has one entry, from its question to its answer", () => {
  const fields = { kind: "http", initiator: "model", cause: "t1", approval: "q1" };
  const parked = line("h0", "outcome", 10, { ...fields, status: 202, detail: "waits for a person" });
  const answered = (decision: string): Line =>
    line("a1", "outcome", 12, { kind: "approval", initiator: "person", approval: "q1", cause: "q1", decision });
  const sent = line("h1", "outcome", 13, { ...fields, status: 200 });
  const shown = (lines: Line[], pending: Question[]): unknown[] =>
    groupsOf(entriesOf(lines, 14), pending).flatMap((group) =>
      group.entries.map((entry) => [entry.id, entry.status, entry.reason]),
    );
  expect(shown([parked], [question({ id: "q1" })])).toEqual([["h0", "waiting", undefined]]);
  expect(shown([parked, answered("approved")], [])).toEqual([
    ["h0", "running", undefined],
    ["a1", "ok", undefined],
  ]);
  expect(shown([parked, answered("declined")], [])[0]).toEqual(["h0", "refused", "approval-declined"]);
  expect(shown([parked], [])).toEqual([["h0", "refused", "approval-expired"]]);
  expect(shown([parked, answered("approved"), sent], [])).toEqual([
    ["a1", "ok", undefined],
    ["h1", "ok", undefined],
  ]);
});

test("the filter keeps a call with its requests and leaves the others out", () => {
  const groups = groupsOf(entriesOf([...CALL, line("p", "outcome", 50, { initiator: "person", cause: "g" })], NOW));
  expect(groupsOfInitiator(groups, "model").map((group) => group.key)).toEqual(["call:t1"]);
  expect(groupsOfInitiator(groups, "person").map((group) => group.key)).toEqual(["cause:g"]);
  expect(groupsOfInitiator(groups, undefined)).toHaveLength(2);
  const quiet = groupsOf(entriesOf([line("t2", "outcome", 60, { kind: "tool", initiator: "model" })], NOW));
  expect(groupsOfInitiator(quiet, "model")).toHaveLength(1);
});

test("so many entries are shown, the newest of a large group, and a call without any is one", () => {
  const breath = Array.from({ length: 40 }, (_, index) => line(`h${index}`, "intent", 10 + index / 100, { kind: "http" }));
  const call = line("t9", "intent", 20, { kind: "tool", initiator: "model", tool: "ping" });
  const groups = groupsOf(entriesOf([...breath, call], NOW));
  const shown = newestGroups(groups, 30);
  expect([sizeOf(groups), sizeOf(shown), newestGroups(groups, 1).length]).toEqual([41, 30, 1]);
  expect(shown[1]?.entries.map(({ id }) => id)).toEqual(Array.from({ length: 29 }, (_, index) => `h${index + 11}`));
  expect(newestGroups(groups, 41)[1]?.entries).toHaveLength(40);
});

test("a line that comes twice, as after a reconnect, counts once", () => {
  const lines = CALL.reduce(withLine, [] as readonly Line[]);
  expect(withLine(lines, CALL[0] as Line)).toBe(lines);
});

test("no more than the newest 500 entries are kept", () => {
  const many = Array.from({ length: MAX_ENTRIES + 5 }, (_, index) => line(`${index}`, "outcome", index * 10, {}));
  const entries = entriesOf(many, NOW);
  expect([entries.length, entries[0]?.id]).toEqual([MAX_ENTRIES, "5"]);
});

function question(given: Partial<Question>): Question {
  const rest = { app: "cart", message: "Remove?", method: "DELETE", target: "/api/cart/1", headers: [], body: "", size: 0, evidence: "", grant: null };
  return { id: "q", view: null, initiator: "model", created: 10.5, expires: 130, ...rest, ...given };
}

const LINK = { kind: "link", initiator: "model", view: "v", url: "https://shop.example.com/tea" };

test.each<[status: string, lines: Line[]]>([
  ["waiting", [line("l", "intent", 990, { ...LINK, decision: "ask" })]],
  ["unknown", [line("l", "intent", 100, { ...LINK, decision: "ask" })]],
  ["ok", [line("l", "intent", 990, { ...LINK, decision: "ask" }), line("l", "outcome", 995, { ...LINK, decision: "approved", status: 200 })]],
  ["refused", [line("l", "outcome", 995, { ...LINK, decision: "declined", status: 403, reason: "approval-declined" })]],
  ["refused", [line("l", "outcome", 995, { ...LINK, decision: "deny", status: 403, reason: "policy-denied" })]],
])("a link is one entry: %s", (status, lines) => {
  expect(entriesOf(lines, NOW)).toMatchObject([{ id: "l", kind: "link", status }]);
});

const drawnOf = (groups: ReturnType<typeof groupsOf>, drawn: readonly string[], most: number): string[] => [
  ...idsOf(drawnGroups(groups, new Set(drawn), most)),
];

test("the newest entries are drawn first, a few at a time, until all are", () => {
  const own = (id: string, time: number) => line(id, "outcome", time, { initiator: "page", view: "v", status: 200 });
  const groups = groupsOf(entriesOf([own("a", 1), own("b", 1.4), own("c", 9)], NOW));
  expect(drawnOf(groups, [], 2)).toEqual(["c", "b"]);
  expect(drawnOf(groups, ["c", "b"], 2)).toEqual(["c", "a", "b"]);
});

test("a call is drawn before what it caused, and what was drawn stays", () => {
  const groups = groupsOf(entriesOf(CALL, NOW));
  expect([drawnOf(groups, [], 0), drawnOf(groups, [], 1), drawnOf(groups, ["t1", "h1"], 0)]).toEqual([[], ["t1"], ["t1", "h1"]]);
});

test("an entry that ended is made once, and made anew of a line that comes later", () => {
  const outcome = line("a", "outcome", 20, { status: 200 });
  const [once] = entriesOf([outcome], NOW);
  expect(entriesOf([outcome], NOW)[0]).toBe(once);
  expect(entriesOf([line("a", "intent", 10, { url: "/late" }), outcome], NOW)[0]).toMatchObject({ started: 10, fields: { url: "/late" } });
});
