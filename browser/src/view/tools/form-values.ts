/** Values for the controls of a form: one that a control would change or drop is not filled in. */

import { choicesOf, isGroup, type Control } from "./form-schema";

/** The descriptions of the values of these types. */
const VALUE_FORMATS: { [type: string]: string } = {
  date: "a date as YYYY-MM-DD", time: "a local time as HH:MM, without a time zone", "datetime-local": "a local date and time as YYYY-MM-DDTHH:MM, without a time zone",
  month: "a month as YYYY-MM", week: "a week as YYYY-Www", color: "a color as #rrggbb", number: "a number", range: "a number within its bounds and steps",
  checkbox: "true or false",
};

/** The reason why the control does not accept `given`, tried in a detached copy. */
function rejectionOf(control: HTMLInputElement | HTMLTextAreaElement, given: string, validated: boolean): string | undefined {
  const copy = control.cloneNode() as HTMLInputElement;
  copy.value = given;
  const { value, type, maxLength, minLength } = copy;
  const plain = (text: string): string => (type === "textarea" ? text.replace(/\r\n?/g, "\n") : /^(email|url)$/.test(type) ? text.replace(/[ \t]/g, "") : text);
  const kept =
    type === "color" ? /^#[0-9a-f]{6}$/i.test(given) || value !== "#000000"
    : /^(number|range)$/.test(type) ? given !== "" && value !== "" && Number(value) === Number(given)
    : type in VALUE_FORMATS ? given === "" || value !== ""
    : plain(value) === plain(given);
  if (!kept) return `it takes ${VALUE_FORMATS[type] ?? "one line of text"}`;
  if (!(type in VALUE_FORMATS)) {
    if (maxLength >= 0 && value.length > maxLength) return `it takes ${maxLength} characters at most`;
    if (validated && value && value.length < minLength) return `it takes ${minLength} characters at least`;
  }
  return undefined;
}

/** The reason why the controls `all` of the parameter `name` do not accept `value`; undefined if they do. */
export function invalidValue(name: string, all: Control[], value: unknown, validated: boolean): string | undefined {
  const [control] = all as [Control];
  const why = (reason: string): string => `Invalid value ${JSON.stringify(value)} for parameter ${name}: ${reason}`;
  const several = control.type === "select-multiple" || (control.type === "checkbox" && all.length > 1);
  if (several !== Array.isArray(value)) return why(several ? "it takes a list" : `it takes ${VALUE_FORMATS[control.type] ?? "one value"}`);
  if (control.type === "checkbox" && !several) return typeof value === "boolean" ? undefined : why(`it takes ${VALUE_FORMATS["checkbox"]}`);
  const values = several ? (value as unknown[]) : [value];
  if (!values.every((one) => /^(string|number|boolean)$/.test(typeof one))) return why(`it takes ${VALUE_FORMATS[control.type] ?? "text"}`);
  if (new Set(values.map(String)).size < values.length) return why("it takes each value once");
  if (control instanceof HTMLSelectElement || isGroup(all)) {
    const known = choicesOf(all);
    const wrong = values.find((one) => !known.has(String(one)));
    return wrong === undefined ? undefined : why(`it takes ${[...known.keys()].map((one) => JSON.stringify(one)).join(", ") || "nothing at present"}`);
  }
  const reason = rejectionOf(control, String(value), validated);
  return reason && why(reason);
}

export function fill(all: Control[], value: unknown): void {
  const values = (Array.isArray(value) ? value : [value]).map(String);
  for (const control of all) {
    if (control instanceof HTMLSelectElement) for (const option of control.options) option.selected = values.includes(option.value) && !option.matches(":disabled");
    else if (/^(checkbox|radio)$/.test(control.type)) {
      const checked = typeof value === "boolean" && control.type === "checkbox" ? value : values.includes(control.value);
      // Frameworks detect these by their click.
      if ((control as HTMLInputElement).checked !== checked) control.click();
      continue;
    } else {
      // The browser's own setter: frameworks wrap the one on the element, and would ignore the change.
      Object.getOwnPropertyDescriptor(Object.getPrototypeOf(control), "value")?.set?.call(control, values[0]);
    }
    for (const type of ["input", "change"]) control.dispatchEvent(new Event(type, { bubbles: true }));
  }
}
