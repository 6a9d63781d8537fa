/** One JSON-RPC object: a call, a notification or an answer, strictly validated. */
import { MuxError } from "./errors";
import { isObject, type Json, type JsonObject } from "./text";

export const BUSY = -32000;
export const BAD_MESSAGE = -32600;
export const NO_METHOD = -32601;
export const INTERNAL = -32603;

/** The id of a call; the text `"1"` and the number `1` are different ids. */
export type Id = string | number;

export type MessageKind =
  | { kind: "call"; id: Id; method: string }
  /** `cancels` is the id in a `notifications/cancelled`. */
  | { kind: "notice"; method: string; cancels: Id | null }
  /** `id` is null for an error without a call. */
  | { kind: "answer"; id: Id | null };

const LONGEST = 256;

/** The kind of this message. Throws MuxError `bad-message`, also for a batch. */
export function readMessage(message: unknown): MessageKind {
  if (!isObject(message) || message["jsonrpc"] !== "2.0") throw bad("not one JSON-RPC 2.0 object");
  return has(message, "method") ? readMethod(message) : readAnswer(message);
}

/** An error answer to `call`. */
export function failure(call: Id, code: number, message: string): JsonObject {
  return { jsonrpc: "2.0", id: call, error: { code, message } };
}

/** The id in `message`, null if there is none that could be answered. */
export function idOf(message: JsonObject): Id | null {
  const id = message["id"];
  return isId(id) ? id : null;
}

export function has(value: JsonObject, name: string): boolean {
  return Object.hasOwn(value, name);
}

function readMethod(message: JsonObject): MessageKind {
  only(message, ["jsonrpc", "id", "method", "params"]);
  const method = message["method"];
  const { params = {} } = message; // structured clones keep a member that is undefined
  if (typeof method !== "string" || !isObject(params)) throw bad("method must be a string, params an object");
  if (has(message, "id")) return { kind: "call", id: readId(message["id"]), method };
  const cancels = method === "notifications/cancelled" ? idOrNull(params["requestId"]) : null;
  return { kind: "notice", method, cancels };
}

function readAnswer(message: JsonObject): MessageKind {
  if (has(message, "result")) {
    only(message, ["jsonrpc", "id", "result"]);
    if (!isObject(message["result"])) throw bad("result must be an object");
    return { kind: "answer", id: readId(message["id"]) };
  }
  only(message, ["jsonrpc", "id", "error"]);
  const error = message["error"];
  if (!isObject(error)) throw bad("neither method, result nor error");
  only(error, ["code", "message", "data"]);
  if (!Number.isSafeInteger(error["code"]) || typeof error["message"] !== "string") {
    throw bad("error.code must be an integer, error.message a string");
  }
  return { kind: "answer", id: idOrNull(message["id"]) };
}

function idOrNull(value: Json | undefined): Id | null {
  return value === undefined || value === null ? null : readId(value);
}

function readId(value: Json | undefined): Id {
  if (isId(value)) return value;
  throw bad(`id must be a string of at most ${LONGEST} characters or a safe integer`);
}

function isId(value: Json | undefined): value is Id {
  if (typeof value !== "string") return Number.isSafeInteger(value);
  return value.length <= LONGEST || [...value].length <= LONGEST; // characters, not UTF-16 units
}

function only(value: JsonObject, names: readonly string[]): void {
  if (Object.keys(value).some((name) => !names.includes(name))) throw bad(`only ${[...names].sort().join(", ")} may stand in this message`);
}

function bad(detail: string): MuxError {
  return new MuxError("bad-message", detail);
}
