/**
 * Large bodies beside the frames: `params` or `result` of a message is sent by HTTP, and replaced by `{"$body": id}`.
 *
 * The sender of a large message calls `splitBody`, uploads the text to `/bridge/bodies/<id>`, then sends the message
 * that refers to it; the receiver downloads the text and calls `joinBody`. A value that merely looks like such a
 * reference is always split, so that a page cannot refer to a body that it did not send.
 */
import { MuxError } from "./errors";
import { byteLength, isDeep, isObject, parse, type Json, type JsonObject } from "./text";

/** Bytes of UTF-8 above which `params` or `result` is sent as a separate body. */
export const BODY_LIMIT = 256 * 1024;

const ID = /^[A-Za-z0-9_-]{22,64}$/;

/** Whether this is the id of a body. */
export function isBodyId(value: unknown): value is string {
  return typeof value === "string" && ID.test(value);
}

/** Whether this message must be split before it is sent. */
export function isLarge(message: JsonObject): boolean {
  const place = placeOf(message);
  if (place === null) return false;
  const value = message[place] as Json;
  return isName(value) || (!isDeep(value) && byteLength(JSON.stringify(value)) > BODY_LIMIT);
}

/** The message that refers to the body `body`, and the JSON text to upload. */
export function splitBody(message: JsonObject, body: string): { message: JsonObject; text: string } {
  const place = placeOf(message);
  if (place === null || !isBodyId(body)) throw new TypeError("a message with params or result, and an id of base64url");
  return { message: { ...message, [place]: { $body: body } }, text: JSON.stringify(message[place]) };
}

/** The id of the body that this message refers to, if any. Throws MuxError `bad-message` for an invalid one. */
export function namedBody(message: JsonObject): string | null {
  const place = placeOf(message);
  const value = place === null ? null : (message[place] as Json);
  if (!isName(value)) return null;
  const body = value["$body"];
  if (!isBodyId(body)) throw new MuxError("bad-message", "$body: an id of base64url");
  return body;
}

/** The whole message. Throws MuxError `bad-json` or `bad-message` if the text is not a JSON object. */
export function joinBody(message: JsonObject, text: string): JsonObject {
  const place = placeOf(message);
  const value = parse(text);
  if (place === null || !isObject(value)) {
    throw new MuxError("bad-message", "a body is a JSON object, and stands for params or result");
  }
  return { ...message, [place]: value };
}

function placeOf(message: JsonObject): "params" | "result" | null {
  return Object.hasOwn(message, "params") ? "params" : Object.hasOwn(message, "result") ? "result" : null;
}

function isName(value: Json): value is JsonObject {
  return isObject(value) && Object.keys(value).length === 1 && Object.hasOwn(value, "$body");
}
