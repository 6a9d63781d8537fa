/** Relay: in hosts that support only `tools/call`, the view polls the gateway for the model's calls. */

import { Unproven } from "../http/calls";
import { coalesced } from "../coalesced";
import { isObject, request, type Message, type Params } from "./json-rpc";
import type { Registry } from "../tools/registry";
import { answerOf, toolFailure } from "../tools/results";
import { createToolChannel } from "../tools/tool-channel";

/** The wait of a long poll, in milliseconds, if it delays no other call. */
const LONG = 20000;
/** The wait of a poll that detects whether the host runs calls concurrently; it is made a few times. */
const PROBE = 30;
const BEHIND = 5;
const PROBES = 3;
/** Between two polls of a host that runs one call at a time: while a model is active, later, and in a hidden tab. */
const BRISK = 20;
const IDLE = 250;
const HIDDEN = 1000;
const AT_WORK = 60000;
/** In such a host, the page's own requests have priority: a poll waits until there was none for so long. */
const CALM = 100;
/** The pause for a host that answers long polls at once. */
const PAUSE = 500;
const LONGEST_PAUSE = 15000;
const RESULT_TRIES = 4;
/** Milliseconds after its end at which an unanswered poll counts as lost. */
const SILENCE = 30000;
/** Between two lists for the gateway, which takes one a second. */
const LIST_PAUSE = 200;
/** A page that was to be unloaded, and exists after so long, stays. */
const GOING = 1000;

export interface Relay {
  /** Begins, or continues. */
  start(): void;
  /** The offered tools may have changed. */
  changed(): void;
  /** The gateway knows this view under a new key, and nothing of what was sent under the older one. */
  renewed(): void;
  /** Calls wait: the next poll is due at once. */
  hurry(): void;
  /** The page sends a request itself: no poll that could delay it begins for a while. */
  giveWay(): void;
  /** The page is being unloaded. */
  left(): void;
  close(): void;
}

interface Ends {
  /** Calls a tool of the gateway with a proof. Rejects with `Unproven` without one. */
  ask(name: string, args: Params, signal?: AbortSignal, timeout?: number): Promise<Params>;
  offered(tool: string): boolean;
  /** The page's own requests that were sent to the host and not answered. */
  flying: ReadonlySet<unknown>;
  later(run: () => void, milliseconds: number): number;
  now(): number;
  hidden(): boolean;
}

export function createRelay(registry: Registry, { ask, offered, flying, later, now, hidden }: Ends): Relay {
  let started = false;
  let open = false;
  let running = false;
  let known = false;
  let parallel = false;
  let probes = PROBES;
  let calm = 0;
  let after = 0;
  let told = "[]";
  let lively = -Infinity;
  let resting = 0;
  let wake = (): void => undefined;
  let polling = new AbortController();
  const tools = createToolChannel(registry, { send: deliver, offered, settled: () => undefined, began: () => () => undefined });
  const listed = (): string => JSON.stringify(tools.definitions());

  const pause = (milliseconds: number): Promise<void> =>
    new Promise((resolve) => {
      wake = resolve;
      later(resolve, milliseconds);
    });

  function deliver({ id, result, error }: Message): void {
    if (id === undefined) return;
    const send = (given: Params, left: number): Promise<unknown> =>
      ask("webmcp_result", { call: id, result: given }).catch((why: unknown) => {
        // The last try omits a result that may be too large for the host or the gateway.
        const next = left > 1 ? given : toolFailure(`The tool has run, but its answer of ${JSON.stringify(given).length} characters was not taken: ${why}`);
        return left && pauseApart(PAUSE).then(() => send(next, left - 1));
      });
    void send(result ?? toolFailure(error?.message), RESULT_TRIES);
  }
  const pauseApart = (milliseconds: number): Promise<void> => new Promise((resolve) => later(resolve, milliseconds));

  function take({ number, call, tool, arguments: args }: Params): void {
    // Events are repeated after losses, so that some arrive twice.
    if (typeof number !== "number" || number <= after || typeof call !== "string") return;
    after = number;
    lively = now();
    if (typeof tool !== "string") tools.cancel(call);
    else tools.receive(request(call, "tools/call", { name: tool, arguments: args }));
  }

  async function poll(wait: number): Promise<void> {
    known = true;
    const list = listed();
    const before = [...flying];
    const { signal } = polling;
    // The list counts as sent from now on: the answer may take long, and a change back must not wait for it.
    const result = await ask("webmcp_poll", { after, wait, hidden: hidden(), ...(list !== told && { tools: JSON.parse((told = list)) as unknown }) }, signal, wait + SILENCE);
    const given = answerOf(result);
    if (given?.["reason"] === "view-unproven") throw new Unproven();
    if (result["isError"] || !given || signal.aborted) throw new Error();
    // It overtook a request of the page, or was overtaken by another poll: the host runs calls concurrently.
    parallel ||= !!given["overtaken"] || before.some((one) => flying.has(one));
    const events = given["events"];
    if (Array.isArray(events)) for (const event of events) if (isObject(event)) take(event);
  }

  async function round(): Promise<void> {
    const began = now();
    const seen = after;
    if (parallel) {
      await poll(LONG);
      if (after === seen && now() - began < PAUSE) await pause(PAUSE);
      return;
    }
    // The answers to the page's own requests report waiting calls.
    while (calm >= 0 && (flying.size || now() < calm) && now() - began < HIDDEN) await pause(BRISK);
    if (!flying.size && probes-- > 0) await Promise.all([poll(PROBE), pauseApart(BEHIND).then(() => poll(0))]);
    else await poll(0);
    await pause(hidden() ? HIDDEN : now() - lively < AT_WORK ? BRISK : IDLE);
  }

  async function run(): Promise<void> {
    running = true;
    lively = now();
    for (let failures = 0; open && (listed() !== "[]" || told !== "[]"); ) {
      try {
        if (now() < resting) await pause(GOING);
        await round();
        failures = 0;
      } catch (error) {
        told = "";
        if (error instanceof Unproven) open = false;
        else if (polling.signal.aborted) polling = new AbortController();
        else await pause(Math.min(PAUSE * 2 ** failures++, LONGEST_PAUSE));
      }
    }
    running = false;
  }

  function go(): void {
    if (open && !running) void run();
  }

  function again(): void {
    polling.abort();
    wake();
    go();
  }

  function renewed(): void {
    after = 0;
    told = "[]";
    tools.reset();
    open = started;
    again();
  }

  function leave(word: string): void {
    // Even without tools now: a view that has polled is known.
    if (!open || !known) return;
    ask("webmcp_poll", { [word]: true }).catch(() => undefined);
    renewed();
  }

  const againLater = coalesced(again, (run) => later(run, LIST_PAUSE));

  return {
    start() {
      started = open = true;
      go();
    },
    changed() {
      if (open && listed() !== told) againLater();
    },
    renewed,
    hurry() {
      calm = -1;
      wake();
    },
    // A running poll continues: its answer would arrive in any case, and an abort would lose its calls until the next.
    giveWay: () => void (calm = now() + CALM),
    left() {
      resting = now() + GOING;
      leave("leaving");
    },
    close() {
      started = false;
      leave("closing");
    },
  };
}
