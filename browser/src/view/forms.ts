/** Forms are submitted through `fetch` (HTML, 4.10.21.3): a view has no permission to, or would be gone with its answer. */

import type { Find } from "./default";

type Submitter = HTMLButtonElement | HTMLInputElement;

interface Ends {
  fetch: typeof fetch;
  resolve(url: string): string;
  /** Asks, at the end of an event of a type, what is done in place of what the browser would. */
  instead(type: string, find: Find): void;
  /** Tells the person that it failed, and a developer why. */
  failed(what: string, name: string, why: unknown): void;
}

/** Under this a form has what is told at once of the answer that comes: a tool waits for it, and no listener of the page stands before that. */
export const ANSWERS = Symbol.for("webmcp-gateway-response");
export type Answers = HTMLFormElement & { [ANSWERS]?: ((answer: Promise<Response | Error>) => void) | undefined };

function typed(types: RegExp, one: unknown): boolean {
  return one instanceof Element && one.matches("button,input") && types.test((one as Submitter).type);
}

function takesText(one: unknown): one is HTMLInputElement {
  return typed(/^(email|number|password|search|tel|text|url)$/, one);
}

function submits(one: unknown): one is Submitter {
  return typed(/^(submit|image)$/, one);
}

function bodyOf(data: FormData, type: string): BodyInit {
  if (type === "multipart/form-data") return data;
  const text = (value: string): string => value.replace(/\r\n?|\n/g, "\r\n");
  const pairs = [...data].map(([name, value]) => [text(name), typeof value === "string" ? text(value) : value.name] as [string, string]);
  if (type !== "text/plain") return new Blob([String(new URLSearchParams(pairs))], { type: "application/x-www-form-urlencoded" });
  return new Blob(pairs.map(([name, value]) => `${name}=${value}\r\n`), { type });
}

/** Gives what a click on an element submits. */
export function watchForms({ fetch, resolve, instead, failed }: Ends) {
  const { prototype } = HTMLFormElement;

  /** That is told of, and whose listeners cannot submit it again. */
  let busy: HTMLFormElement | undefined;

  async function send(form: Answers, submitter: Submitter | null): Promise<void> {
    if (!form.isConnected) return;
    const said = (name: string): string => submitter?.getAttribute(`form${name}`) ?? form.getAttribute(name) ?? "";
    const method = said("method").toLowerCase();
    if (method === "dialog") return form.closest("dialog")?.close(submitter ? submitter.getAttribute("value") ?? undefined : "");
    const ask = async (): Promise<Response> => {
      const data = new FormData(form, submitter);
      const url = new URL(resolve(said("action")));
      const body = bodyOf(data, said("enctype").toLowerCase());
      if (method !== "post") url.search = await new Response(bodyOf(data, "")).text();
      return fetch(url, method === "post" ? { method, body } : {});
    };
    const answer = ask().catch((error: unknown) => error as Error & Partial<Response>);
    form[ANSWERS]?.(answer);
    const given = await answer;
    // What a browser would show in place of the page, or why there is nothing. A form whose page does not listen has done its work.
    form.dispatchEvent(new CustomEvent("webmcp-gateway-response", { bubbles: true, detail: given }));
    // Where it was not the backend that refused, no page has words for it.
    if (!given.ok && given.headers?.has("gateway-reason") !== false) failed("Form not sent", submitter?.textContent ?? "", given.status ?? given);
  }

  function submit(form: HTMLFormElement, submitter: Submitter | null): void {
    if (busy === form || !form.isConnected) return;
    busy = form;
    const goes = (form.noValidate || submitter?.formNoValidate || form.reportValidity())
      && form.dispatchEvent(new SubmitEvent("submit", { bubbles: true, cancelable: true, submitter }));
    busy = undefined;
    if (goes) void send(form, submitter);
  }

  instead("keypress", ([target], event) => {
    if ((event as KeyboardEvent).key !== "Enter" || !takesText(target)) return undefined;
    const { form } = target;
    return form && ![...form.elements].some((one) => submits(one) || (one !== target && takesText(one))) && (() => submit(form, null));
  });
  // One that the browser sends, as it may in some frames, at a click that nobody saw to its end.
  addEventListener("submit", (event) => {
    if (!event.isTrusted) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    submit(event.target as HTMLFormElement, event.submitter as Submitter);
  }, true);
  prototype.requestSubmit = function (submitter = null) {
    if (submitter && !submits(submitter)) throw new TypeError("submitter");
    if (submitter && submitter.form !== this) throw new DOMException("submitter", "NotFoundError");
    submit(this, submitter);
  };
  prototype.submit = function () {
    void send(this, null);
  };
  return (one: Element, event: Event) => submits(one) && one.form && !one.matches(":disabled") && (event as MouseEvent).button === 0 && (() => submit(one.form!, one));
}
