/** `CallToolResult` of MCP: created from a page tool's result, and read from the gateway's. */

import { attempt } from "../attempt";
import { isObject, isShallow, type Params } from "../host/json-rpc";

/** One of MCP's content blocks. */
export interface Content {
  type: string;
  text?: string;
  [member: string]: unknown;
}

export type ToolResult = Params & { content: Content[]; structuredContent?: Params; isError?: boolean };

function text(value: string): Content[] {
  return [{ type: "text", text: value }];
}

function isContent(value: unknown): value is Content[] {
  return Array.isArray(value) && value.every((block) => isObject(block) && typeof block["type"] === "string");
}

/** The nesting of a result for which hosts and the gateway have room: messages may have 64 levels. */
const LEVELS = 58;

/**
 * `value` is converted through JSON first, so that unserializable values fail here and not in `postMessage`. A value
 * nested too deeply for a message is its text alone; a result of MCP is an error then.
 */
export function toolResult(value: unknown): ToolResult {
  if (typeof value === "string") return { content: text(value) };
  const json = JSON.stringify(value ?? undefined);
  if (json === undefined) return { content: [] };
  const plain: unknown = JSON.parse(json);
  if (!isObject(plain)) return { content: text(json) };
  if (!isShallow(plain, LEVELS)) {
    if ("content" in plain || "structuredContent" in plain) throw new Error(`nested deeper than ${LEVELS} levels`);
    return { content: text(json) };
  }
  if (isContent(plain["content"])) return plain as ToolResult;
  if (isObject(plain["structuredContent"])) return { ...plain, content: text(JSON.stringify(plain["structuredContent"])) };
  return { content: text(json), structuredContent: plain };
}

export function toolFailure(error: unknown): ToolResult {
  // Anything can be thrown, also a value without a string form.
  const message = attempt(() => String((error as Error | undefined)?.message || error));
  return { content: text(message ?? "Error"), isError: true };
}

// Captured now: the view key is parsed here.
const { parse } = JSON;

/** The values in a result of the gateway: structured, or as JSON in its text for hosts that drop the former. */
export function answerOf(result: Params): Params | undefined {
  const structured = result["structuredContent"];
  if (isObject(structured)) return structured;
  const { content } = result as { content?: { 0?: Params } };
  const parsed: unknown = attempt(() => parse(content?.[0]?.["text"] as string));
  return isObject(parsed) ? parsed : undefined;
}
