/** Calls of `http_request`, of the page's `fetch` and of the page's own client: signed, marked, and held during approvals. */

import { unlessAborted } from "../abort";
import type { Activity } from "../tools/activity";
import { createGate } from "./gate";
import type { Gestures } from "../page/gesture";
import type { Handshake, Host } from "../host/handshake";
import { answer, failure, METHOD_NOT_FOUND, objectOf, PeerError, type Answer, type Id, type Message, type Params, type Request } from "../host/json-rpc";
import { approvalOf, settle, type Ends as PendingEnds } from "./pending";
import { problem } from "./problem";
import type { Proof } from "../host/proof";
import type { Options, Requests } from "../host/requests";
import { answerOf } from "../tools/results";

export const TOOL = "http_request";
/** The `_meta` key of a progress notification that carries a part of a stream. */
const PART = "webmcp-gateway/part";

/** Persists the page's storage, for a proven view only. */
const STORAGE = "webmcp_storage";

/** A host's gateway takes 64 calls at a time: further ones are queued here, and some places are left for other calls. */
const AT_ONCE = 48;
/**
 * Calls that are sent without a pause: more would keep host and gateway busy when a model calls, and gain no speed.
 *
 * A slow call makes room for the next one after `SLOW` milliseconds.
 */
const BRISK = 4;
const SLOW = 30;
/** The same while a model calls, and shortly after, so that it does not wait for them. */
const BESIDE_MODEL = 2;

/**
 * Hosts' errors for a call that is larger than they, or the connection to the gateway, support; for a small call they
 * mean another failure.
 */
const TOO_LARGE = /\b413\b|too large/i;
const LARGE = 65536;

export const NO_CALLS = "the host carries no tool calls (serverTools)";

/** No host can carry a request: the reason `no-host`. */
export class NoHost extends Error {}

/** The view has no valid proof. */
export class Unproven extends Error {}

/** Whether the gateway refused a call because it does not know the view since a restart. */
const moved = (result: Params | undefined): boolean => /^view-moved/.test((result?.["content"] as Params[] | undefined)?.[0]?.["text"] as string);

export interface Calls {
  /**
   * The final tool result for the arguments from `read`, called in turn; `onProgress` receives progress notifications.
   *
   * Rejects with `NoHost`, a `PeerError`, or the signal's reason.
   */
  http(read: () => Promise<Params>, signal?: AbortSignal, onProgress?: (params: Params) => void): Promise<Params>;
  /** The result of a tool for this view only, within `timeout` milliseconds. Rejects with `Unproven` without a view proof. */
  own(name: string, args: Params, signal?: AbortSignal, timeout?: number): Promise<Params>;
  /** The result of a tool of the server, for the page. */
  tool(name: string, args: Params): Promise<Params>;
  /** The requests of `fetch` that were sent to the host and not answered. */
  flying: ReadonlySet<unknown>;
  /** Whether the host takes a body as a `Blob`. */
  bulk(): Promise<boolean>;
  /** The result of `http_stream`; `pushed` receives the parts before it, if the host supports that. */
  stream(args: Params, signal?: AbortSignal, pushed?: (part: Params) => void): Promise<Params>;
  /** Sends the page's own call. */
  fromPage(message: Request): void;
  /** True if the page's own call `id` was not sent yet, or waits for an approval: the host needs no cancellation then. */
  cancelled(id: unknown): boolean;
  /** The answer for the page; undefined if it belongs to its own call, which waits for an approval first. */
  read(message: Answer): Answer | undefined;
}

interface Ends {
  handshake: Handshake;
  proof: Proof;
  activity: Activity;
  /** The model's calls that our gateway forwards. */
  calling: Activity;
  gestures: Gestures;
  requests: Requests;
  pending: Omit<PendingEnds, "stream">;
  toHost(message: Message): void;
  toPage(message: Message): void;
  /** The gateway has calls for this view. */
  hurry(): void;
  /** A request of the page is sent now. */
  departs(): void;
}

/** The initiator at the time of the page's request. */
interface Cause {
  model: boolean;
  gesture: () => number | undefined;
}

export function createCalls({ calling, handshake, proof, activity, gestures, requests, pending, toHost, toPage, hurry, departs }: Ends): Calls {
  const flying = new Set<unknown>();
  const gate = createGate(AT_ONCE);
  const brisk = createGate(BRISK);
  const beside = createGate(BESIDE_MODEL);
  const departing = new Set<unknown>();
  const away = new Map<Id, Params>();
  const held = new Map<unknown, AbortController>();
  const stream: Calls["stream"] = (params, signal, pushed) =>
    call("http_stream", proven(params), signal, pushed && (({ _meta }) => pushed((_meta as Params)[PART] as Params)));
  const ends = { ...pending, stream };

  async function proven(args: Params): Promise<Params> {
    const view = await proof.sign();
    return view ? { ...args, _view: view } : args;
  }

  const causeNow = (): Cause => ({ model: activity.active(), gesture: gestures.take() });

  /** Only the runtime may set `_view`, `_initiator` and `_gesture`: the page's values are removed. */
  async function provenRequest(args: Params, cause: Cause, host: Host | undefined): Promise<Params> {
    const { _view: _, _initiator: __, _gesture: ___, ...own } = args;
    const full = await proven(own);
    // Our own host attests gestures itself.
    const gesture = host?.ours ? undefined : cause.gesture();
    return {
      ...full,
      ...((cause.model || activity.active()) && { _initiator: "model" }),
      ...(gesture !== undefined && { _gesture: gesture }),
    };
  }

  async function knownHost(): Promise<Host> {
    const found = await handshake.host();
    if (!found) throw new NoHost("no MCP Apps host answered");
    if (!handshake.can("serverTools")) throw new NoHost(NO_CALLS);
    return found;
  }

  /** Sends a call. One that a restarted gateway refused has not run: it is sent again, once the view is attached again. */
  async function deliver(name: string, args: Params, options: Options<Params>): Promise<Params> {
    const result = await requests.send("tools/call", { name, arguments: args }, options);
    return moved(result) ? deliver(name, { ...args, _view: await proof.sign(args["_view"]) }, options) : result;
  }

  async function call(name: string, args: Promise<Params>, signal?: AbortSignal, onProgress?: (params: Params) => void): Promise<Params> {
    return deliver(name, await unlessAborted(args, signal), { signal, onProgress }).catch((error: unknown) => {
      // For another tool, this error may only mean that the server does not have it.
      if (name !== TOOL || !(error instanceof PeerError) || error.code !== METHOD_NOT_FOUND) throw error;
      handshake.withdrew("serverTools");
      throw new NoHost(NO_CALLS);
    });
  }

  /** The answer in place of a failure because `args` were too large: many hosts report only a failed call. */
  function refused(args: Params, failure: unknown): Params | undefined {
    const size = JSON.stringify(args).length;
    if (size <= proof.room() && !(size > LARGE && TOO_LARGE.test(`${failure}${JSON.stringify(failure)}`))) return undefined;
    const structuredContent = problem(413, "request-too-large", "This is larger than what can be sent from here.");
    return { content: [], structuredContent };
  }

  async function depart(message: Request): Promise<void> {
    const args = objectOf(message.params?.["arguments"]);
    departing.add(message.id);
    const cause = causeNow();
    const host = await handshake.host();
    const full = await provenRequest(args, cause, host);
    if (!departing.delete(message.id)) return;
    away.set(message.id, full);
    departs();
    toHost({ ...message, params: { ...message.params, arguments: full } });
  }

  async function hold(id: Id, result: Params, controller: AbortController): Promise<void> {
    let message: Answer;
    try {
      message = answer(id, await settle(result, ends, controller.signal));
    } catch (error) {
      message = failure(id, error instanceof PeerError ? error.code : -32000, `${error}`);
    }
    if (held.delete(id)) toPage(message);
  }

  return {
    async http(read, signal, onProgress) {
      const cause = causeNow();
      const host = await knownHost();
      let args: Params = {};
      const send = async (): Promise<Params> => {
        args = await read();
        const full = await provenRequest(args, cause, host);
        flying.add(full);
        departs();
        return call(TOOL, Promise.resolve(full), signal, onProgress).finally(() => flying.delete(full));
      };
      const paced = (): Promise<Params> =>
        new Promise((go) => {
          void (calling.active() ? beside : brisk)(() => {
            const sent = send();
            go(sent);
            return Promise.race<unknown>([sent.catch(() => undefined), new Promise<void>((over) => pending.later(over, SLOW))]);
          });
        });
      let result = await unlessAborted(gate(paced), signal).catch((error: unknown) => {
        const known = signal?.aborted || error instanceof NoHost ? undefined : refused(args, error);
        if (known) return known;
        throw error;
      });
      if (result["isError"]) result = refused(args, result) ?? result;
      if (objectOf(answerOf(result)?.["headers"])["gateway-calls"]) hurry();
      return settle(result, ends, signal);
    },
    async own(name, args, signal, timeout) {
      const full = await proven(args);
      if (!full["_view"]) throw new Unproven();
      return deliver(name, full, { signal, timeout });
    },
    tool: (name, args) => call(name, name === STORAGE ? proven(args) : Promise.resolve(args)),
    flying,
    bulk: async () => !!(await handshake.host())?.ours,
    stream,
    fromPage: (message) => void depart(message),
    cancelled(id) {
      const controller = held.get(id);
      held.delete(id);
      controller?.abort();
      return departing.delete(id) || controller !== undefined;
    },
    read(message) {
      const { id, result, error } = message;
      const args = away.get(id);
      if (!args) return message;
      away.delete(id);
      // The page's own client reports this failure; its next call succeeds.
      if (moved(result)) void proof.sign(args["_view"]);
      const known = error || result?.["isError"] ? refused(args, error ?? result) : undefined;
      if (known) return answer(id, known);
      if (!result || !approvalOf(result)) return message;
      const controller = new AbortController();
      held.set(id, controller);
      void hold(id, result, controller);
      return undefined;
    },
  };
}
