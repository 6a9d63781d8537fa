/**
 * Declarative tools: `<form toolname tooldescription>`, with a schema made of the form's controls; a call fills and submits it.
 * A script of its own, for pages that have such forms: it needs nothing but `document.modelContext`.
 */

import { attempt } from "./attempt";
import { ANSWERS, type Answers } from "./forms";
import type { Params } from "./json-rpc";

type Control = HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement;

const NOT_SHOWN = /^(submit|button|reset|image|hidden|file|password|fieldset|output|object)$/;
const FORMATS: { [type: string]: string } = { date: "date", time: "time", "datetime-local": "date-time", email: "email", url: "uri" };
const WATCHED = /^(tool.*|name|type|required|min|max|minlength|maxlength|pattern|multiple|disabled|readonly|value)$/;

function controls(form: HTMLFormElement): Map<string, Control[]> {
  const found = new Map<string, Control[]>();
  for (const control of form.elements as unknown as Iterable<Control>) {
    // What a person cannot change.
    if (!control.name || control.matches(":disabled") || (control as Partial<HTMLInputElement>).readOnly || NOT_SHOWN.test(control.type)) continue;
    found.set(control.name, [...(found.get(control.name) ?? []), control]);
  }
  return found;
}

const text = (control: Control, name: string): string | undefined => control.getAttribute(name) ?? undefined;
const isBox = (control: Control): boolean => control.type === "checkbox";

/** What a label says, without what stands in the controls within it. */
const words = (node: Node): string =>
  node instanceof Text ? node.data : /^(select|textarea|button|datalist)$/.test((node as Element).localName) ? "" : [...node.childNodes].map(words).join("");

function choices(options: { value: string }[]): Params {
  const values = options.map((option) => option.value).filter(Boolean);
  return { type: "string", ...(values.length && { enum: values }) };
}

function typeOf(all: Control[]): Params {
  const [control] = all as [Control];
  if (control instanceof HTMLSelectElement) {
    const one = choices([...control.options]);
    return control.multiple ? { type: "array", items: one } : one;
  }
  if (control.type === "radio") return choices(all);
  if (isBox(control)) return all.length > 1 ? { type: "array", items: choices(all) } : { type: "boolean" };
  const bound = (name: string): number | undefined => (control.hasAttribute(name) ? Number(text(control, name)) : undefined);
  if (control.type === "number" || control.type === "range") return { type: "number", minimum: bound("min"), maximum: bound("max") };
  return { type: "string", format: FORMATS[control.type], pattern: text(control, "pattern"), minLength: bound("minlength"), maxLength: bound("maxlength") };
}

function schemaOf(form: HTMLFormElement): Params {
  const properties: Params = {};
  const required: string[] = [];
  for (const [name, all] of controls(form)) {
    const [control] = all as [Control];
    const [named] = control.labels ?? [];
    const label = (named && words(named).trim()) || text(control, "aria-label") || text(control, "placeholder");
    properties[name] = { ...typeOf(all), title: text(control, "toolparamtitle"), description: text(control, "toolparamdescription") ?? label };
    if (all.some((one) => one.required)) required.push(name);
  }
  // Through JSON: what is undefined goes.
  return JSON.parse(JSON.stringify({ type: "object", properties, ...(required.length && { required }) })) as Params;
}

function fill(all: Control[], value: unknown): void {
  const values = (Array.isArray(value) ? value : [value]).map(String);
  const put = (owner: object, key: string, target: object, given: unknown): void => {
    // The browser's own setter: frameworks watch the one on the element, and would take the value for their own.
    Object.getOwnPropertyDescriptor(owner, key)?.set?.call(target, given);
  };
  for (const control of all) {
    if (control instanceof HTMLSelectElement) for (const option of control.options) option.selected = values.includes(option.value);
    else if (isBox(control) || control.type === "radio") {
      const checked = value === true || (value !== false && values.includes(control.value));
      // Frameworks hear of these by their click.
      if ((control as HTMLInputElement).checked !== checked) control.click();
      continue;
    } else put(Object.getPrototypeOf(control) as object, "value", control, values[0]);
    for (const type of ["input", "change"]) control.dispatchEvent(new Event(type, { bubbles: true }));
  }
}

const SUBMITTED = "The form was submitted.";

/** What the model reads of the answer that a browser would show in place of the page; of a page of HTML only that it came. */
async function read(given: Response | Error): Promise<unknown> {
  if (given instanceof Error) throw given;
  const type = given.headers.get("content-type") ?? "";
  const told = /html/i.test(type) ? "" : await given.text();
  if (!given.ok) throw new Error(`The form was submitted, and answered with ${given.status} ${given.statusText}. ${told}`.trim());
  return (/json/i.test(type) && attempt(() => JSON.parse(told) as unknown)) || told || SUBMITTED;
}

/** What is told of the event of a form that a call submits, before any listener of the page could stop it. */
const submitting = new WeakMap<EventTarget, (event: Event) => void>();
const see = (event: Event): void => submitting.get(event.target!)?.(event);

async function submit(form: Answers, input: Params): Promise<unknown> {
  for (const [name, all] of controls(form)) if (input[name] !== undefined && input[name] !== null) fill(all, input[name]);
  if (!form.noValidate && !form.reportValidity()) {
    const wrong = [...form.elements].find((control) => !(control as HTMLInputElement).validity?.valid) as HTMLInputElement;
    throw new Error(`${wrong.name}: ${wrong.validationMessage}`);
  }
  let seen = false;
  let answer: unknown;
  let answered: Promise<Response | Error> | undefined;
  const mark = (event: Event): void => {
    if (seen) return;
    seen = true;
    // Defined, as browsers with WebMCP of their own have getters there.
    Object.defineProperties(event, { agentInvoked: { value: true }, respondWith: { value: (given: unknown) => void (answer = given) } });
  };
  submitting.set(form, mark);
  // The runtime sends a form of a view that no script of the page took over.
  form[ANSWERS] = (given) => (answered = given.then((one) => (one instanceof Response ? one.clone() : one)));
  try {
    form.requestSubmit();
    if (!seen) {
      // Without `allow-forms`, or of a form that is gone, the browser tells nobody.
      const event = new SubmitEvent("submit", { bubbles: true, cancelable: true });
      mark(event);
      form.dispatchEvent(event);
    }
  } finally {
    submitting.delete(form);
    delete form[ANSWERS];
  }
  if (answer !== undefined) return await answer;
  return answered ? read(await answered) : SUBMITTED;
}

// Browsers with WebMCP of their own have these on the event.
const NATIVE = "agentInvoked" in SubmitEvent.prototype;
const DESCRIPTION = "tooldescription";
const hidden = new WeakMap<HTMLFormElement, string>();

/**
 * The description of a form. In a view such a browser is not to see it, and takes a form without one for no tool: its agent
 * would call that past the gateway's rules, and hang where the frame admits no forms.
 */
function takeDescription(form: HTMLFormElement): string {
  const given = form.getAttribute(DESCRIPTION);
  if (!NATIVE) return given ?? "";
  if (given !== null) {
    hidden.set(form, given);
    form.removeAttribute(DESCRIPTION);
  }
  return hidden.get(form) ?? "";
}

interface Context {
  registerTool(tool: object, options: { signal: AbortSignal }): unknown;
}

/** Keeps the tools of all forms that are in the page, now and later; gives what adds a root in which forms may stand. */
function watchForms(context: () => Context | undefined): (root: Document | ShadowRoot) => void {
  const taken = new Map<HTMLFormElement, { json: string; controller: AbortController }>();
  let roots: WeakRef<Document | ShadowRoot>[] = [];
  let waiting = false;

  async function take(form: HTMLFormElement, definition: Params, json: string): Promise<void> {
    const controller = new AbortController();
    taken.set(form, { json, controller });
    try {
      await context()?.registerTool({ ...definition, execute: (input: Params) => submit(form, input) }, { signal: controller.signal });
    } catch (error) {
      console.warn(`The tool of a form could not be offered: ${String(error)}`);
    }
  }

  function renew(): void {
    waiting = false;
    const wanted = new Map<HTMLFormElement, Params>();
    roots = roots.filter((root) => root.deref());
    for (const root of roots) {
      // That of an element which is not in the page, or not any more, stays as it is, and nobody sees it.
      for (const form of root.deref()?.querySelectorAll<HTMLFormElement>("form[toolname]") ?? []) {
        const description = takeDescription(form);
        if (form.isConnected) wanted.set(form, { name: form.getAttribute("toolname"), description, inputSchema: schemaOf(form) });
      }
    }
    for (const [form, { json, controller }] of taken) {
      if (wanted.has(form) && JSON.stringify(wanted.get(form)) === json) continue;
      taken.delete(form);
      controller.abort();
    }
    for (const [form, definition] of wanted) if (!taken.has(form)) void take(form, definition, JSON.stringify(definition));
  }

  const observer = new MutationObserver((changes) => {
    if (waiting || !changes.some(({ type, attributeName }) => type === "childList" || WATCHED.test(attributeName ?? ""))) return;
    waiting = true;
    queueMicrotask(renew);
  });
  return (root) => {
    (root === document ? window : root).addEventListener("submit", see, true);
    roots.push(new WeakRef(root));
    observer.observe(root, { subtree: true, childList: true, attributes: true });
    renew();
  };
}

// As an ordinary web site a browser that has such tools of its own offers them itself.
if (window.parent !== window || !NATIVE) {
  const watch = watchForms(() => (document as { modelContext?: Context }).modelContext);
  watch(document);
  const { attachShadow } = Element.prototype;
  Element.prototype.attachShadow = function (...given) {
    const root = attachShadow.apply(this, given);
    watch(root);
    return root;
  };
}
