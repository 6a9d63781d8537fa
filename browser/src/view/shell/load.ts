/** Loads a page of the backend through the gateway, as a browser navigates to it. */

import { normalizeLines } from "../form-query";
import { attempt } from "../attempt";
import { readText } from "../page/page-files";
import { COOKIES_HEADER, PAGE_HEADER, POLICY_HEADER, type Navigation } from "./protocol";

export interface Loaded {
  url: URL;
  status: number;
  html: string;
  policy: string | null;
}

/** A page, a file, nothing (the page stays), or why there is none. */
export type Outcome =
  | { page: Loaded; cookies?: string | null }
  | { file: { name: string; blob: Blob }; cookies?: string | null }
  | { stays: true; cookies?: string | null }
  | { why: string; title?: string; connect?: string };

/** The runtime's own: a packed page may replace the global one, which frames do not use natively. */
const { fetch } = globalThis;
const ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8";
const escapeHtml = (text: string): string => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");

/** Frameworks write the method of a form into a field; the gateway decides on the method that is sent. */
function methodOf({ method = "GET", entries }: Navigation): string {
  const written = entries?.find(([name]) => name === "_method")?.[1];
  return typeof written === "string" && /^(put|patch|delete)$/i.test(written) ? written.toUpperCase() : method.toUpperCase();
}

function bodyOf({ entries, enctype }: Navigation, method: string): BodyInit | undefined {
  if (!entries) return undefined;
  const kept = method === "POST" ? entries : entries.filter(([name]) => name !== "_method");
  if (enctype === "multipart/form-data") {
    const data = new FormData();
    for (const [name, value] of kept) {
      if (typeof value === "string") data.append(name, value);
      else data.append(name, value, value.name);
    }
    return data;
  }
  const pairs = kept.map(([name, value]) => [normalizeLines(name), normalizeLines(typeof value === "string" ? value : value.name)] as [string, string]);
  if (enctype === "text/plain") return new Blob(pairs.map(([name, value]) => `${name}=${value}\r\n`), { type: enctype });
  return new Blob([String(new URLSearchParams(pairs))], { type: "application/x-www-form-urlencoded" });
}

function fileName(response: Response): string {
  const [, coded, plain = ""] = /^.*filename\*=utf-8''([^;]+)|filename="?([^";]+)/i.exec(response.headers.get("content-disposition") ?? "") ?? [];
  const named = attempt(() => decodeURIComponent(coded ?? escape(plain))) ?? plain;
  return named || (new URL(response.url).pathname.split("/").pop() ?? "") || "download";
}

/** The page of a response that is no HTML, as browsers show it. */
async function htmlOf(blob: Blob, type: string): Promise<string | undefined> {
  if (/^(text\/html|application\/xhtml\+xml)/i.test(type)) {
    const start = await blob.slice(0, 1024).text();
    const charset = /<meta[^>]+charset\s*=\s*["']?([\w-]+)/i.exec(start)?.[1];
    return readText(blob, { integrity: "", ...(charset && { charset }) });
  }
  const [, media] = /^(image|audio|video)\//i.exec(type) ?? [];
  if (media) {
    const data = await new Promise<string>((done) => {
      const reader = new FileReader();
      reader.onload = () => done(String(reader.result));
      reader.readAsDataURL(blob);
    });
    return `<!doctype html><body style="margin:0;display:grid;place-items:center;min-height:100vh">${media === "image" ? `<img src="${data}">` : `<video controls src="${data}"></video>`}`;
  }
  if (!type || /^text\/|json|xml|javascript/i.test(type)) return `<!doctype html><meta name="color-scheme" content="light dark"><pre style="white-space:pre-wrap">${escapeHtml(await readText(blob, { integrity: "" }))}</pre>`;
  return undefined;
}

/** The gateway's own answer in place of the backend's. */
async function refusal(response: Response, reason: string): Promise<Outcome> {
  const text = await response.text();
  const problem = (attempt(() => JSON.parse(text)) ?? {}) as { title?: string; detail?: string; connect_url?: string };
  return { title: problem.title ?? "The page did not load", why: `${problem.detail ?? response.statusText} (${response.status} ${reason})`, ...(problem.connect_url && { connect: problem.connect_url }) };
}

export async function loadPage(navigation: Navigation, header: string, signal: AbortSignal): Promise<Outcome> {
  const method = methodOf(navigation);
  const [address = "", ...fragment] = navigation.url.split("#");
  try {
    const body = bodyOf(navigation, method);
    const response = await fetch(address, { method, signal, headers: { accept: ACCEPT, [PAGE_HEADER]: header }, ...(body !== undefined && { body }), ...(navigation.reload && { cache: "no-cache" as const }) });
    const reason = response.headers.get("gateway-reason");
    const cookies = response.headers.get(COOKIES_HEADER);
    if (reason) return await refusal(response, reason);
    if (/^20[45]$/.test(String(response.status))) return { stays: true, cookies };
    const blob = await response.blob();
    const type = response.headers.get("content-type") ?? "";
    const attached = /^\s*attachment/i.test(response.headers.get("content-disposition") ?? "");
    const html = attached ? undefined : await htmlOf(blob, type);
    if (html === undefined) return { file: { name: fileName(response), blob }, cookies };
    if (!blob.size && response.status >= 400) return { why: `The server answered with ${response.status} ${response.statusText}, and nothing else.`.replace(" ,", ",") };
    const url = new URL(response.url);
    if (!url.hash && fragment.length) url.hash = fragment.join("#");
    return { page: { url, status: response.status, html, policy: response.headers.get(POLICY_HEADER) }, cookies };
  } catch (error) {
    return { why: String((error as Error | undefined)?.message ?? error) };
  }
}
