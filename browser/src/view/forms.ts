/** Forms are submitted through `fetch` (HTML, 4.10.21.3): a view has no permission to, or would be gone with its answer. */

import { attempt } from "./attempt";
import type { Find } from "./default";
import { wrap } from "./wrapped";

type Submitter = HTMLButtonElement | HTMLInputElement;

interface Ends {
  fetch: typeof fetch;
  resolve(url: string): string;
  later(run: () => void, milliseconds: number): number;
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

const lines = (text: string): string => text.replace(/\r\n?|\n/g, "\r\n");

/** Gives what a click on an element submits. */
export function watchForms({ fetch, resolve, later, instead, failed }: Ends) {
  const { prototype } = HTMLFormElement;
  /** What each submitted last: of submissions at one time no other is sent (HTML, 4.10.21.3, "planned navigation"). */
  const planned = new WeakMap<HTMLFormElement, FormData>();

  /** That is told of, itself or its data, and whose listeners cannot submit it again. */
  let busy: HTMLFormElement | undefined;

  async function send(form: Answers, submitter: Submitter | null): Promise<void> {
    if (!form.isConnected) return;
    const said = (name: string): string => submitter?.getAttribute(`form${name}`) ?? form.getAttribute(name) ?? "";
    const method = said("method").toLowerCase();
    if (method === "dialog") return form.closest("dialog")?.close(submitter ? submitter.getAttribute("value") ?? undefined : "");
    const former = busy;
    busy = form;
    // The button may be another's by now, or none.
    const data = attempt(() => new FormData(form, submitter)) ?? attempt(() => new FormData(form));
    busy = former;
    // While its data is told of, it is not sent again.
    if (!data) return;
    planned.set(form, data);
    const ask = async (): Promise<Response> => {
      const url = new URL(resolve(said("action")));
      const type = said("enctype").toLowerCase();
      const pairs = [...data].map(([name, value]) => [lines(name), lines(typeof value === "string" ? value : value.name)] as [string, string]);
      const query = String(new URLSearchParams(pairs));
      const text = type === "text/plain" ? new Blob(pairs.map(([name, value]) => `${name}=${value}\r\n`), { type }) : new Blob([query], { type: "application/x-www-form-urlencoded" });
      const posts = method === "post";
      if (!posts) url.search = query;
      await new Promise<void>((go) => later(() => planned.get(form) === data && go(), 0));
      return fetch(url, posts ? { method, body: type === "multipart/form-data" ? data : text } : {});
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
    // Pictures are none of its elements.
    return form && ![...form.querySelectorAll("[type=image]"), ...form.elements].some((one) => submits(one) || (one !== target && takesText(one))) && (() => submit(form, null));
  });
  // One that the browser sends, as it may in some frames, at a click that nobody saw to its end.
  addEventListener("submit", (event) => {
    if (!event.isTrusted) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    submit(event.target as HTMLFormElement, event.submitter as Submitter);
  }, true);
  wrap<HTMLFormElement>(prototype, "requestSubmit", (_, form, [submitter = null]) => {
    if (submitter && !submits(submitter)) throw new TypeError("submitter");
    if (submitter && (submitter as Submitter).form !== form) throw new DOMException("submitter", "NotFoundError");
    submit(form, submitter as Submitter | null);
  });
  wrap<HTMLFormElement>(prototype, "submit", (_, form) => void send(form, null));
  return (one: Element) => submits(one) && one.form && !one.matches(":disabled") && (() => submit(one.form!, one));
}
