/** The JSON Schema of a form's controls, as Chromium's own WebMCP creates it. */

import { attempt } from "../attempt";
import type { Params } from "../host/json-rpc";

export type Control = HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement;

const NOT_SHOWN = /^(submit|button|reset|image|hidden|file|password)$/;
/** `readonly` does not apply to these (HTML, 4.10.5.1), nor to `select`. */
const ALWAYS_OPEN = /^(checkbox|radio|range|color|select.*)$/;
const BOX = /^(checkbox|radio)$/;
const TEXT = /^(text|search|url|tel|email|textarea)$/;
const NUMBER = /^-?(\d+(\.\d+)?|\.\d+)(e[-+]?\d+)?$/i;
const MONTH = "[0-9]{4}-(0[1-9]|1[0-2])";
const CLOCK = "([01][0-9]|2[0-3]):[0-5][0-9]";

/** The controls that a person can change, by name; several with one name are one parameter only if they are boxes. */
export function controls(form: HTMLFormElement): Map<string, Control[]> {
  const found = new Map<string, Control[]>();
  for (const control of form.elements as unknown as Iterable<Control>) {
    const closed = !ALWAYS_OPEN.test(control.type) && (control as HTMLInputElement).readOnly;
    if (control.name && !closed && control.matches("input,select,textarea") && !control.matches(":disabled") && !NOT_SHOWN.test(control.type)) found.set(control.name, [...(found.get(control.name) ?? []), control]);
  }
  for (const [name, all] of found) if (all.length > 1 && !all.every(({ type }) => BOX.test(type) && type === all[0]!.type)) found.delete(name);
  return found;
}

export const isGroup = ([control, ...more]: Control[]): boolean => control!.type === "radio" || more.length > 0;

const text = (element: Element | null | undefined, name: string): string | undefined => element?.getAttribute(name) ?? undefined;

/** The text of a label, without that of controls within it. */
const words = (node: Node): string =>
  node instanceof Text ? node.data : /^(select|textarea|button|datalist|script|style)$/.test((node as Element).localName ?? "") ? "" : [...node.childNodes].map(words).join("");

const labelOf = (control: Control): string | undefined =>
  [...(control.labels ?? [])].map((label) => words(label).trim()).filter(Boolean).join("; ") || undefined;

/** The values to choose from, with their labels. */
export function choicesOf(all: Control[]): Map<string, string | undefined> {
  const [control] = all;
  if (!(control instanceof HTMLSelectElement)) return new Map(all.map((one) => [one.value, labelOf(one)]));
  const offered = [...control.options].filter((option) => !option.matches(":disabled"));
  return new Map(offered.map((option) => [option.value, (option.label || option.text) || undefined] as const));
}

function choices(all: Control[]): Params {
  const found = [...choicesOf(all)];
  if (!found.length) return { type: "string" };
  return { type: "string", anyOf: found.map(([value, title]) => ({ type: "string", const: value, title })), enum: found.map(([value]) => value) };
}

const number = (given: string | undefined): number | undefined => (given !== undefined && NUMBER.test(given) ? Number(given) : undefined);

/** The pattern of seconds and fractions, if the control takes them. */
function seconds(control: Control): string {
  const step = number(text(control, "step")) ?? 60;
  const based = /:\d\d:\d\d/.test(`${text(control, "min")} ${text(control, "value")}`);
  if (step <= 0 || step % 60 === 0) return based ? "(:[0-5][0-9])?" : "";
  return step % 1 === 0 ? "(:[0-5][0-9])?" : "(:[0-5][0-9](\\.[0-9]{1,3})?)?";
}

function numeric(control: HTMLInputElement): Params {
  const range = control.type === "range";
  const minimum = number(text(control, "min")) ?? (range ? 0 : undefined);
  const given = number(text(control, "max")) ?? (range ? 100 : undefined);
  const maximum = range ? Math.max(minimum!, given!) : given;
  const step = number(text(control, "step"));
  const multipleOf = text(control, "step")?.toLowerCase() === "any" ? undefined : step !== undefined && step > 0 ? step : 1;
  const parts = (minimum ?? number(text(control, "value")) ?? 0) / (multipleOf ?? 1);
  return { type: "number", minimum, maximum, multipleOf: Math.abs(parts - Math.round(parts)) < 1e-9 ? multipleOf : undefined };
}

/** The local form of a control's value: RFC 3339 formats have a time zone, which such a control drops. */
function patternOf(control: Control): string | undefined {
  switch (control.type) {
    case "time": return `^${CLOCK}${seconds(control)}$`;
    case "datetime-local": return `^${MONTH}-[0-9]{2}T${CLOCK}${seconds(control)}$`;
    case "month": return `^${MONTH}$`;
    case "week": return "^[0-9]{4}-W(0[1-9]|[1-4][0-9]|5[0-3])$";
    case "color": return "^#[0-9a-fA-F]{6}$";
  }
  const pattern = TEXT.test(control.type) ? text(control, "pattern") : undefined;
  return pattern === undefined ? undefined : attempt(() => new RegExp(pattern, "v") && pattern);
}

function typeOf(all: Control[]): Params {
  const [control] = all as [Control];
  if (control.type === "select-multiple" || (control.type === "checkbox" && all.length > 1)) return { type: "array", items: choices(all), uniqueItems: true };
  if (control.type === "radio" || control instanceof HTMLSelectElement) return choices(all);
  if (control.type === "checkbox") return { type: "boolean" };
  if (/^(number|range)$/.test(control.type)) return numeric(control as HTMLInputElement);
  const format = control.type === "date" ? "date" : control.type === "url" ? "uri" : control.type === "email" && !(control as HTMLInputElement).multiple ? "email" : undefined;
  const length = (bound: number): number | undefined => (TEXT.test(control.type) && bound >= 0 ? bound : undefined);
  return { type: "string", format, pattern: patternOf(control), minLength: length(control.minLength), maxLength: length(control.maxLength) };
}

function describe(all: Control[]): string | undefined {
  const [control] = all as [Control];
  if (!isGroup(all)) return text(control, "toolparamdescription") || labelOf(control) || text(control, "aria-label") || text(control, "placeholder");
  const set = control.closest("fieldset");
  return text(set, "toolparamdescription") || (set?.querySelector("legend") && words(set.querySelector("legend")!).trim()) || undefined;
}

export function schemaOf(form: HTMLFormElement): Params {
  const found = [...controls(form)];
  const properties = Object.fromEntries(found.map(([name, all]) => [name, { ...typeOf(all), title: text(all[0], "toolparamtitle"), description: describe(all) }]));
  const required = found.filter(([, all]) => all.some((one) => one.required)).map(([name]) => name);
  // Through JSON, which drops undefined values.
  return JSON.parse(JSON.stringify({ type: "object", properties, required })) as Params;
}
