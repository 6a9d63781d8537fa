/** Submits forms through `fetch` (HTML, 4.10.21.3): a view has no permission to submit, or would be replaced by the response. */

import { attempt } from "../attempt";
import type { FindAction } from "./default-actions";
import { wrap } from "../wrap";

type Submitter = HTMLButtonElement | HTMLInputElement;

interface FormDependencies {
  fetch: typeof fetch;
  resolve(url: string): string;
  later(run: () => void, milliseconds: number): number;
  /** Registers a replacement for the browser's default action of an event type. */
  replaceDefault(type: string, find: FindAction): void;
  /** Informs the person of a failure, and a developer of its reason. */
  showFailure(what: string, name: string, why: unknown): void;
}

/** The key of a form's callback that receives the response at once: a tool waits for it, and no listener of the page can block it. */
export const RESPONSE_CALLBACK = Symbol.for("webmcp-gateway-response");
export type FormWithCallback = HTMLFormElement & { [RESPONSE_CALLBACK]?: ((answer: Promise<Response | Error>) => void) | undefined };

function hasType(types: RegExp, one: unknown): boolean {
  return one instanceof Element && one.matches("button,input") && types.test((one as Submitter).type);
}

function isTextField(one: unknown): one is HTMLInputElement {
  return hasType(/^(email|number|password|search|tel|text|url)$/, one);
}

function isSubmitter(one: unknown): one is Submitter {
  return hasType(/^(submit|image)$/, one);
}

const normalizeLines = (text: string): string => text.replace(/\r\n?|\n/g, "\r\n");

/** Returns the function that finds a click's form submission. */
export function watchForms({ fetch, resolve, later, replaceDefault, showFailure }: FormDependencies) {
  const { prototype } = HTMLFormElement;
  /** The last submission of each form: simultaneous earlier ones are not sent (HTML, 4.10.21.3, "planned navigation"). */
  const planned = new WeakMap<HTMLFormElement, FormData>();

  /** The form whose submit or formdata event is dispatched; its listeners cannot submit it again. */
  let busy: HTMLFormElement | undefined;

  async function send(form: FormWithCallback, submitter: Submitter | null): Promise<void> {
    if (!form.isConnected) return;
    const attributeOf = (name: string): string => submitter?.getAttribute(`form${name}`) ?? form.getAttribute(name) ?? "";
    const method = attributeOf("method").toLowerCase();
    if (method === "dialog") return form.closest("dialog")?.close(submitter ? submitter.getAttribute("value") ?? undefined : "");
    const former = busy;
    busy = form;
    // The button may belong to another form by now, or to none.
    const data = attempt(() => new FormData(form, submitter)) ?? attempt(() => new FormData(form));
    busy = former;
    // During its formdata event, it is not sent again.
    if (!data) return;
    planned.set(form, data);
    const fetchResponse = async (): Promise<Response> => {
      const url = new URL(resolve(attributeOf("action")));
      const type = attributeOf("enctype").toLowerCase();
      const pairs = [...data].map(([name, value]) => [normalizeLines(name), normalizeLines(typeof value === "string" ? value : value.name)] as [string, string]);
      const query = String(new URLSearchParams(pairs));
      const text = type === "text/plain" ? new Blob(pairs.map(([name, value]) => `${name}=${value}\r\n`), { type }) : new Blob([query], { type: "application/x-www-form-urlencoded" });
      const posts = method === "post";
      if (!posts) url.search = query;
      await new Promise<void>((go) => later(() => planned.get(form) === data && go(), 0));
      return fetch(url, posts ? { method, body: type === "multipart/form-data" ? data : text } : {});
    };
    const answer = fetchResponse().catch((error: unknown) => error as Error & Partial<Response>);
    form[RESPONSE_CALLBACK]?.(answer);
    const given = await answer;
    // The response that a browser would show in place of the page, or the error. A page without a listener needs no
    // answer.
    form.dispatchEvent(new CustomEvent("webmcp-gateway-response", { bubbles: true, detail: given }));
    // If the backend did not refuse it, the page has no message for it.
    if (!given.ok && given.headers?.has("gateway-reason") !== false) showFailure("Form not sent", submitter?.textContent ?? "", given.status ?? given);
  }

  function submit(form: HTMLFormElement, submitter: Submitter | null): void {
    if (busy === form || !form.isConnected) return;
    busy = form;
    const goes = (form.noValidate || submitter?.formNoValidate || form.reportValidity())
      && form.dispatchEvent(new SubmitEvent("submit", { bubbles: true, cancelable: true, submitter }));
    busy = undefined;
    if (goes) void send(form, submitter);
  }

  replaceDefault("keypress", ([target], event) => {
    if ((event as KeyboardEvent).key !== "Enter" || !isTextField(target)) return undefined;
    const { form } = target;
    // Image buttons are not among its elements.
    return form && ![...form.querySelectorAll("[type=image]"), ...form.elements].some((one) => isSubmitter(one) || (one !== target && isTextField(one))) && (() => submit(form, null));
  });
  // A submission by the browser, possible in some frames, after a click that the runtime did not see.
  addEventListener("submit", (event) => {
    if (!event.isTrusted) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    submit(event.target as HTMLFormElement, event.submitter as Submitter);
  }, true);
  wrap<HTMLFormElement>(prototype, "requestSubmit", (_, form, [submitter = null]) => {
    if (submitter && !isSubmitter(submitter)) throw new TypeError("submitter");
    if (submitter && (submitter as Submitter).form !== form) throw new DOMException("submitter", "NotFoundError");
    submit(form, submitter as Submitter | null);
  });
  wrap<HTMLFormElement>(prototype, "submit", (_, form) => void send(form, null));
  return (one: Element) => isSubmitter(one) && one.form && !one.matches(":disabled") && (() => submit(one.form!, one));
}
