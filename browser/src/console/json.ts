/** Reads JSON of unknown shape. */
import type { Json } from "./types";

export { isObject } from "../mux";

export function text(value: Json | undefined): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

export function number(value: Json | undefined): number | undefined {
  return typeof value === "number" && Number.isFinite(value) ? value : undefined;
}

export function texts(value: Json | undefined): string[] {
  return Array.isArray(value) ? value.filter((item) => typeof item === "string") : [];
}

const STRINGS_AND_SPACE = /("[^"\\]*(?:\\.[^"\\]*)*")|[ \t\r\n]+/g;

/** JSON in many lines; unchanged if invalid, or if a duplicate name, a long number or an escape would be lost. */
export function pretty(source: string): string {
  try {
    const value: unknown = JSON.parse(source);
    const same = JSON.stringify(value) === source.replace(STRINGS_AND_SPACE, "$1");
    return same ? JSON.stringify(value, null, 2) : source;
  } catch {
    return source;
  }
}
