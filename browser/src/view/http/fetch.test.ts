import { beforeEach, expect, test, vi } from "vitest";
import { createAddresses } from "../page/addresses";
import { NoHostError, type Calls } from "./calls";
import { createFetch } from "./fetch";
import { installIntegrityCheck } from "./integrity";
import type { Params } from "../host/json-rpc";
import { watchBlobs } from "./blobs";
import { withResolvedRequests } from "./request";

const addresses = createAddresses("cart", "/", "about:srcdoc", { href: "about:srcdoc", origin: "null", pathname: "srcdoc", protocol: "about:" });
const Rebased = withResolvedRequests(Request, addresses.resolve);
watchBlobs(URL);

let asked: Params[];
let warned: string[];
let streamed: Params[];
let parts: Params[];
let push: Params[];
let give: (args: Params, signal?: AbortSignal) => unknown;

const calls = {
  async http(read: () => Promise<Params>, signal?: AbortSignal) {
    const args = await read();
    asked.push(args);
    const given = await give(args, signal);
    return { content: [], structuredContent: given } as Params;
  },
  async stream(args: Params, _: AbortSignal | undefined, pushed: ((part: Params) => void) | undefined) {
    streamed.push(args);
    for (const part of push.splice(0)) pushed?.(part);
    return { content: [], structuredContent: args["cancel"] ? ok() : parts.shift() } as Params;
  },
} as Partial<Calls> as Calls;
const fetch = createFetch({
  addresses, calls, offline: async ({ url }) => ok({ url, status: 503, headers: { "gateway-reason": "no-host" } }), Request: Rebased, warn: (line) => warned.push(line),
});
const ok = (more: Params = {}) => ({ status: 200, statusText: "OK", headers: {}, bodyType: "none", url: "/x", redirected: false, ok: true, ...more });

beforeEach(() => {
  vi.restoreAllMocks();
  asked = [];
  warned = [];
  streamed = [];
  push = [];
  give = () => ok();
});

async function sent(init: RequestInit, url = "/api/x"): Promise<Params> {
  await fetch(url, init);
  return asked.pop() as Params;
}

test("a browser that does not tell of a request's body sends it all the same", async () => {
  vi.spyOn(Request.prototype, "body", "get").mockReturnValue(undefined as never);
  expect(await sent({ method: "POST", body: "x" })).toMatchObject({ bodyType: "text", body: "x" });
  for (const method of ["GET", "DELETE"]) expect(await sent({ method })).not.toHaveProperty("bodyType");
});

test("a body that the host passes as a blob is read", async () => {
  const bytes = Uint8Array.of(0, 255, 13, 10);
  give = () => ok({ bodyType: "base64", body: new Blob([bytes]), stream: "s1" });
  parts = [ok({ bodyType: "base64", body: new Blob([Uint8Array.of(7)]), stream: "s1" }), ok()];
  expect([...(await (await fetch("/api/x")).bytes())]).toEqual([...bytes, 7]);
});

test("each kind of body leaves in the form that keeps it", async () => {
  const post = (body: BodyInit, type?: string) => sent({ method: "POST", body, ...(type && { headers: { "content-type": type } }) });
  expect(await post('{"a": 1}', "application/json")).toMatchObject({ bodyType: "json", body: '{"a": 1}' });
  expect(await post("{broken", "application/json")).toMatchObject({ bodyType: "text", body: "{broken" });
  expect(await post("grüße")).toMatchObject({ bodyType: "text", body: "grüße", headers: { "content-type": "text/plain;charset=UTF-8" } });
  expect(await post(new URLSearchParams({ a: "1 2" }))).toMatchObject({ bodyType: "urlEncoded", body: "a=1+2" });
  expect(await post(new Uint8Array([255, 0, 1]))).toMatchObject({ bodyType: "base64", body: "/wAB" });
  expect(await post(new Uint8Array([0xff]), "text/plain")).toMatchObject({ bodyType: "base64", body: "/w==" });
  expect(await post("é", "text/plain;charset=latin1")).toMatchObject({ bodyType: "base64" });
  expect(await post(new Blob(["a,b"], { type: "text/csv" }))).toMatchObject({ bodyType: "text", body: "a,b" });
});

test("a fragment stays in the page", async () => {
  expect(await sent({}, "/api/x?a#b")).toMatchObject({ url: "/api/x?a" });
  expect(await sent({}, "https://api.example/x?y#z")).toMatchObject({ url: "https://api.example/x?y" });
});

test("a form goes as the bytes that the browser wrote, with their boundary", async () => {
  for (const [file, bodyType] of [["tea", "text"], [new Uint8Array([1, 255]), "base64"]] as const) {
    const form = new FormData();
    form.append("a\\b", "1");
    form.append("file", new Blob([file], { type: "image/png" }), "a.png");
    const args = await sent({ method: "POST", body: form });
    expect(args["bodyType"]).toBe(bodyType);
    const body = bodyType === "text" ? String(args["body"]) : atob(String(args["body"]));
    const [, boundary] = /^multipart\/form-data; *boundary=(.+)$/.exec((args["headers"] as { [name: string]: string })["content-type"]!)!;
    expect(body.startsWith(`--${boundary}\r\n`) && body.endsWith(`\r\n--${boundary}--\r\n`)).toBe(true);
    expect(body).toContain(bodyType === "text" ? "\r\n\r\ntea\r\n" : "\r\n\r\n\x01\xff\r\n");
  }
});

test("a multipart body of the page's own is not touched", async () => {
  const headers = { "content-type": "multipart/form-data; boundary=b" };
  const body = '--b\r\ncontent-disposition: form-data; name="a"\r\ncontent-id: <1>\n\n{}\r\n--b--';
  expect(await sent({ method: "POST", headers, body })).toMatchObject({ headers, bodyType: "text", body });
});

test("streams are read, and a read body is used", async () => {
  const body = new Blob(["streamed"]).stream();
  expect(await sent({ method: "POST", body, duplex: "half" } as RequestInit)).toMatchObject({ bodyType: "base64", body: btoa("streamed") });
  const request = new Rebased("/x", { method: "POST", body: "b" });
  await fetch(request);
  expect(request.bodyUsed).toBe(true);
  await expect(fetch(request)).rejects.toBeInstanceOf(TypeError);
});

test("method, headers and modes are as the page gave them, beside what browsers add", async () => {
  vi.stubGlobal("navigator", { languages: ["de-AT", "de", "en"] });
  const added = { accept: "*/*", "accept-language": "de-AT,de;q=0.9,en;q=0.8" };
  const args = await sent({ method: "patch", headers: { "X-A": "1" }, body: "", redirect: "manual", cache: "no-store", credentials: "omit" });
  expect(args).toMatchObject({ url: "/api/x", method: "patch", headers: { "x-a": "1" }, redirect: "manual", cache: "no-store", credentials: "omit" });
  expect(await sent({ method: "post" })).toEqual({ url: "/api/x", method: "POST", headers: added, stream: true, _bytes: true });
  expect(await sent({ headers: { a: "2" } }, new Rebased("/y", { headers: { a: "1" } }) as unknown as string)).toMatchObject({ url: "/y", headers: { a: "2" } });
  expect(await sent({ headers: { Accept: "a/b", "Accept-Language": "fr" } })).toMatchObject({ headers: { accept: "a/b", "accept-language": "fr" } });
  vi.unstubAllGlobals();
});

test("argument errors are rejections", async () => {
  for (const [url, init] of [["/x", { method: "TRACE" }], ["/x", { body: "b" }], ["http://[", {}], ["http://a:b@c/", {}]] as const) {
    const result = fetch(url, init);
    await expect(result).rejects.toBeInstanceOf(TypeError);
  }
  expect(asked).toEqual([]);
  expect(fetch.length).toBe(1);
});

test("the response shows url, redirected and type, on a clone too", async () => {
  give = () => ok({ url: "/other?x=1", redirected: true, bodyType: "json", body: { a: 1 }, headers: { "content-type": "application/json", "set-cookie": "a=b" } });
  const response = await fetch("/x");
  for (const one of [response.clone().clone(), response]) {
    expect([one.url, one.redirected, one.type]).toEqual(["https://cart.invalid/other?x=1", true, "basic"]);
    expect(one.headers.get("set-cookie")).toBeNull();
    expect(await one.json()).toEqual({ a: 1 });
  }
});

test("a JSON string stays a JSON text, bytes stay bytes, null bodies stay null", async () => {
  give = () => ok({ bodyType: "json", body: "word" });
  expect(await (await fetch("/x")).text()).toBe('"word"');
  give = () => ok({ bodyType: "base64", body: "/wAB" });
  expect(new Uint8Array(await (await fetch("/x")).arrayBuffer())).toEqual(new Uint8Array([255, 0, 1]));
  for (const status of [204, 205, 304]) {
    give = () => ok({ status, bodyType: "text", body: "no" });
    expect((await fetch("/x")).body).toBeNull();
  }
});

test("HTTP errors resolve, and a refusal is printed with the command that explains it", async () => {
  give = () => ok({
    status: 403, bodyType: "json", body: { detail: "It is not allowed.", cause: "No rule allows it." },
    headers: { "content-type": "application/problem+json", "gateway-reason": "policy-denied" },
  });
  const response = await fetch("/api/admin?a=1&b=2", { method: "DELETE" });
  expect([response.status, response.ok]).toEqual([403, false]);
  expect(warned).toEqual([
    "DELETE /api/admin?a=1&b=2: 403 policy-denied: No rule allows it.\nwebmcp-gateway policy explain DELETE '/api/admin?a=1&b=2'",
  ]);
});

test("without an answer fetch rejects with a cause; without a host the tier answers", async () => {
  give = () => { throw new Error("gone"); };
  await expect(fetch("/x")).rejects.toMatchObject({ name: "TypeError", message: "Failed to fetch", cause: { message: "gone" } });
  give = () => ({ status: 101 });
  await expect(fetch("/x")).rejects.toThrow("Failed to fetch");
  give = () => { throw new NoHostError("the host has no ears"); };
  expect((await fetch("/x")).status).toBe(503);
  expect(warned).toEqual(["GET /x: 503 no-host: the host has no ears"]);
});

test("an abort before, during and while reading rejects with its reason", async () => {
  await expect(fetch("/x", { signal: AbortSignal.abort("early") })).rejects.toBe("early");
  expect(asked).toEqual([]);
  const controller = new AbortController();
  give = (_, signal) => new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason)));
  const running = fetch("/x", { signal: controller.signal });
  setTimeout(() => controller.abort("midway"), 5);
  await expect(running).rejects.toBe("midway");
  const late = new AbortController();
  give = () => ok({ bodyType: "text", body: "never read" });
  const response = await fetch("/x", { signal: late.signal });
  late.abort("late");
  await expect(response.text()).rejects.toBe("late");
});

test("an abort ends what waits for a body that never ends, or for an answer that nobody gives", async () => {
  for (const wait of ["body", "answer"]) {
    const controller = new AbortController();
    give = () => new Promise(() => undefined);
    const body = wait === "body" ? new ReadableStream() : "x";
    const running = fetch("/x", { method: "POST", body, duplex: "half", signal: controller.signal } as RequestInit);
    setTimeout(() => controller.abort(wait), 5);
    await expect(running).rejects.toBe(wait);
    expect(asked.length).toBe(wait === "body" ? 0 : 1);
  }
});

test("redirects: manual shows nothing but the fact, error rejects", async () => {
  give = () => ok({ status: 302, headers: { location: "/y" } });
  const response = await fetch("/x", { redirect: "manual" });
  expect([response.type, response.status, response.url, response.headers.get("location")]).toEqual(["opaqueredirect", 0, "https://cart.invalid/x", null]);
  await expect(fetch("/x", { redirect: "error" })).rejects.toThrow("Failed to fetch");
});

test("integrity is verified", async () => {
  installIntegrityCheck();
  give = () => ok({ bodyType: "text", body: "hello" });
  const right = "sha256-LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=";
  expect(await (await fetch("/x", { integrity: right })).text()).toBe("hello");
  await expect(fetch("/x", { integrity: right.replace("L", "M") })).rejects.toThrow("Failed to fetch");
});

test("data: and blob: URLs are read without the host", async () => {
  expect(await (await fetch("data:text/plain;charset=utf-8;base64,aMOk#x")).text()).toBe("hä");
  const plain = await fetch("data:,a%20b");
  expect([await plain.text(), plain.headers.get("content-type"), plain.url]).toEqual(["a b", "text/plain;charset=US-ASCII", "data:,a%20b"]);
  const url = URL.createObjectURL(new Blob(["inside"], { type: "text/x" }));
  expect(await (await fetch(url)).text()).toBe("inside");
  URL.revokeObjectURL(url);
  await expect(fetch(url)).rejects.toThrow("Failed to fetch");
  await expect(fetch("ftp://a/b")).rejects.toThrow("Failed to fetch");
  expect(asked).toEqual([]);
});

test("Request is the same class, with the app's base", () => {
  const request = new Rebased("/x?y");
  expect(request.url).toBe("https://cart.invalid/x?y");
  expect([request instanceof Rebased, request instanceof Request, request.constructor === Rebased]).toEqual([true, true, true]);
  class Mine extends Rebased {}
  expect(new Mine("/z") instanceof Mine).toBe(true);
});

test("a body in parts is read part by part, and given up with its reader", async () => {
  give = () => ok({ bodyType: "text", body: "one ", stream: "stream-1", headers: { "content-type": "text/plain" } });
  parts = [{ ...ok({ bodyType: "text", body: "", stream: "stream-1" }) }, { ...ok({ bodyType: "text", body: "two", stream: "stream-1" }) }, ok()];
  const response = await fetch("/x");
  expect(response.headers.get("content-length")).toBeNull();
  expect(await response.text()).toBe("one two");
  expect(streamed).toEqual(Array.from({ length: 3 }, () => ({ id: "stream-1", _bytes: true })));
  const given = await fetch("/x");
  await given.body?.cancel();
  expect(streamed.pop()).toEqual({ id: "stream-1", cancel: true });
});

test("a browser without streams of bytes, such as WebKit, reads each part when it is asked for", async () => {
  vi.stubGlobal("ReadableByteStreamController", undefined);
  const construct = (Native: typeof ReadableStream, [source, strategy]: [UnderlyingSource, QueuingStrategy]): ReadableStream => {
    if (source.type) throw new TypeError("ReadableByteStreamController is not implemented");
    return new Native(source, strategy);
  };
  vi.stubGlobal("ReadableStream", new Proxy(ReadableStream, { construct }));
  give = () => ok({ bodyType: "text", body: "one", stream: "stream-1" });
  parts = [ok({ bodyType: "text", body: "two", stream: "stream-1" }), ok()];
  const reader = (await fetch("/x")).body!.getReader();
  const text = async (): Promise<string> => new TextDecoder().decode((await reader.read()).value);
  expect([await text(), streamed.length, await text(), streamed.length, (await reader.read()).done]).toEqual(["one", 0, "two", 1, true]);
  vi.unstubAllGlobals();
});

test("parts that are pushed are read before the answer that they precede", async () => {
  give = () => ok({ bodyType: "text", body: "", stream: "stream-1" });
  push = [ok({ bodyType: "text", body: "one " }), ok({ bodyType: "none" }), ok({ bodyType: "text", body: "two " })];
  parts = [ok({ bodyType: "text", body: "three" })];
  expect(await (await fetch("/x")).text()).toBe("one two three");
});

test("a body that breaks off rejects its reader", async () => {
  give = () => ok({ bodyType: "text", body: "one", stream: "stream-1" });
  parts = [ok({ status: 504, bodyType: "json", body: { detail: "silent" }, headers: { "gateway-reason": "backend-timeout" } })];
  await expect((await fetch("/x")).text()).rejects.toBeInstanceOf(TypeError);
});
