/** The JSON-RPC 2.0 messages, as far as the runtime reads them. */

export type Id = string | number;
export type Params = { [name: string]: unknown };

export interface RpcError {
  code: number;
  message: string;
  data?: unknown;
}

export interface Message {
  jsonrpc: "2.0";
  id?: Id;
  method?: string;
  params?: Params;
  result?: Params;
  error?: RpcError;
}

export type Request = Message & { id: Id; method: string };
export type Notification = Message & { method: string };
export type Answer = Message & { id: Id };

export const METHOD_NOT_FOUND = -32601;
export const INVALID_PARAMS = -32602;
export const INVALID_REQUEST = -32600;

// Captured now: a page that replaces it later would receive each message, including secrets.
const { isArray } = Array;

export function isObject(value: unknown): value is Params {
  return typeof value === "object" && value !== null && !isArray(value);
}

/** `value` if it is an object, else an empty one. */
export function objectOf(value: unknown): Params {
  return isObject(value) ? value : {};
}

function isId(value: unknown): value is Id {
  return typeof value === "string" || Number.isSafeInteger(value);
}

/** Levels of a message that browsers still pass on: at about 2,500 they deliver null in its place. */
const LEVELS = 1000;

/** Whether `value` nests at most `levels` deep; it must have no cycle. */
export const isShallow = (value: unknown, levels: number): boolean =>
  typeof value !== "object" || value === null || (levels > 0 && Object.values(value).every((one) => isShallow(one, levels - 1)));

/** The error answer to a request that browsers or hosts drop without an answer (ext-apps reads messages strictly). */
export function refusal(message: object): Answer | undefined {
  const { jsonrpc, id, method, params = {}, ...others } = message as Params;
  if (jsonrpc !== "2.0" || id === undefined || method === undefined) return undefined;
  const { _meta = {} } = objectOf(params);
  const { progressToken = 0 } = objectOf(_meta);
  let valid = typeof method === "string" && [params, _meta].every(isObject) && [id, progressToken].every(isId) && !Object.keys(others)[0];
  let why = "This is no request of MCP";
  try {
    JSON.stringify(params);
    valid &&= isShallow(params, LEVELS);
  } catch (error) {
    valid = false;
    why = String(error);
  }
  return valid ? undefined : failure(id as Id, INVALID_REQUEST, why);
}

export function isMessage(value: unknown): value is Message {
  return isObject(value) && value["jsonrpc"] === "2.0";
}

export function isRequest(message: Message): message is Request {
  return typeof message.method === "string" && isId(message.id);
}

export function isNotification(message: Message): message is Notification {
  return typeof message.method === "string" && message.id === undefined;
}

/** Also a useless one: its caller must not wait for another. */
export function isAnswer(message: Message): message is Answer {
  return message.method === undefined && isId(message.id);
}

export function request(id: Id, method: string, params: Params): Request {
  return { jsonrpc: "2.0", id, method, params };
}

export function notification(method: string, params: Params = {}): Notification {
  return { jsonrpc: "2.0", method, params };
}

export function answer(id: Id, result: Params): Answer {
  return { jsonrpc: "2.0", id, result };
}

export function failure(id: Id, code: number, message: string): Answer {
  return { jsonrpc: "2.0", id, error: { code, message } };
}

/** The peer's error answer, as an exception. */
export class PeerError extends Error {
  readonly code: number;

  constructor(error: RpcError) {
    super(String(error.message));
    this.code = error.code;
  }
}
