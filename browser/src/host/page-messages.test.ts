/** The classification of messages of the sandbox proxy's window. */
import { expect, test } from "vitest";
import { envelope, sortPageMessage } from "./page-messages";

const ping = { jsonrpc: "2.0", id: 1, method: "ping" };
const wrapped = (payload: unknown, more: object = {}) => ({
  channel: "mcp-iframe",
  type: "mcp",
  direction: "server-to-client",
  payload,
  ...more,
});
const own = (name: string, params: object = {}) => ({
  jsonrpc: "2.0",
  method: `ui/notifications/sandbox-${name}`,
  params,
});

test("bare JSON-RPC is ui, and its first word is known", () => {
  expect(sortPageMessage(ping)).toEqual({ kind: "ui", message: ping, initialize: false });
  expect(sortPageMessage({ ...ping, method: "ui/initialize" })).toMatchObject({ kind: "ui", initialize: true });
});

test("an envelope is webmcp, its payload unchanged", () => {
  expect(sortPageMessage(wrapped(ping))).toEqual({ kind: "webmcp", payload: ping });
  expect(sortPageMessage(wrapped("mcp-server-ready"))).toEqual({ kind: "webmcp", payload: "mcp-server-ready" });
});

test("the proxy's words are its own", () => {
  expect(sortPageMessage(own("proxy-ready"))).toMatchObject({ kind: "proxy-ready" });
  expect(sortPageMessage(own("page-left"))).toEqual({ kind: "left" });
  expect(sortPageMessage(own("gesture", { age: 12.3 }))).toEqual({ kind: "gesture", age: 13 });
  expect(sortPageMessage(own("gesture", { age: 1e9 }))).toEqual({ kind: "gesture", age: 5000 });
});

test.each([
  ["nothing", undefined],
  ["text", "hello"],
  ["a list", [ping]],
  ["an object", {}],
  ["a map", new Map()],
  ["an envelope the other way", wrapped(ping, { direction: "client-to-server" })],
  ["an envelope of another type", wrapped(ping, { type: "x" })],
  ["an envelope around a batch", wrapped([ping])],
  ["an envelope around an envelope", wrapped(wrapped(ping))],
  ["the host's own word in an envelope", wrapped("mcp-check-ready")],
  ["a resource for the proxy", own("resource-ready", { html: "x" })],
  ["a gesture in the future", own("gesture", { age: -1 })],
  ["a gesture without age", own("gesture")],
  ["a gesture, age NaN", own("gesture", { age: Number.NaN })],
])("garbage: %s", (_name, data) => {
  expect(sortPageMessage(data)).toEqual({ kind: "garbage" });
});

test.each([
  ["an extra member", { channel: "ui" }],
  ["a method that is no text", { method: 7 }],
  ["parameters that are no object", { params: [1] }],
  ["parameters of null", { params: null }],
  ["_meta that is no object", { params: { _meta: 7 } }],
  ["an unusable progress token", { params: { _meta: { progressToken: {} } } }],
  ["a result beside the method", { result: {} }],
  ["a value that JSON does not have", { params: { n: 1n } }],
  ["a long id", { id: "x".repeat(300) }],
  ["a fraction as id", { id: 1.5 }],
])("a call that is no valid message is answered: %s", (_name, more) => {
  const sorted = sortPageMessage({ ...ping, ...more });
  expect(sorted).toMatchObject({ kind: "refused", channel: "ui", answer: { id: { id: 1, ...more }.id, error: { code: -32600 } } });
});

test("a call of the page's tools that is no valid message is answered on their channel", () => {
  expect(sortPageMessage(wrapped({ ...ping, more: 1 }))).toMatchObject({ kind: "refused", channel: "webmcp", answer: { id: 1 } });
});

test("an answer of the page's tools that is no valid message becomes an error, so that the model does not wait", () => {
  const sorted = sortPageMessage(wrapped({ jsonrpc: "2.0", id: 7, result: [] }));
  expect(sorted).toMatchObject({ kind: "webmcp", payload: { id: 7, error: { code: -32603 } } });
});

test("a member that is undefined is as good as absent", () => {
  expect(sortPageMessage({ ...ping, params: undefined })).toMatchObject({ kind: "ui" });
});

test("a message of the gateway is wrapped", () => {
  expect(envelope(ping)).toEqual({ channel: "mcp-iframe", type: "mcp", direction: "client-to-server", payload: ping });
});

test.each([
  ["tools/call", {}, "`name` must be a string."],
  ["tools/call", { name: 7 }, "`name` must be a string."],
  ["tools/call", { name: "x", arguments: [] }, "`arguments` must be an object."],
  ["tools/call", { name: "x", arguments: null }, "`arguments` must be an object."],
  ["resources/read", undefined, "`uri` must be a string."],
  ["resources/list", { cursor: 1 }, "`cursor` must be a string."],
  ["prompts/get", { name: {} }, "`name` must be a string."],
  ["completion/complete", { ref: "x", argument: {} }, "`ref` must be an object."],
  ["ui/open-link", { url: ["https://a.example"] }, "`url` must be a string."],
  ["ui/message", { role: "user", content: "x" }, "`content` must be an array."],
  ["ui/request-display-mode", {}, "`mode` must be a string."],
])("a request with a wrong parameter is -32602, and its field is named: %s %j", (method, params, words) => {
  const answer = { id: 1, error: { code: -32602, message: `${method}: ${words}` } };
  expect(sortPageMessage({ ...ping, method, ...(params && { params }) })).toMatchObject({ kind: "refused", channel: "ui", answer });
});

test.each([
  ["tools/call", { name: "x" }],
  ["tools/call", { name: "x", arguments: {}, _meta: {} }],
  ["resources/list", undefined],
  ["vendor/own", { name: 7 }],
  ["constructor", {}],
])("a request with right parameters, or of a method that is not known here, is passed: %s %j", (method, params) => {
  const message = { ...ping, method, ...(params && { params }) };
  expect(sortPageMessage(message)).toEqual({ kind: "ui", message, initialize: false });
});
