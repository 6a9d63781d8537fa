/** A form from a JSON Schema, and arguments from the form: no elements, only values. */
import { isObject, number, text } from "./json";
import type { Json, JsonObject } from "./types";

export type Kind = "text" | "long" | "number" | "integer" | "boolean" | "choice" | "json";

export interface Choice {
  label: string;
  value: Json;
}

export interface Field {
  name: string;
  label: string;
  description: string;
  required: boolean;
  kind: Kind;
  choices: Choice[];
  /** The initial value of the field: for a choice the index, for a boolean "true" or "false", "" for nothing. */
  initial: string;
  hint: string;
  minimum: number | undefined;
  maximum: number | undefined;
  maxLength: number | undefined;
}

export type Values = Readonly<Record<string, string>>;
export type Filled = { ok: true; arguments: JsonObject } | { ok: false; errors: Record<string, string> };

/** The only field of a schema without properties: all arguments as JSON. */
export const WHOLE = "*";

const BOOLEANS: Choice[] = [
  { label: "Yes", value: true },
  { label: "No", value: false },
];

export function fieldsOf(schema: JsonObject): Field[] {
  const properties = schema["properties"];
  const required = Array.isArray(schema["required"]) ? schema["required"] : [];
  if (isObject(properties)) {
    const names = Object.keys(properties);
    return names.map((name) => fieldOf(name, properties[name], required.includes(name)));
  }
  return schema["additionalProperties"] === false || isEmpty(schema) ? [] : [whole(schema)];
}

export function initialValues(fields: readonly Field[]): Values {
  return Object.fromEntries(fields.map((field) => [field.name, field.initial]));
}

/** The arguments, or errors by field name. Empty optional fields are omitted. */
export function toArguments(fields: readonly Field[], values: Values): Filled {
  const args: JsonObject = {};
  const errors: Record<string, string> = {};
  for (const field of fields) {
    const read = readField(field, values[field.name] ?? "");
    if (typeof read === "string") errors[field.name] = read;
    else if (field.name === WHOLE) Object.assign(args, read?.value);
    else if (read) args[field.name] = read.value;
  }
  return Object.keys(errors).length ? { ok: false, errors } : { ok: true, arguments: args };
}

function fieldOf(name: string, property: Json | undefined, required: boolean): Field {
  const schema = isObject(property) ? property : {};
  const kind = kindOf(schema);
  const choices = choicesOf(schema, kind);
  return {
    name,
    label: text(schema["title"]) ?? name,
    description: text(schema["description"]) ?? "",
    required,
    kind,
    choices,
    initial: initialOf(schema, kind, choices),
    hint: hintOf(schema, kind),
    minimum: number(schema["minimum"]),
    maximum: number(schema["maximum"]),
    maxLength: number(schema["maxLength"]),
  };
}

function whole(schema: JsonObject): Field {
  const field = fieldOf(WHOLE, schema, false);
  return { ...field, label: "Arguments", kind: "json", initial: "{}", hint: "a JSON object" };
}

function isEmpty(schema: JsonObject): boolean {
  return Object.keys(schema).every((key) => key === "type" || key === "$schema");
}

function kindOf(schema: JsonObject): Kind {
  if (Array.isArray(schema["enum"]) || "const" in schema || constants(schema)) return "choice";
  switch (typeOf(schema)) {
    case "string":
      return (number(schema["maxLength"]) ?? 0) > 200 ? "long" : "text";
    case "number":
      return "number";
    case "integer":
      return "integer";
    case "boolean":
      return "boolean";
    default:
      return "json";
  }
}

/** The type, if there is one; for a nullable type, the other one. */
function typeOf(schema: JsonObject): string | undefined {
  const type = schema["type"];
  if (!Array.isArray(type)) return text(type);
  const others = type.filter((item) => item !== "null");
  return others.length === 1 ? text(others[0]) : undefined;
}

function constants(schema: JsonObject): JsonObject[] | undefined {
  const list = schema["oneOf"] ?? schema["anyOf"];
  if (!Array.isArray(list) || list.length === 0) return undefined;
  const all = list.filter((item) => isObject(item)).filter((item) => "const" in item);
  return all.length === list.length ? all : undefined;
}

function choicesOf(schema: JsonObject, kind: Kind): Choice[] {
  if (kind === "boolean") return BOOLEANS;
  if (kind !== "choice") return [];
  const values = schema["enum"];
  if (Array.isArray(values)) return values.map((value) => ({ label: label(value), value }));
  if ("const" in schema) return [{ label: label(schema["const"] ?? null), value: schema["const"] ?? null }];
  return (constants(schema) ?? []).map((item) => {
    const value = item["const"] ?? null;
    return { label: text(item["title"]) ?? label(value), value };
  });
}

function label(value: Json): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

function initialOf(schema: JsonObject, kind: Kind, choices: readonly Choice[]): string {
  const given = schema["default"];
  if (kind === "choice" || kind === "boolean") {
    const index = choices.findIndex((choice) => JSON.stringify(choice.value) === JSON.stringify(given));
    return index < 0 ? "" : String(index);
  }
  if (given === undefined || given === null) return "";
  return kind === "json" ? JSON.stringify(given, null, 2) : label(given);
}

function hintOf(schema: JsonObject, kind: Kind): string {
  const [low, high] = [number(schema["minimum"]), number(schema["maximum"])];
  if (kind === "json") return `JSON${typeOf(schema) ? `, ${typeOf(schema)}` : ""}`;
  if (low !== undefined && high !== undefined) return `${low} to ${high}`;
  if (low !== undefined) return `at least ${low}`;
  if (high !== undefined) return `at most ${high}`;
  return text(schema["format"]) ?? "";
}

/** The field's value; undefined if it is omitted; a text is an error. */
function readField(field: Field, raw: string): { value: Json } | undefined | string {
  if (raw.trim() === "") return field.required ? "Needed" : undefined;
  switch (field.kind) {
    case "text":
    case "long":
      return { value: raw };
    case "choice":
    case "boolean": {
      const choice = field.choices[Number(raw)];
      return choice ? { value: choice.value } : "Pick one of the choices";
    }
    case "number":
    case "integer":
      return readNumber(field, raw);
    case "json":
      return readJson(field, raw);
  }
}

function readNumber(field: Field, raw: string): { value: number } | string {
  const value = Number(raw);
  if (!Number.isFinite(value)) return "Not a number";
  if (field.kind === "integer" && !Number.isSafeInteger(value)) return "A whole number, please";
  if (field.minimum !== undefined && value < field.minimum) return `At least ${field.minimum}`;
  if (field.maximum !== undefined && value > field.maximum) return `At most ${field.maximum}`;
  return { value };
}

function readJson(field: Field, raw: string): { value: Json } | string {
  try {
    const value = JSON.parse(raw) as Json;
    return field.name === WHOLE && !isObject(value) ? "A JSON object, please" : { value };
  } catch {
    return "Not JSON";
  }
}
