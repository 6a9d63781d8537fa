/** Header values of MCP's Streamable HTTP, 2026-07-28: names and marked arguments mirrored as headers. */
import { toBase64 } from "../view/base64";
import { isObject } from "./json";
import type { Json, JsonObject } from "./types";

/** Printable ASCII is unchanged; anything else is wrapped as `=?base64?…?=`. */
export function headerValue(value: string): string {
  const plain = /^[\x20-\x7e]*$/.test(value) && value === value.trim() && !/^=\?base64\?.*\?=$/.test(value);
  if (plain) return value;
  return `=?base64?${toBase64(new TextEncoder().encode(value))}?=`;
}

/** `Mcp-Param-*` for the arguments whose property in `schema` has `x-mcp-header`. */
export function paramHeaders(schema: JsonObject | undefined, args: JsonObject): Record<string, string> {
  const properties = schema?.["properties"];
  if (!isObject(properties)) return {};
  const headers: Record<string, string> = {};
  for (const [name, property] of Object.entries(properties)) {
    const value = args[name];
    if (!isObject(property) || value === undefined || value === null) continue;
    const mark = property["x-mcp-header"];
    if (typeof mark === "string" && isScalar(value)) headers[`mcp-param-${mark}`] = headerValue(String(value));
    if (isObject(value)) Object.assign(headers, paramHeaders(property, value));
  }
  return headers;
}

function isScalar(value: Json): boolean {
  return typeof value === "string" || typeof value === "number" || typeof value === "boolean";
}
