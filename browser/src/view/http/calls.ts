/** Calls of `http_request`, of the page's `fetch` and of the page's own client: signed, marked, and held during approvals. */

import { rejectOnAbort } from "../abort";
import type { Activity } from "../tools/activity";
import { createGate } from "./gate";
import type { Gestures } from "../page/gesture";
import type { Handshake, Host } from "../host/handshake";
import { answer, failure, METHOD_NOT_FOUND, objectOf, PeerError, type Answer, type Id, type Message, type Params, type Request } from "../host/json-rpc";
import { approvalOf, awaitFinalResult, type PendingDependencies as PendingEnds } from "./pending";
import { problemResult } from "./problem";
import type { Proof } from "../host/proof";
import type { Options, Requests } from "../host/requests";
import { answerOf } from "../tools/results";

export const TOOL = "http_request";
/** The `_meta` key of a progress notification that carries a part of a stream. */
const PART = "webmcp-gateway/part";

/** The tools that serve the page itself, of a proven view only: `webmcp_storage`, `webmcp_send`, and `http_stream`. */
const OWN = /^(webmc|htt)p_s/;

/** A host's gateway takes 64 calls at a time: further ones are queued here, and some places are left for other calls. */
const MAX_CALLS = 48;
/**
 * Calls that are sent without a pause: more would keep host and gateway busy when a model calls, and gain no speed.
 *
 * A slow call makes room for the next one after `SLOW_CALL` milliseconds.
 */
const UNPACED_CALLS = 4;
const SLOW_CALL = 30;
/** The same while a model calls, and shortly after, so that it does not wait for them. */
const UNPACED_BESIDE_MODEL = 2;

/**
 * Hosts' errors for a call that is larger than they, or the connection to the gateway, support; for a small call they
 * mean another failure.
 */
const TOO_LARGE = /\b413\b|too large/i;
const LARGE_CALL = 65536;

export const NO_CALLS = "the host offers no `serverTools`";

/** No host can carry a request: the reason `no-host`. */
export class NoHostError extends Error {}

/** The view has no valid proof. */
export class UnprovenError extends Error {}

/** Whether the gateway refused a call because it does not know the view since a restart. */
const isViewMoved = (result: Params | undefined): boolean => /^view-moved/.test((result?.["content"] as Params[] | undefined)?.[0]?.["text"] as string);

export interface Calls {
  /**
   * The final tool result for the arguments from `read`, called in turn; `onProgress` receives progress notifications.
   *
   * Rejects with `NoHostError`, a `PeerError`, or the signal's reason.
   */
  http(read: () => Promise<Params>, signal?: AbortSignal, onProgress?: (params: Params) => void): Promise<Params>;
  /** The result of a tool for this view only, within `timeout` milliseconds. Rejects with `UnprovenError` without a view proof. */
  callOwnTool(name: string, args: Params, signal?: AbortSignal, timeout?: number): Promise<Params>;
  /** The result of a tool of the server, for the page. */
  callTool(name: string, args: Params): Promise<Params>;
  /** The requests of `fetch` that were sent to the host and not answered. */
  inFlight: ReadonlySet<unknown>;
  /** Whether the host takes a body as a `Blob`. */
  acceptsBlobs(): Promise<boolean>;
  /** The result of `http_stream`; `pushed` receives the parts before it, if the host supports that. */
  stream(args: Params, signal?: AbortSignal, pushed?: (part: Params) => void): Promise<Params>;
  /** Sends the page's own call. */
  sendFromPage(message: Request): void;
  /** True if the page's own call `id` was not sent yet, or waits for an approval: the host needs no cancellation then. */
  cancelFromPage(id: unknown): boolean;
  /** The answer for the page; undefined if it belongs to its own call, which waits for an approval first. */
  readAnswer(message: Answer): Answer | undefined;
}

interface CallDependencies extends Omit<PendingEnds, "stream"> {
  handshake: Handshake;
  proof: Proof;
  activity: Activity;
  /** The model's calls that our gateway forwards. */
  calling: Activity;
  gestures: Gestures;
  requests: Requests;
  toHost(message: Message): void;
  toPage(message: Message): void;
  /** The gateway has calls for this view. */
  hurry(): void;
  /** A request of the page is sent now. */
  onSend(): void;
}

/** The initiator at the time of the page's request. */
interface Cause {
  model: boolean;
  gesture: () => number | undefined;
}

export function createCalls({ calling, handshake, proof, activity, gestures, requests, notice, later, toHost, toPage, hurry, onSend }: CallDependencies): Calls {
  const inFlight = new Set<unknown>();
  const gate = createGate(MAX_CALLS);
  const pacedGate = createGate(UNPACED_CALLS);
  const besideModelGate = createGate(UNPACED_BESIDE_MODEL);
  const signing = new Set<unknown>();
  const sentFromPage = new Map<Id, Params>();
  const awaitingApproval = new Map<unknown, AbortController>();
  const stream: Calls["stream"] = (params, signal, pushed) =>
    call("http_stream", withProof(params), signal, pushed && (({ _meta }) => pushed((_meta as Params)[PART] as Params)));
  const ends = { notice, later, stream };

  async function withProof(args: Params): Promise<Params> {
    const view = await proof.sign();
    return view ? { ...args, _view: view } : args;
  }

  const currentCause = (): Cause => ({ model: activity.isRunning(), gesture: gestures.take() });

  /** Only the runtime may set `_view`, `_initiator` and `_gesture`: the page's values are removed. */
  async function signRequest(args: Params, cause: Cause, host?: Host): Promise<Params> {
    const { _view: _, _initiator: __, _gesture: ___, ...own } = args;
    const full = await withProof(own);
    // Our own host attests gestures itself.
    const gesture = host?.ours ? undefined : cause.gesture();
    return {
      ...full,
      ...((cause.model || activity.isRunning()) && { _initiator: "model" }),
      ...(gesture !== undefined && { _gesture: gesture }),
    };
  }

  async function requireHost(): Promise<Host> {
    const found = await handshake.host();
    if (!found) throw new NoHostError("no host answered");
    if (!handshake.can("serverTools")) throw new NoHostError(NO_CALLS);
    return found;
  }

  /** Sends a call. One that a restarted gateway refused has not run: it is sent again, once the view is attached again. */
  async function deliver(name: string, args: Params, options: Options<Params>): Promise<Params> {
    const result = await requests.send("tools/call", { name, arguments: args }, options);
    return isViewMoved(result) ? deliver(name, { ...args, _view: await proof.sign(args["_view"]) }, options) : result;
  }

  async function call(name: string, args: Promise<Params>, signal?: AbortSignal, onProgress?: (params: Params) => void): Promise<Params> {
    return deliver(name, await rejectOnAbort(args, signal), { signal, onProgress }).catch((error: unknown) => {
      // For another tool, this error may only mean that the server does not have it.
      if (name !== TOOL || !(error instanceof PeerError) || error.code !== METHOD_NOT_FOUND) throw error;
      handshake.withdraw("serverTools");
      throw new NoHostError(NO_CALLS);
    });
  }

  /** The answer in place of a failure because `args` were too large: many hosts report only a failed call. */
  function tooLargeAnswer(args: Params, failure: unknown): Params | undefined {
    const size = JSON.stringify(args).length;
    if (size <= proof.maxMessageSize() && !(size > LARGE_CALL && TOO_LARGE.test(`${failure}${JSON.stringify(failure)}`))) return undefined;
    const structuredContent = problemResult(413, "request-too-large", "This is too large to be sent.");
    return { content: [], structuredContent };
  }

  async function signFromPage(message: Request): Promise<void> {
    const args = objectOf(message.params?.["arguments"]);
    signing.add(message.id);
    const cause = currentCause();
    const host = await handshake.host();
    const full = await signRequest(args, cause, host);
    if (!signing.delete(message.id)) return;
    sentFromPage.set(message.id, full);
    onSend();
    toHost({ ...message, params: { ...message.params, arguments: full } });
  }

  async function awaitApproval(id: Id, result: Params, controller: AbortController): Promise<void> {
    let message: Answer;
    try {
      message = answer(id, await awaitFinalResult(result, ends, controller.signal));
    } catch (error) {
      message = failure(id, error instanceof PeerError ? error.code : -32000, `${error}`);
    }
    if (awaitingApproval.delete(id)) toPage(message);
  }

  return {
    async http(read, signal, onProgress) {
      const cause = currentCause();
      const host = await requireHost();
      let args: Params = {};
      const send = async (): Promise<Params> => {
        args = await read();
        const full = await signRequest(args, cause, host);
        inFlight.add(full);
        onSend();
        return call(TOOL, Promise.resolve(full), signal, onProgress).finally(() => inFlight.delete(full));
      };
      const sendPaced = (): Promise<Params> =>
        new Promise((go) => {
          void (calling.isRunning() ? besideModelGate : pacedGate)(() => {
            const sent = send();
            go(sent);
            return Promise.race<unknown>([sent.catch(() => undefined), new Promise<void>((over) => later(over, SLOW_CALL))]);
          });
        });
      let result = await rejectOnAbort(gate(sendPaced), signal).catch((error: unknown) => {
        const known = signal?.aborted || error instanceof NoHostError ? undefined : tooLargeAnswer(args, error);
        if (known) return known;
        throw error;
      });
      if (result["isError"]) result = tooLargeAnswer(args, result) ?? result;
      if (objectOf(answerOf(result)?.["headers"])["gateway-calls"]) hurry();
      return awaitFinalResult(result, ends, signal);
    },
    async callOwnTool(name, args, signal, timeout) {
      const full = await withProof(args);
      if (!full["_view"]) throw new UnprovenError();
      return deliver(name, full, { signal, timeout });
    },
    callTool: (name, args) => call(name, OWN.test(name) ? signRequest(args, currentCause()) : Promise.resolve(args)),
    inFlight,
    acceptsBlobs: async () => !!(await handshake.host())?.ours,
    stream,
    sendFromPage: (message) => void signFromPage(message),
    cancelFromPage(id) {
      const controller = awaitingApproval.get(id);
      awaitingApproval.delete(id);
      controller?.abort();
      return signing.delete(id) || controller !== undefined;
    },
    readAnswer(message) {
      const { id, result, error } = message;
      const args = sentFromPage.get(id);
      if (!args) return message;
      sentFromPage.delete(id);
      // The page's own client reports this failure; its next call succeeds.
      if (isViewMoved(result)) void proof.sign(args["_view"]);
      const known = error || result?.["isError"] ? tooLargeAnswer(args, error ?? result) : undefined;
      if (known) return answer(id, known);
      if (!result || !approvalOf(result)) return message;
      const controller = new AbortController();
      awaitingApproval.set(id, controller);
      void awaitApproval(id, result, controller);
      return undefined;
    },
  };
}
