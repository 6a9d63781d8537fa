/** `fetch` over `http_request`: the page gets the same result as from the browser's own. */

import type { Addresses } from "../page/addresses";
import { ACCEPTS_BYTES, readArguments } from "./arguments";
import { attempt } from "../attempt";
import { NoHostError, type Calls } from "./calls";
import { objectOf, type Params } from "../host/json-rpc";
import { readLocal, type LocalContent } from "./local";
import { createResponse, opaqueRedirect, withFacts, readAnswer, type Answer, type BodyParts } from "./response";
import { answerOf } from "../tools/results";

const REDIRECT = /30[12378]/;

/** Receives upload progress, if the host reports it: a third argument, used by the part for `XMLHttpRequest`. */
type Progress = (params: Params) => void;

interface FetchDependencies {
  addresses: Addresses;
  calls: Calls;
  /** The answer to a request without a host, as the values of a result. */
  offline(args: Params): Promise<Params>;
  Request: typeof Request;
  warn(line: string): void;
}

/** `word` quoted for a shell. */
function shellQuote(word: string): string {
  return `'${word.replace(/'/g, "'\\''")}'`;
}

/** The text of a gateway's problem for developers; its `detail` is for people. */
function developerCause({ body }: Answer): string {
  const problem: unknown = attempt(() => JSON.parse(new TextDecoder().decode(body ?? undefined)));
  const { cause, detail = "" } = objectOf(problem);
  return String(cause ?? detail);
}

function reasonOf({ headers }: Answer): string | undefined {
  return headers.find(([name]) => name.toLowerCase() === "gateway-reason")?.[1];
}

async function toAnswer(result: Params): Promise<Answer> {
  if (result["isError"]) throw new Error(JSON.stringify(result["content"]));
  const given = answerOf(result);
  // Of our own host: long bodies, whose bytes pass neither its page nor its sandbox proxy.
  if (given?.["body"] instanceof Blob) given["body"] = await given["body"].arrayBuffer();
  return readAnswer(given);
}

export function createFetch({ addresses, calls, offline, Request, warn }: FetchDependencies): typeof fetch {
  function warnDeveloper(answer: Answer, method: string, url: string): void {
    const reason = reasonOf(answer);
    if (!reason) return;
    // A host's missing capability is unrelated to the policy.
    const why = answer.why ?? `${developerCause(answer)}\nwebmcp-gateway policy explain ${method} ${shellQuote(url)}`;
    warn(`${method} ${url}: ${answer.status} ${reason}: ${why}`);
  }

  async function requestAnswer(request: Request, url: string, onProgress?: Progress): Promise<Answer> {
    let args: Promise<Params> | undefined;
    const read = (): Promise<Params> => (args ??= readArguments(request, url, calls.acceptsBlobs));
    try {
      return await toAnswer(await calls.http(read, request.signal, onProgress));
    } catch (error) {
      if (!(error instanceof NoHostError)) throw error;
      return { ...readAnswer(await offline(await read())), why: error.message };
    }
  }

  const parts: BodyParts = {
    async readNext(id, signal, pushed) {
      const part = await toAnswer(await calls.stream({ id, [ACCEPTS_BYTES]: true }, signal, (values) => pushed(readAnswer(values).body)));
      if (reasonOf(part)) throw new TypeError("network error", { cause: developerCause(part) });
      return part;
    },
    cancel: (id) => void calls.stream({ id, cancel: true }).catch(() => undefined),
  };

  function respondLocally(method: string, url: string, [body, type]: LocalContent): Response {
    const headers = new Headers({ "content-type": type });
    if (body instanceof Blob) {
      if (method !== "GET") throw "only GET";
      headers.set("content-length", body.size as unknown as string);
    }
    return withFacts(new Response(method === "HEAD" ? "" : body, { statusText: "OK", headers }), { url, type: "basic" });
  }

  async function fetchRemote(request: Request, url: string, onProgress?: Progress): Promise<Response> {
    const answer = await requestAnswer(request, url, onProgress);
    warnDeveloper(answer, request.method, url);
    const reason = reasonOf(answer);
    // A redirect that no browser follows.
    if (reason === "redirect-broken") throw reason;
    const refused = reason === "redirect-denied";
    const redirects = REDIRECT.test(String(answer.status));
    if (request.redirect === "error" && (redirects || refused)) throw "redirect";
    // Of another site that the policy names as the app's own, the runtime knows nothing.
    if (request.mode === "same-origin" && (refused || (reason && !url.startsWith("/")))) throw "same-origin";
    if (request.redirect === "manual" && redirects) return opaqueRedirect(request.url);
    return createResponse(answer, addresses.fromWire((answer.redirected && answer.url) || url), request.signal, parts);
  }

  async function fetchUnverified(request: Request, onProgress?: Progress): Promise<Response> {
    const url = addresses.resolve(request.url).replace(/#.*/s, "");
    const found = readLocal(url);
    if (found) return respondLocally(request.method, url, found);
    if (!/^https?:/.test(url)) throw `not HTTP: ${url}`;
    // A view has no cache of its own (Fetch, 4.6, "only-if-cached").
    if (request.cache === "only-if-cached") throw "not cached";
    return fetchRemote(request, addresses.toWire(url), onProgress);
  }

  async function fetchVerified(request: Request, onProgress?: Progress): Promise<Response> {
    const response = await fetchUnverified(request, onProgress);
    const { integrity } = request;
    // A body can be verified only when it is complete. A part of the runtime does that, for pages that use integrity.
    const { webmcpGatewayIntact: intact } = globalThis as { webmcpGatewayIntact?: (bytes: ArrayBuffer, metadata: string) => Promise<boolean> };
    if (integrity && !(await intact?.(await response.clone().arrayBuffer(), integrity))) throw "integrity";
    return response;
  }

  // Argument errors become rejections; an abort rejects at once.
  function replacement(this: unknown, _: RequestInfo | URL): Promise<Response> {
    return new Promise((resolve, reject) => {
      if ((this ?? globalThis) !== globalThis) throw new TypeError("Illegal invocation");
      const request = new Request(...(arguments as unknown as [RequestInfo | URL, RequestInit?]));
      const { signal } = request;
      signal.throwIfAborted();
      signal.addEventListener("abort", () => reject(signal.reason));
      fetchVerified(request, arguments[2] as Progress).then(resolve, (cause: unknown) => reject(new TypeError("Failed to fetch", { cause })));
    });
  }
  return Object.defineProperty(replacement, "name", { value: "fetch" });
}
