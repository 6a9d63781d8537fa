/** Forms are submitted through `fetch` (HTML, 4.10.21.3): a view has no permission to, or would be gone with its answer. */

import { insteadOfDefault, type Later } from "./default";

type Submitter = HTMLButtonElement | HTMLInputElement;

interface Ends {
  fetch: typeof fetch;
  resolve(url: string): string;
  later: Later;
  /** Tells the person that it failed, and a developer why. */
  failed(what: string, name: string, why: unknown): void;
}

/** Under this a form has what is told at once of the answer that comes: a tool waits for it, and no listener of the page stands before that. */
export const ANSWERS = Symbol.for("webmcp-gateway-response");
export type Answers = HTMLFormElement & { [ANSWERS]?: ((answer: Promise<Response | Error>) => void) | undefined };

const NO_TEXT = /^(button|checkbox|color|file|hidden|image|radio|range|reset|submit)$/;

function takesText(element: unknown): element is HTMLInputElement {
  return element instanceof HTMLInputElement && !NO_TEXT.test(element.type);
}

function submits(element: unknown): element is Submitter {
  return (element instanceof HTMLButtonElement || element instanceof HTMLInputElement) && /^(submit|image)$/.test(element.type);
}

function bodyOf(data: FormData, type: string): BodyInit {
  if (type === "multipart/form-data") return data;
  const text = (value: string): string => value.replace(/\r\n?|\n/g, "\r\n");
  const pairs = [...data].map(([name, value]) => [text(name), typeof value === "string" ? text(value) : value.name] as [string, string]);
  if (type !== "text/plain") return new Blob([String(new URLSearchParams(pairs))], { type: "application/x-www-form-urlencoded" });
  return new Blob(pairs.map(([name, value]) => `${name}=${value}\r\n`), { type });
}

export function watchForms({ fetch, resolve, later, failed }: Ends): void {
  const { prototype } = HTMLFormElement;

  async function send(form: Answers, submitter: Submitter | null): Promise<void> {
    const said = (name: string): string => submitter?.getAttribute(`form${name}`) ?? form.getAttribute(name) ?? "";
    const method = said("method").toLowerCase();
    if (method === "dialog") return form.closest("dialog")?.close(submitter?.value ?? "");
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
    if (!form.isConnected || (!(form.noValidate || submitter?.formNoValidate) && !form.reportValidity())) return;
    if (form.dispatchEvent(new SubmitEvent("submit", { bubbles: true, cancelable: true, submitter }))) void send(form, submitter);
  }

  addEventListener("click", (event) => {
    const target = event.composedPath().find(submits);
    const form = target?.form;
    if (form && !target.disabled) insteadOfDefault(event, later, () => submit(form, target));
  }, true);
  addEventListener("keydown", (event) => {
    const [target] = event.composedPath();
    if (event.key !== "Enter" || event.isComposing || !takesText(target)) return;
    const { form } = target;
    if (!form || [...form.elements].some(submits) || [...form.elements].filter(takesText).length > 1) return;
    insteadOfDefault(event, later, () => submit(form, null));
  }, true);
  prototype.requestSubmit = function (submitter = null) {
    if (submitter && !submits(submitter)) throw new TypeError("submitter");
    if (submitter && submitter.form !== this) throw new DOMException("submitter", "NotFoundError");
    submit(this, submitter);
  };
  prototype.submit = function () {
    void send(this, null);
  };
}
