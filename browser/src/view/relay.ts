/** Relay: in hosts that know nothing but `tools/call`, the view asks the gateway for the model's calls. */

import { Unproven } from "./calls";
import { coalesced } from "./coalesced";
import { isObject, request, type Message, type Params } from "./json-rpc";
import type { Registry } from "./registry";
import { answerOf, toolFailure } from "./results";
import { createToolChannel } from "./tool-channel";

/** How long the gateway may wait with its answer to a poll, in milliseconds, where that holds up nothing else. */
const LONG = 20000;
/** How long a poll waits that finds out whether the host runs calls side by side; it is made a few times. */
const PROBE = 30;
const BEHIND = 5;
const PROBES = 3;
/** Between two polls of a host that runs one call at a time: while a model is at work, later, and in a hidden tab. */
const BRISK = 20;
const IDLE = 250;
const HIDDEN = 1000;
const AT_WORK = 60000;
/** There the page's own requests come first: a poll waits until none was made for so long. */
const CALM = 100;
/** A host that answers at once all the same is not asked without a pause. */
const PAUSE = 500;
const LONGEST_PAUSE = 15000;
const RESULT_TRIES = 4;
/** A host that has not answered a poll by then, in milliseconds after its end, never will. */
const SILENCE = 30000;
/** Between two lists that the gateway is told; it takes one a second. */
const LIST_PAUSE = 200;
/** A page that was to go, and is there after so long, stays. */
const GOING = 1000;

export interface Relay {
  /** Begins, or goes on. */
  start(): void;
  /** What is offered here may have changed. */
  changed(): void;
  /** The gateway knows this view under a new key, and nothing of what was told under the older one. */
  renewed(): void;
  /** Calls wait: the next poll need not. */
  hurry(): void;
  /** The page asks for something itself: no poll that could hold that up begins for a while. */
  giveWay(): void;
  /** The page goes, as far as it knows. */
  left(): void;
  close(): void;
}

interface Ends {
  /** Calls a tool of the gateway, proven. Rejects with `Unproven` where there is nothing to prove it with. */
  ask(name: string, args: Params, signal?: AbortSignal, timeout?: number): Promise<Params>;
  offered(tool: string): boolean;
  /** The page's own requests that the host has, and has not answered. */
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
  const tools = createToolChannel(registry, { send: deliver, offered, began: () => () => undefined });
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
        // At last without what may be too large for the host, or for the gateway.
        const next = left > 1 ? given : toolFailure(`The tool has run, but its answer of ${JSON.stringify(given).length} characters was not taken: ${why}`);
        return left && pauseApart(PAUSE).then(() => send(next, left - 1));
      });
    void send(result ?? toolFailure(error?.message), RESULT_TRIES);
  }
  const pauseApart = (milliseconds: number): Promise<void> => new Promise((resolve) => later(resolve, milliseconds));

  function take({ number, call, tool, arguments: args }: Params): void {
    // What a host lost is told again, and what it did not lose, too.
    if (typeof number !== "number" || number <= after || typeof call !== "string") return;
    after = number;
    lively = now();
    if (typeof tool !== "string") tools.cancel(call);
    else tools.call(request(call, "tools/call", { name: tool, arguments: args }));
  }

  async function poll(wait: number): Promise<void> {
    known = true;
    const list = listed();
    const before = [...flying];
    const { signal } = polling;
    // The list counts as told from now on: the answer may take long, and a change back must not wait for it.
    const result = await ask("webmcp_poll", { after, wait, hidden: hidden(), ...(list !== told && { tools: JSON.parse((told = list)) as unknown }) }, signal, wait + SILENCE);
    const given = answerOf(result);
    if (given?.["reason"] === "view-unproven") throw new Unproven();
    if (result["isError"] || !given || signal.aborted) throw new Error();
    // It overtook a request of the page, or another poll it: then the host runs calls side by side.
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
    // The answers to the page's own requests tell of calls that wait.
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
    // Its tools may be gone: whoever has asked for calls is known.
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
    // One that is under way goes on: its answer would come all the same, and the calls in it would be lost until the next.
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
