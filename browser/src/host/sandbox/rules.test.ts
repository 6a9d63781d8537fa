/** The messages and options that the sandbox proxy passes. */
import { expect, test } from "vitest";
import { bytesOf, contentPolicy, frameOrigin, hostOrigin, isAnswer, isProxyMessage, sandboxTokens, resourceOf } from "./rules";

const HOST = "http://gateway.localhost:8080";
const address = (host: string) => `?host=${encodeURIComponent(host)}`;
const ready = (params: unknown) => ({ jsonrpc: "2.0", method: "ui/notifications/sandbox-resource-ready", params });

test("the host is the one that the address names and that stands above", () => {
  expect(hostOrigin(address(HOST), HOST)).toBe(HOST);
  expect(hostOrigin(address(HOST), undefined)).toBe(HOST);
  expect(hostOrigin(address(HOST), "http://evil.example")).toBeNull();
});

const NO_HOSTS = ["", "*", "null", "gateway.localhost", `${HOST}/path`, `${HOST}/`, "javascript:alert(1)", "ws://a.localhost"];

test.each(NO_HOSTS)("%j is no host", (host) => {
  expect(hostOrigin(address(host), undefined)).toBeNull();
});

test("an address without a host has none", () => {
  expect(hostOrigin("?csp=x", HOST)).toBeNull();
});

test.each([
  [undefined, "allow-scripts allow-forms"],
  ["allow-scripts", "allow-scripts"],
  ["allow-scripts allow-same-origin allow-top-navigation allow-popups", "allow-scripts"],
  ["ALLOW-FORMS\tallow-modals", "allow-forms"],
  ["", ""],
  [7, "allow-scripts allow-forms"],
])("the wish %j may only take away", (wish, sandbox) => {
  expect(sandboxTokens(wish)).toBe(sandbox);
});

test("a resource is HTML with its wish", () => {
  const resource = resourceOf(ready({ html: "x", document: "https://a.test/", sandbox: "allow-scripts allow-same-origin" }), null);
  expect(resource).toEqual({ content: { srcdoc: "x" }, sandbox: "allow-scripts", allow: "", policy: null });
});

test.each([
  [{ camera: {}, clipboardWrite: {} }, "camera *; clipboard-write *"],
  [{ "camera *; fullscreen": {}, fullscreen: {}, toString: {} }, ""],
  ["camera", ""],
])("the permissions %j are those that there are", (permissions, allow) => {
  expect(resourceOf(ready({ html: "x", permissions }), null)?.allow).toBe(allow);
});

const NO_PAGES = [null, "x", ready(undefined), ready({}), ready({ html: 1 }), { method: "ui/initialize", params: { html: "x" } }];

test.each(NO_PAGES)("%j brings no page", (data) => {
  expect(resourceOf(data, null)).toBeNull();
  expect(resourceOf(data, "https://a.test")).toBeNull();
});

test("on a dedicated origin, a resource is the address of a document there, which keeps its origin", () => {
  const src = "https://0a.test/?once=1";
  const resource = resourceOf(ready({ html: "x", document: src, sandbox: "allow-scripts allow-top-navigation" }), "https://0a.test");
  expect(resource).toEqual({ content: { src }, sandbox: "allow-scripts allow-same-origin", allow: "", policy: null });
});

const ELSEWHERE = ["https://0b.test/", "https://0a.test.evil.test/", "https://0a.test:8443/", "http://0a.test/", "javascript:1", "/", "", 7, null, undefined];

test.each(ELSEWHERE)("the document %j of a dedicated origin is refused", (document) => {
  expect(resourceOf(ready({ html: "<script>parent.x = 1</script>", document }), "https://0a.test")).toBeNull();
});

test("the proxy's own origin is no dedicated one", () => {
  expect(frameOrigin("?frame=https%3A%2F%2F0a.test", "https://sandbox.test")).toBe("https://0a.test");
  expect(frameOrigin("?frame=https%3A%2F%2Fsandbox.test", "https://sandbox.test")).toBeNull();
  expect(frameOrigin("?csp=x", "https://sandbox.test")).toBeNull();
});

test("the proxy's own words end there", () => {
  expect(isProxyMessage(ready({}))).toBe(true);
  expect([{ method: "tools/call" }, null, { method: 1 }].some(isProxyMessage)).toBe(false);
});

test("an answer has the id of its request, and no method", () => {
  const others = [null, undefined, "p", { id: "q", result: {} }, { id: "p", method: "ping" }];
  expect(isAnswer({ id: "p", result: {} }, "p")).toBe(true);
  expect(others.some((data) => isAnswer(data, "p"))).toBe(false);
});

test("the bytes of an answer are handed on, whatever else there is is copied", () => {
  const body = new ArrayBuffer(3);
  expect(bytesOf({ result: { structuredContent: { body } } })).toEqual([body]);
  const others = [null, "x", {}, { result: null }, { result: { structuredContent: { body: "text" } } }, { params: { body } }];
  expect(others.flatMap(bytesOf)).toEqual([]);
});

test("a policy names the origins of its kind, and nothing else", () => {
  const evil = ["*", "data:", "https://a.test; script-src *", "https://a.test\n", "javascript:x", "https://*.test", 7];
  const wild = ["https://*.cdn.test", "wss://*.cdn.test"];
  const policy = contentPolicy({ connectDomains: ["https://api.test", "wss://api.test:8443", ...wild, ...evil], resourceDomains: wild, frameDomains: [...evil, ...wild] });
  expect(policy).toContain("connect-src https://api.test wss://api.test:8443 https://*.cdn.test wss://*.cdn.test;");
  expect(policy).toContain("script-src 'self' 'unsafe-inline' https://*.cdn.test;");
  expect(policy).toContain("frame-src 'none'");
  expect(contentPolicy({})).toContain("connect-src 'none'");
  expect([undefined, null, "x"].map(contentPolicy)).toEqual([null, null, null]);
});
