import { expect, test } from "vitest";
import { follow, type Listener } from "./events";
import type { Line } from "./types";

const LINE: Line = { id: "a", phase: "outcome", time: 1, fields: { kind: "http" } };
const STREAM = `event: approvals\ndata: []\n\nevent: views\ndata: [{"id":"v"}]\n\nevent: problems\ndata: [{"file":"policy.yaml"}]\n\nevent: grants\ndata: [{"id":"g"}]\n\nevent: record\ndata: ${JSON.stringify(LINE)}\n\n`;

/** Follow a gateway with these answers in order, then abort; returns the listener's calls. */
async function followed(answers: (() => Response)[]): Promise<{ told: unknown[]; pauses: number[] }> {
  const controller = new AbortController();
  const told: unknown[] = [];
  const pauses: number[] = [];
  const listener: Listener = {
    approvals: (questions) => told.push(["approvals", questions.length]),
    views: (views) => told.push(["views", views[0]?.id]),
    apps: (apps) => told.push(["apps", apps[0]?.id]),
    problems: (problems) => told.push(["problems", problems[0]?.file]),
    grants: (grants) => told.push(["grants", grants[0]?.id]),
    record: (line) => told.push(["record", line.id]),
    connection: (state, detail) => told.push(detail ? [state, detail] : [state]),
    onUnknown: () => told.push(["unknown"]),
  };
  await follow("http://gateway.localhost/api/events", listener, controller.signal, {
    fetch: async () => (answers.shift() as () => Response)(),
    pause: async (milliseconds) => {
      pauses.push(milliseconds);
      if (answers.length === 0) controller.abort();
    },
  });
  return { told, pauses };
}

const whole = (): Response => new Response(STREAM);
const gone = (): Response => {
  throw new TypeError("Failed to fetch");
};

test("each kind of event reaches the listener, and the end of the stream is told", async () => {
  expect((await followed([whole])).told).toEqual([
    ["open"],
    ["approvals", 0],
    ["views", "v"],
    ["problems", "policy.yaml"],
    ["grants", "g"],
    ["record", "a"],
    ["lost", "The gateway closed the connection."],
  ]);
});

test("it connects again with growing pauses, which begin anew after a success", async () => {
  const { pauses } = await followed([gone, gone, gone, gone, gone, whole]);
  expect(pauses).toEqual([300, 1000, 2000, 3000, 3000, 300]);
});

test("a refusal is told in the gateway's words", async () => {
  const refusal = (): Response => Response.json({ detail: "This origin may not." }, { status: 403 });
  expect((await followed([refusal])).told).toEqual([["lost", "This origin may not."]]);
});

test("events that cannot be read are left out", async () => {
  const broken = (): Response =>
    new Response("event: record\ndata: {\n\nevent: record\ndata: 7\n\nevent: other\ndata: []\n\n");
  expect((await followed([broken])).told).toEqual([["open"], ["lost", "The gateway closed the connection."]]);
});
