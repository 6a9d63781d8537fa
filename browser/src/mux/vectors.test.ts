/** The shared vectors of the bridge's two implementations, run by the one in TypeScript. */
import { describe, expect, test } from "vitest";
import text from "../../../tests/mux/vectors.json?raw";
import { Connection, decode, encode, MuxError, type Frame, type JsonObject, type Role } from "./index";

interface Step {
  receive?: unknown;
  text?: string;
  send?: JsonObject;
  lost?: boolean;
  dropped?: number;
  events?: unknown[];
  output?: unknown[];
  error?: string;
  times?: number;
  long?: number;
  deep?: number;
  many?: [string, number];
}

interface Vector {
  name: string;
  role: Role;
  start?: string;
  steps: Step[];
}

const document = JSON.parse(text) as { starts: Record<string, Step[]>; vectors: Vector[] };

describe.each(document.vectors)("$role: $name", ({ role, start, steps }) => {
  test("each step gives the events, the output or the error that both languages agreed on", () => {
    const connection = new Connection(role);
    for (const step of [...(document.starts[start ?? ""] ?? []), ...steps]) {
      for (let number = 0; number < (step.times ?? 1); number++) run(connection, expanded(step, number), role);
    }
  });
});

function run(connection: Connection, step: Step, role: Role): void {
  if (step.dropped !== undefined) {
    expect(connection.dropped).toBe(step.dropped);
  } else if (step.error !== undefined) {
    expectError(connection, step, role);
  } else {
    expect(act(connection, step).map((event) => JSON.parse(encode(event)) as unknown)).toEqual(step.events);
    expect(connection.pendingOutput().map((text) => JSON.parse(text) as unknown)).toEqual(step.output ?? []);
  }
}

function expectError(connection: Connection, step: Step, role: Role): void {
  const speaks = role === "gateway" && step.send === undefined && !connection.ended;
  let caught: unknown;
  try {
    act(connection, step);
  } catch (error) {
    caught = error;
  }
  expect(caught).toBeInstanceOf(MuxError);
  const { code, message } = caught as MuxError;
  expect(code).toBe(step.error);
  const told: Frame[] = speaks ? [{ type: "error", code, detail: message }] : [];
  expect(connection.pendingOutput().map(decode)).toEqual(told);
}

function act(connection: Connection, step: Step): Frame[] {
  if (step.lost) return connection.connectionLost();
  if (step.send) return connection.send(frameOf(step.send));
  return connection.receiveData(step.text ?? JSON.stringify(step.receive));
}

/** A frame of this end with its raw message: `decode` would refuse a page's invalid ones. */
function frameOf(value: JsonObject): Frame {
  if (!("message" in value)) return decode(JSON.stringify(value));
  return { ...decode(JSON.stringify({ ...value, message: {} })), message: value["message"] } as Frame;
}

function expanded(step: Step, number: number): Step {
  const depth = step.deep ?? 0;
  const nested = "[".repeat(depth) + "]".repeat(depth);
  if (step.text !== undefined) {
    const [part, times] = step.many ?? ["", 0];
    return { ...step, text: step.text.replaceAll("$many", part.repeat(times)).replaceAll("$deep", nested) };
  }
  const text = JSON.stringify(step).replaceAll("$n", String(number)).replaceAll("$long", "x".repeat(step.long ?? 0));
  return JSON.parse(text.replaceAll('"$deep"', nested)) as Step;
}
