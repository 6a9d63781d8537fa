/**
 * Workers of the app's own files, where the frame allows workers from blobs: a separate script for pages that contain
 * `Worker(`, independent of the runtime.
 *
 * A worker begins with a script of ours, which takes the real one from the page: no frame of a host can load a file. Its
 * `importScripts`, imports and `fetch` reach the app's files and its backend by the page.
 */

import { toBase64 } from "../base64";

/** Runs in the worker: takes the first message, then runs the worker's own script as if it had been loaded from `base`. */
function beginWorker(): void {
  const scope = self as unknown as Window & { importScripts(...urls: string[]): void };
  const load = scope.importScripts.bind(scope);
  const boot = (event: MessageEvent<Start>): void => {
    scope.removeEventListener("message", boot as EventListener);
    event.stopImmediatePropagation();
    const { base, main, scripts, isModule } = event.data;
    const port = event.ports[0]!;
    const waiting = new Map<number, [(found: Response) => void, (error: unknown) => void]>();
    let calls = 0;
    port.onmessage = ({ data }: MessageEvent<Answer>) => {
      const [go, fail] = waiting.get(data.id)!;
      waiting.delete(data.id);
      if (data.error !== undefined) return fail(new TypeError(data.error));
      const { body, url, ...head } = data;
      const response = new Response([101, 204, 205, 304].includes(head.status) ? null : body, head);
      Object.defineProperty(response, "url", { value: url });
      go(response);
    };
    scope.fetch = async (input, init) => {
      const request = new Request(input instanceof Request ? input : new URL(String(input), base), init);
      const { url, method, headers } = request;
      const body = method === "GET" || method === "HEAD" ? undefined : await request.arrayBuffer();
      const call: Call = { id: ++calls, url, method, headers: [...headers], body };
      return new Promise((go, fail) => {
        waiting.set(call.id, [go, fail]);
        port.postMessage(call);
      });
    };
    scope.importScripts = (...urls) => load(...urls.map((url) => scripts[new URL(url, base).href] ?? url));
    Object.defineProperty(scope, "location", { configurable: true, value: new URL(base) });
    if (!isModule) return load(main);
    const start = import(/* @vite-ignore */ main) as Promise<unknown>;
    const ready = (): void => port.postMessage(null);
    void start.then(ready, (error: unknown) => {
      ready();
      setTimeout(() => {
        throw error;
      });
    });
  };
  scope.addEventListener("message", boot as EventListener);
}

/** The first message to a worker: its URL, its script, and those that it imports, as blobs. */
interface Start {
  base: string;
  main: string;
  scripts: { [url: string]: string };
  isModule: boolean;
}

interface Call {
  id: number;
  url: string;
  method: string;
  headers: [string, string][];
  body: ArrayBuffer | undefined;
}

interface Answer {
  id: number;
  error?: string;
  url: string;
  status: number;
  statusText: string;
  headers: [string, string][];
  body: ArrayBuffer;
}

const IMPORTED = /\bimportScripts\s*\(([^)]*)\)/g;
const TEXT = /(["'`])([^"'`]+)\1/g;
const SPECIFIER = /(\b(?:import|export)\s*(?:[\w*{}\s,$]+\bfrom\s*|\(\s*)?)(["'])(\.{0,2}\/[^"']+)\2/g;

const blobOf = (code: string): string => URL.createObjectURL(new Blob([code], { type: "text/javascript" }));

async function textOf(from: string | Request): Promise<string> {
  const answer = await fetch(from);
  if (!answer.ok) throw new TypeError(`${answer.url} answers ${answer.status}`);
  return answer.text();
}

/** The blob of a classic script; those that it imports are added to `scripts`. */
async function packClassic(from: string | Request, scripts: { [url: string]: string }): Promise<string> {
  const url = typeof from === "string" ? from : from.url;
  const code = await textOf(from);
  for (const [, given = ""] of code.matchAll(IMPORTED)) {
    for (const [, , name = ""] of given.matchAll(TEXT)) {
      if (!URL.canParse(name, url)) continue; // in a blob, a path: the worker's own `importScripts` throws
      const { href } = new URL(name, url);
      if (href in scripts) continue;
      scripts[href] = "";
      scripts[href] = await packClassic(href, scripts);
    }
  }
  return blobOf(code);
}

/** The URL of a module: no worker without an origin imports from a blob. */
function moduleOf(code: string): string {
  return origin === "null" ? `data:text/javascript;base64,${toBase64(new TextEncoder().encode(code))}` : blobOf(code);
}

/** The URL of a module, in which the imports of other files are replaced by theirs. */
async function packModule(url: string, made: Map<string, string>): Promise<string> {
  const known = made.get(url);
  if (known === "") throw new TypeError(`${url} imports itself, by way of others`);
  if (known !== undefined) return known;
  made.set(url, "");
  let code = await textOf(url);
  const names = new Set([...code.matchAll(SPECIFIER)].map(([, , , name = ""]) => name));
  for (const name of names) {
    const packed = await packModule(new URL(name, url).href, made);
    code = code.replace(SPECIFIER, (whole, before: string, quote: string, found: string) => (found === name ? before + quote + packed + quote : whole));
  }
  const packed = moduleOf(code);
  made.set(url, packed);
  return packed;
}

async function answer(call: Call, port: MessagePort): Promise<void> {
  const { id, url, method, headers, body } = call;
  try {
    const found = await fetch(url, { method, headers, ...(body && { body }) });
    const { status, statusText } = found;
    const said = await found.arrayBuffer();
    port.postMessage({ id, url: found.url, status, statusText, headers: [...found.headers], body: said }, [said]);
  } catch (error) {
    port.postMessage({ id, error: String(error) });
  }
}

/** Starts `worker` with the script of `from`, which keeps the blob of a URL that is revoked now; messages of the page wait until then. */
function startWorker(worker: Worker, from: Request, isModule: boolean): void {
  const { url } = from;
  const post = worker.postMessage.bind(worker) as (...given: unknown[]) => void;
  const held: unknown[][] = [];
  worker.postMessage = (...given: unknown[]) => void held.push(given);
  const release = (): void => {
    Reflect.deleteProperty(worker, "postMessage");
    for (const given of held.splice(0)) post(...given);
  };
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = ({ data }: MessageEvent<Call | null>) => (data ? void answer(data, port1) : release());
  async function load(): Promise<void> {
    const scripts = {};
    const main = await (isModule ? packModule(url, new Map()) : packClassic(from, scripts));
    post({ base: url, main, scripts, isModule }, [port2]);
    if (!isModule) release();
  }
  load().catch((error: unknown) => {
    console.warn(`webmcp-gateway: the worker ${url} was not started: ${error}`);
    worker.dispatchEvent(new ErrorEvent("error", { message: String(error), cancelable: true }));
    worker.terminate();
  });
}

function install(): void {
  let begin: string | undefined;
  window.Worker = new Proxy(window.Worker, {
    construct(target, [url, options]: [unknown, WorkerOptions?], made: Function) {
      const from = new Request(String(url));
      // In frames without an origin, the script of a blob may import the app's files, too.
      if (/^(data:|blob:(?!null\/)|blob:.*,module$)/.test(`${String(url)},${options?.type}`)) return Reflect.construct(target, [url, options], made) as Worker;
      begin ??= blobOf(`(${beginWorker})()`);
      // A classic worker imports modules, too; without an origin, no module can begin with a blob.
      const worker = Reflect.construct(target, [begin, { ...options, type: "classic" }], made) as Worker;
      startWorker(worker, from, options?.type === "module");
      return worker;
    },
  });
  const told = new Set<string>();
  addEventListener("securitypolicyviolation", ({ effectiveDirective, blockedURI }) => {
    const what = effectiveDirective === "worker-src" ? "workers" : blockedURI === "wasm-eval" ? "WebAssembly" : "";
    if (!what || told.has(what)) return;
    told.add(what);
    console.warn(`webmcp-gateway: this host forbids ${what}; the gateway's own host allows them`);
  });
}

if (window.parent !== window && window.Worker) install();
