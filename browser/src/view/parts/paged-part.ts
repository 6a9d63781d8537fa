/**
 * A page of the backend in the frame that the shell gave it: its address, its cookies, and where it leads.
 *
 * A separate script after the runtime and its parts, in place of the one for `location`.
 */

import { createEntries, withoutFragment } from "../page/entries";
import { RESPONSE_CALLBACK, type FormWithCallback } from "../page/forms";
import { rewriteLaterScripts } from "../page/location-rewriter";
import { defineAddresses, defineOrigin } from "../page/own-addresses";
import { createLocation, ownOf } from "../page/own-location";
import { OWN } from "../page/part-keys";
import { attempt } from "../attempt";
import { formQuery } from "../form-query";
import { withIdentityOf } from "../wrap";
import { REAL } from "../natives";
import { matchesSources } from "../shell/page-policy";
import { watchFrames } from "../page/own-frames";
import { COOKIES, FRAMED, FRAME_PAGE, LEAVE, MOVED, NAVIGATE, SET_COOKIE, STORED, TRAVERSE, type Navigation, type PageFacts } from "../shell/protocol";

type Submitter = HTMLButtonElement | HTMLInputElement;

/** The conversation with the shell, which no script of the page can take part in. */
function createShellLink(shell: Window, heard: (method: string, params: { [name: string]: unknown }) => void) {
  const post = shell.postMessage.bind(shell) as (message: unknown, to: string) => void;
  const prefix = `paged-${Math.random().toString(36).slice(2)}-`;
  const waiting = new Map<string, (result: { why?: string }) => void>();
  let count = 0;
  const seen = window.parent;
  // The runtime passes on what is not its own, from the parent that the page sees.
  addEventListener("message", (event: MessageEvent<{ id?: unknown; method?: string; params?: { [name: string]: unknown }; result?: { why?: string } } | null>) => {
    const { data, source } = event;
    if (source !== seen || typeof data !== "object" || !data) return;
    const answered = waiting.get(String(data.id));
    if (answered && !data.method) {
      event.stopImmediatePropagation();
      waiting.delete(String(data.id));
      return answered(data.result ?? {});
    }
    if (!data.method || ![COOKIES, LEAVE, FRAMED, FRAME_PAGE].includes(data.method)) return;
    event.stopImmediatePropagation();
    heard(data.method, data.params ?? {});
  }, true);
  return {
    notify: (method: string, params: object): void => post({ jsonrpc: "2.0", method, params }, "*"),
    ask: (method: string, params: object): Promise<{ why?: string }> =>
      new Promise((resolve) => {
        const id = prefix + ++count;
        waiting.set(id, resolve);
        post({ jsonrpc: "2.0", id, method, params }, "*");
      }),
  };
}

/** The URL against which the runtime resolves others. */
function homeOfRuntime(): URL {
  const { URL: native } = window;
  let home: URL | undefined;
  window.URL = new Proxy(native, {
    construct(target, given: [string, URL?], made: Function) {
      home ??= given[1];
      return Reflect.construct(target, given, made) as URL;
    },
  });
  new Request("");
  window.URL = native;
  return home!;
}

function shareCookies(first: string, changed: (text: string) => void): (text: string) => void {
  let cookies = new Map<string, string>();
  const read = (text: string): void => {
    cookies = new Map(text.split("; ").filter(Boolean).map((pair) => [pair.split("=", 1)[0]!, pair] as const));
  };
  read(first);
  Object.defineProperty(document, "cookie", {
    configurable: true,
    enumerable: true,
    get: () => [...cookies.values()].join("; "),
    set(given: unknown) {
      const text = String(given);
      const [pair = "", ...attributes] = text.split(";").map((part) => part.trim());
      if (/^=?$|[\0-\x08\n-\x1f\x7f]/.test(pair) || attributes.some((one) => /^httponly$/i.test(one))) return;
      const name = pair.split("=", 1)[0]!.trim();
      const age = attributes.map((one) => /^max-age=(-?\d+)$/i.exec(one)?.[1]).find((one) => one !== undefined);
      const expires = Date.parse(attributes.map((one) => /^expires=(.*)$/is.exec(one)?.[1]).find((one) => one !== undefined) ?? "");
      if (age !== undefined ? Number(age) <= 0 : expires <= Date.now()) cookies.delete(name);
      else cookies.set(name, pair);
      changed(text);
    },
  });
  return read;
}

/** The storage of the page, as the runtime of the next page reads it from the name of its window. */
function writeStorage(): string {
  const areas = [localStorage, sessionStorage].map((area) => Object.keys(area).map((key) => [key, area.getItem(key)]));
  return `webmcp-gateway-storage:${JSON.stringify([window.name, areas, []])}`;
}

const baseTarget = (): string => document.querySelector("base[target]")?.getAttribute("target") ?? "";

function start(facts: PageFacts): void {
  const { location: frame } = window;
  const home = homeOfRuntime();
  const shell = (window.parent as unknown as { [REAL]: Window })[REAL];
  let isNewTab = false;
  let clickedTarget = "";
  const link = createShellLink(shell, (method, params) => {
    if (method === COOKIES) readCookies(String(params["text"]));
    else if (!frames.take(method, params)) link.notify(STORED, { stored: attempt(writeStorage) });
  });
  const readCookies = shareCookies(facts.cookies, (text) => link.notify(SET_COOKIE, { text }));
  const isUsed = (): boolean => navigator.userActivation?.isActive ?? false;

  async function navigate(navigation: Navigation): Promise<{ why?: string }> {
    const result = await link.ask(NAVIGATE, { user: isUsed(), ...navigation });
    if (result.why) console.warn(`webmcp-gateway: ${navigation.url}: ${result.why}`);
    return result;
  }

  // A frame that shows another page keeps the state of the former one, which that has written.
  attempt(() => history.replaceState(null, ""));
  const declared = facts.base === facts.url ? undefined : facts.base;
  const base = (): string => declared ?? entries.here();
  const resolve = (url: string): URL => new URL(url, base());
  const entries = createEntries(frame, facts.url, [], resolve, (url) => {
    if (declared === undefined) home.href = url;
    link.notify(MOVED, { url });
  });
  const frames = watchFrames({
    notify: link.notify, resolve, here: entries.here, origin: facts.origin, above: () => facts.above ?? [withoutFragment(facts.url)],
  });
  const isWhole = (name: string): boolean => !!facts.above && /^_(top|parent)$/i.test(name);
  const own = createLocation(frame, {
    ...entries,
    knows: () => true,
    enter: (url) => void navigate(url === entries.here() ? { url, reload: true } : { url, replace: document.readyState !== "complete" }),
  }, resolve, (url) => void navigate({ url }));
  defineAddresses(entries.here, base);
  defineOrigin(facts.origin);
  rewriteLaterScripts();
  Object.defineProperty(window, OWN, { configurable: true, value: ownOf(frame, own, !facts.above) });
  Object.defineProperty(document, "referrer", { configurable: true, get: () => facts.referrer });
  const { prototype } = History;
  prototype.go = (steps = 0) => (steps ? link.notify(TRAVERSE, { steps: Number(steps) }) : own.reload());
  prototype.back = () => history.go(-1);
  prototype.forward = () => history.go(1);

  // Before any listener of the page can stop the click.
  addEventListener("click", ({ target }) => {
    const clicked = target instanceof Element ? target.closest("a,area") : null;
    clickedTarget = clicked?.getAttribute("target") ?? baseTarget();
    isNewTab = /^_?blank$/i.test(clickedTarget);
  }, true);
  Object.assign(window, {
    webmcpGatewayGo(url: string) {
      if (isNewTab || new URL(url).origin !== facts.origin) return false;
      if (frames.lead(clickedTarget, { url })) return true;
      if (isWhole(clickedTarget)) {
        void navigate({ url, whole: true });
        return true;
      }
      if (url.includes("#") && withoutFragment(url) === withoutFragment(entries.here())) own.href = url;
      else void navigate({ url });
      return true;
    },
  });

  /** True if the shell shows the answer in place of the page. */
  function submit(form: FormWithCallback, submitter: Submitter | null): boolean {
    const attributeOf = (name: string): string => submitter?.getAttribute(`form${name}`) ?? form.getAttribute(name) ?? "";
    const method = attributeOf("method").toLowerCase();
    if (method === "dialog" || !form.isConnected) return false;
    const action = attributeOf("action");
    const url = attempt(() => (action.trim() ? resolve(action) : new URL(entries.here())));
    if (!url || /^javascript:$/.test(url.protocol)) return false;
    const forbidden = facts.formAction.find((sources) => !matchesSources(url, sources, new URL(entries.here())));
    const why = forbidden && `the page's own content policy forbids forms to ${url.href}`;
    const data = attempt(() => new FormData(form, submitter)) ?? new FormData(form);
    const given = [...data] as [string, string | File][];
    const posts = method === "post";
    const place = submitter?.getAttribute("formtarget") ?? form.getAttribute("target") ?? baseTarget();
    if (!posts) url.search = formQuery(given);
    const navigation: Navigation = posts ? { url: url.href, method: "POST", entries: given, enctype: attributeOf("enctype").toLowerCase() } : { url: url.href };
    if (isWhole(place)) navigation.whole = true;
    if (!why && frames.lead(place, navigation)) return true;
    const callback = form[RESPONSE_CALLBACK];
    if (why) {
      console.error(`webmcp-gateway: ${why}`);
      callback?.(Promise.resolve(new Error(why)));
      return true;
    }
    if (posts && url.origin !== facts.origin) {
      const foreign = `a form of this page posts to another site, ${url.origin}, which no view does`;
      console.warn(`webmcp-gateway: ${foreign}`);
      callback?.(Promise.resolve(new Error(foreign)));
      void navigate({ url: url.href });
      return true;
    }
    // A later submission in the same task takes the place of this one (HTML, 4.10.21.3, "planned navigation").
    clearTimeout(planned);
    const outcome = new Promise<{ why?: string }>((go) => (planned = setTimeout(() => go(navigate(navigation)))));
    // If another page takes the place of this one, the shell tells the model of it.
    callback?.(outcome.then(({ why: failed }) => (failed ? new Error(failed) : new Response(null, { status: 204 }))));
    return true;
  }
  let planned: ReturnType<typeof setTimeout>;

  addEventListener("submit", (event) => {
    if (!event.defaultPrevented && submit(event.target as FormWithCallback, event.submitter as Submitter | null)) event.preventDefault();
  });
  const form = HTMLFormElement.prototype as FormWithCallback;
  const { submit: native } = form;
  form.submit = withIdentityOf(native, function (this: FormWithCallback) {
    if (!submit(this, null)) native.call(this);
  });
}

const written = document.querySelector('meta[name="webmcp-gateway"]')?.getAttribute("content");
const { page } = JSON.parse(written ?? "{}") as { page?: PageFacts };
if (window.parent !== window && page) start(page);
