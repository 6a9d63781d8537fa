/** JSON text to values and back, the same in Python and in a browser: no overflow, a limit on depth. */
import { MuxError } from "./errors";

export type Json = { [name: string]: Json } | Json[] | string | number | boolean | null;
export type JsonObject = { [name: string]: Json };

/** The maximum nesting of arrays and objects, including the outermost. */
const DEPTH_LIMIT = 64;

/** The value of `text`. Throws MuxError `bad-json`. */
export function parse(text: string): Json {
  let value: Json;
  try {
    value = JSON.parse(text) as Json;
  } catch {
    throw new MuxError("bad-json", "this is no JSON");
  }
  if (isDeep(value)) throw new MuxError("bad-json", `nested deeper than ${DEPTH_LIMIT}`);
  if (!isFinite(value)) throw new MuxError("bad-json", "a number that no double can hold");
  return value;
}

/**
 * The maximum number of arrays and objects in one level. Structured clones share objects, so that a few could be written
 * as more text than there is memory for.
 */
const WIDTH_LIMIT = 4_000_000;

/** Whether `value` nests deeper than the limit, or too widely; does not recurse. */
export function isDeep(value: unknown): boolean {
  let layer: unknown[] = [value];
  for (let depth = 0; depth < DEPTH_LIMIT; depth++) {
    const next: unknown[] = [];
    for (const one of layer) {
      for (const child of containers(one)) next.push(child);
      if (next.length > WIDTH_LIMIT) return true;
    }
    if (next.length === 0) return false;
    layer = next;
  }
  return true;
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The size of a text in bytes of UTF-8. */
export function byteLength(text: string): number {
  return new TextEncoder().encode(text).length;
}

function containers(value: unknown): unknown[] {
  if (typeof value !== "object" || value === null) return [];
  return Object.values(value).filter((child) => typeof child === "object" && child !== null);
}

/** Whether every number is finite: `1e400` is parsed as infinity. Called for shallow values only. */
function isFinite(value: Json): boolean {
  if (typeof value === "number") return Number.isFinite(value);
  return typeof value !== "object" || value === null || Object.values(value).every(isFinite);
}
