/**
 * Declarative tools: `<form toolname tooldescription>`, with a schema from the form's controls; a call fills and
 * submits it.
 *
 * A separate script for pages with such forms, which uses only `document.modelContext`.
 */

import { attempt } from "../attempt";
import { describePage } from "./next-page";
import { RESPONSE_CALLBACK, type FormWithCallback } from "../page/forms";
import { controls, schemaOf } from "./form-schema";
import { fill, invalidValue } from "./form-values";
import type { Params } from "../host/json-rpc";

const WATCHED = /^(tool.*|name|type|required|min|max|step|minlength|maxlength|pattern|multiple|disabled|readonly|value|label|checked)$/;

const SUBMITTED = "The form was submitted.";

/** The result for the model: the response that a browser would show in place of the page; of an HTML page what `describePage` tells. */
async function readResult(given: Response | Error, url: string): Promise<unknown> {
  if (given instanceof Error) throw given;
  const type = given.headers.get("content-type") ?? "";
  const told = await given.text();
  const page = /html/i.test(type) ? describePage(told) : undefined;
  if (!given.ok) throw new Error(`The form was submitted, and answered with ${given.status} ${given.statusText}. ${page ? page.text ?? JSON.stringify(page.data) : told}`.trim());
  if (page) return { status: SUBMITTED, url, ...page };
  return (/json/i.test(type) && attempt(() => JSON.parse(told) as unknown)) || told || SUBMITTED;
}

/** The callbacks for the submit event of a form that a call submits, before any listener of the page could stop it. */
const submitting = new WeakMap<EventTarget, (event: Event) => void>();
const onSubmit = (event: Event): void => submitting.get(event.target!)?.(event);

/** The page's own caller receives it, too. */
const unknownError = (why: string): DOMException => new DOMException(why, "UnknownError");

/** Fills all given values, or none if a control does not accept its value. */
function fillAll(form: HTMLFormElement, input: Params, validated: boolean): void {
  const found = controls(form);
  // Null leaves a control unchanged.
  const given = Object.entries(input).filter(([, value]) => value !== undefined && value !== null);
  for (const [name, value] of given) {
    const all = found.get(name);
    const why = all ? invalidValue(name, all, value, validated) : `There is no parameter ${JSON.stringify(name)}. The form has: ${[...found.keys()].join(", ") || "none"}`;
    if (why) throw unknownError(why);
  }
  for (const [name, value] of given) fill(found.get(name)!, value);
}

async function submit(form: FormWithCallback, input: Params): Promise<unknown> {
  // As a browser does when a person presses Enter.
  const button = [...form.elements].find((one): one is HTMLButtonElement => one.matches("button,input") && (one as HTMLButtonElement).type === "submit" && !one.matches(":disabled")) ?? null;
  const validated = !form.noValidate && !button?.formNoValidate;
  fillAll(form, input, validated);
  if (validated && !form.reportValidity()) {
    const wrong = [...form.elements].find((control) => !(control as HTMLInputElement).validity?.valid) as HTMLInputElement;
    throw unknownError(`${wrong.name}: ${wrong.validationMessage}`);
  }
  let seen = false;
  let answer: unknown;
  let answered: Promise<() => Promise<unknown>> | undefined;
  const mark = (event: Event): void => {
    if (seen) return;
    seen = true;
    // Defined as properties, since browsers with native WebMCP have getters there.
    Object.defineProperties(event, { agentInvoked: { value: true }, respondWith: { value: (given: unknown) => void (answer = given) } });
  };
  submitting.set(form, mark);
  // The runtime sends a form of a view that no script of the page handled.
  form[RESPONSE_CALLBACK] = (given) => {
    answered = given.then((one) => {
      const [own, url] = one instanceof Response ? [one.clone(), one.url] : [one, ""];
      return () => readResult(own, url);
    });
  };
  try {
    form.requestSubmit(button);
    if (!seen) {
      // Without `allow-forms`, or for a removed form, the browser fires no event.
      const event = new SubmitEvent("submit", { bubbles: true, cancelable: true, submitter: button });
      mark(event);
      form.dispatchEvent(event);
    }
  } finally {
    submitting.delete(form);
    delete form[RESPONSE_CALLBACK];
  }
  if (answer !== undefined) return await answer;
  return answered ? (await answered)() : SUBMITTED;
}

/** Whether the browser has native WebMCP: the runtime's attribute of this name is a script function. */
const NATIVE = /\[native code]/.test(String(Object.getOwnPropertyDescriptor(SubmitEvent.prototype, "agentInvoked")?.get));
const DESCRIPTION = "tooldescription";
const hiddenDescriptions = new WeakMap<HTMLFormElement, string>();

/**
 * The description of a form. In a view, it is hidden from such a browser, which ignores a form without one.
 *
 * Its agent would call the tool without the gateway's rules, and hang if the frame permits no forms.
 */
function takeDescription(form: HTMLFormElement): string {
  const given = form.getAttribute(DESCRIPTION);
  if (!NATIVE) return given ?? "";
  if (given !== null) {
    hiddenDescriptions.set(form, given);
    form.removeAttribute(DESCRIPTION);
  }
  return hiddenDescriptions.get(form) ?? "";
}

interface Context {
  registerTool(tool: object, options: { signal: AbortSignal }): unknown;
}

/** Registers the tools of all forms in the page, now and later; returns a function that adds a root to watch. */
function watchForms(context: () => Context | undefined): (root: Document | ShadowRoot) => void {
  const registered = new Map<HTMLFormElement, { json: string; controller: AbortController }>();
  let roots: WeakRef<Document | ShadowRoot>[] = [];
  let waiting = false;

  async function registerForm(form: HTMLFormElement, definition: Params, json: string): Promise<void> {
    const controller = new AbortController();
    registered.set(form, { json, controller });
    try {
      await context()?.registerTool({ ...definition, execute: (input: Params) => submit(form, input) }, { signal: controller.signal });
    } catch (error) {
      // Its form has changed or gone meanwhile.
      if (!controller.signal.aborted) console.warn(`The tool of a form could not be offered: ${String(error)}`);
    }
  }

  function updateTools(): void {
    waiting = false;
    const wanted = new Map<HTMLFormElement, Params>();
    roots = roots.filter((root) => root.deref());
    for (const root of roots) {
      // The attribute of an element outside of the page is unchanged, and invisible.
      for (const form of root.deref()?.querySelectorAll<HTMLFormElement>("form[toolname]") ?? []) {
        const description = takeDescription(form);
        if (form.isConnected) wanted.set(form, { name: form.getAttribute("toolname"), title: form.getAttribute("tooltitle") ?? undefined, description, inputSchema: schemaOf(form) });
      }
    }
    for (const [form, { json, controller }] of registered) {
      if (wanted.has(form) && JSON.stringify(wanted.get(form)) === json) continue;
      registered.delete(form);
      controller.abort();
    }
    for (const [form, definition] of wanted) if (!registered.has(form)) void registerForm(form, definition, JSON.stringify(definition));
  }

  const observer = new MutationObserver((changes) => {
    if (waiting || !changes.some(({ type, attributeName }) => type === "childList" || WATCHED.test(attributeName ?? ""))) return;
    waiting = true;
    queueMicrotask(updateTools);
  });
  return (root) => {
    (root === document ? window : root).addEventListener("submit", onSubmit, true);
    roots.push(new WeakRef(root));
    observer.observe(root, { subtree: true, childList: true, attributes: true });
    updateTools();
  };
}

// On an ordinary web site, a browser with such tools of its own offers them itself.
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
