/** Relay: in hosts that support only `tools/call`, the view polls the gateway for the model's calls. */

import { UnprovenError } from "../http/calls";
import { coalesce } from "../coalesce";
import { isObject, request, type Message, type Params } from "./json-rpc";
import type { Registry } from "../tools/registry";
import { answerOf, toolFailure } from "../tools/results";
import { createToolChannel } from "../tools/tool-channel";

/** The wait of a long poll, in milliseconds, if it delays no other call. */
const LONG_POLL = 20000;
/** The wait of a poll that detects whether the host runs calls concurrently; it is made a few times. */
const PROBE_WAIT = 30;
const PROBE_DELAY = 5;
const PROBES = 3;
/** Between two polls of a host that runs one call at a time: while a model is active, later, and in a hidden tab. */
const ACTIVE_PAUSE = 20;
const IDLE_PAUSE = 250;
const HIDDEN_PAUSE = 1000;
const ACTIVE_PERIOD = 60000;
/** In such a host, the page's own requests have priority: a poll waits until there was none for so long. */
const QUIET_PERIOD = 100;
/** The pause for a host that answers long polls at once. */
const PAUSE = 500;
const MAX_PAUSE = 15000;
const RESULT_TRIES = 4;
/** Milliseconds after its end at which an unanswered poll counts as lost. */
const POLL_TIMEOUT = 30000;
/** Between two lists for the gateway, which takes one a second. */
const LIST_PAUSE = 200;
/** A page that was to be unloaded, and exists after so long, stays. */
const UNLOAD_PERIOD = 1000;

export interface Relay {
  /** Begins, or continues. */
  start(): void;
  /** The offered tools may have changed. */
  notifyChange(): void;
  /** The gateway knows this view under a new key, and nothing of what was sent under the older one. */
  restart(): void;
  /** Calls wait: the next poll is due at once. */
  hurry(): void;
  /** The page sends a request itself: no poll that could delay it begins for a while. */
  giveWay(): void;
  /** The page is being unloaded. */
  unload(): void;
  close(): void;
}

interface RelayDependencies {
  /** Calls a tool of the gateway with a proof. Rejects with `UnprovenError` without one. */
  callTool(name: string, args: Params, signal?: AbortSignal, timeout?: number): Promise<Params>;
  isOffered(tool: string): boolean;
  /** The page's own requests that were sent to the host and not answered. */
  inFlight: ReadonlySet<unknown>;
  later(run: () => void, milliseconds: number): number;
  now(): number;
  isHidden(): boolean;
}

export function createRelay(registry: Registry, { callTool, isOffered, inFlight, later, now, isHidden }: RelayDependencies): Relay {
  let started = false;
  let open = false;
  let running = false;
  let hasPolled = false;
  let hostIsConcurrent = false;
  let probes = PROBES;
  let quietUntil = 0;
  let lastEvent = 0;
  let sentList = "[]";
  let lastActive = -Infinity;
  let unloadingUntil = 0;
  let wake = (): void => undefined;
  let polling = new AbortController();
  const tools = createToolChannel(registry, { send: deliver, isOffered, whenSettled: () => undefined, beginCall: () => () => undefined });
  const listTools = (): string => JSON.stringify(tools.definitions());

  const pause = (milliseconds: number): Promise<void> => new Promise((resolve) => later((wake = resolve), milliseconds));

  function deliver({ id, result, error }: Message): void {
    if (id === undefined) return;
    const send = (given: Params, left: number): Promise<unknown> =>
      callTool("webmcp_result", { call: id, result: given }).catch((why: unknown) => {
        // The last try omits a result that may be too large for the host or the gateway.
        const next = left > 1 ? given : toolFailure(`The tool has run, but its answer of ${JSON.stringify(given).length} characters was not taken: ${why}`);
        return left && pauseApart(PAUSE).then(() => send(next, left - 1));
      });
    void send(result ?? toolFailure(error?.message), RESULT_TRIES);
  }
  const pauseApart = (milliseconds: number): Promise<void> => new Promise((resolve) => later(resolve, milliseconds));

  function receiveEvent({ number, call, tool, arguments: args }: Params): void {
    // Events are repeated after losses, so that some arrive twice.
    if (typeof number !== "number" || number <= lastEvent || typeof call !== "string") return;
    lastEvent = number;
    lastActive = now();
    if (typeof tool !== "string") tools.cancel(call);
    else tools.receive(request(call, "tools/call", { name: tool, arguments: args }));
  }

  async function poll(wait: number): Promise<void> {
    hasPolled = true;
    const list = listTools();
    const before = [...inFlight];
    const { signal } = polling;
    // The list counts as sent from now on: the answer may take long, and a change back must not wait for it.
    const result = await callTool("webmcp_poll", { after: lastEvent, wait, hidden: isHidden(), ...(list !== sentList && { tools: JSON.parse((sentList = list)) as unknown }) }, signal, wait + POLL_TIMEOUT);
    const given = answerOf(result);
    if (given?.["reason"] === "view-unproven") throw new UnprovenError();
    if (result["isError"] || !given || signal.aborted) throw new Error();
    // It overtook a request of the page, or was overtaken by another poll: the host runs calls concurrently.
    hostIsConcurrent ||= !!given["overtaken"] || before.some((one) => inFlight.has(one));
    const events = given["events"];
    if (Array.isArray(events)) for (const event of events) if (isObject(event)) receiveEvent(event);
  }

  async function pollRound(): Promise<void> {
    const began = now();
    const seen = lastEvent;
    if (hostIsConcurrent) {
      await poll(LONG_POLL);
      if (lastEvent === seen && now() - began < PAUSE) await pause(PAUSE);
      return;
    }
    // The answers to the page's own requests report waiting calls.
    while (quietUntil >= 0 && (inFlight.size || now() < quietUntil) && now() - began < HIDDEN_PAUSE) await pause(ACTIVE_PAUSE);
    if (!inFlight.size && probes-- > 0) await Promise.all([poll(PROBE_WAIT), pauseApart(PROBE_DELAY).then(() => poll(0))]);
    else await poll(0);
    await pause(isHidden() ? HIDDEN_PAUSE : now() - lastActive < ACTIVE_PERIOD ? ACTIVE_PAUSE : IDLE_PAUSE);
  }

  async function run(): Promise<void> {
    running = true;
    lastActive = now();
    for (let failures = 0; open && (listTools() !== "[]" || sentList !== "[]"); ) {
      try {
        if (now() < unloadingUntil) await pause(UNLOAD_PERIOD);
        await pollRound();
        failures = 0;
      } catch (error) {
        sentList = "";
        if (error instanceof UnprovenError) open = false;
        else if (polling.signal.aborted) polling = new AbortController();
        else await pause(Math.min(PAUSE * 2 ** failures++, MAX_PAUSE));
      }
    }
    running = false;
  }

  function ensureRunning(): void {
    if (open && !running) void run();
  }

  function pollNow(): void {
    polling.abort();
    wake();
    ensureRunning();
  }

  function restart(): void {
    lastEvent = 0;
    sentList = "[]";
    tools.reset();
    open = started;
    pollNow();
  }

  function leave(word: string): void {
    // Even without tools now: a view that has polled is known.
    if (!open || !hasPolled) return;
    callTool("webmcp_poll", { [word]: true }).catch(() => undefined);
    restart();
  }

  const pollSoon = coalesce(pollNow, (run) => later(run, LIST_PAUSE));

  return {
    start() {
      started = open = true;
      ensureRunning();
    },
    notifyChange() {
      if (open && listTools() !== sentList) pollSoon();
    },
    restart,
    hurry() {
      quietUntil = -1;
      wake();
    },
    // A running poll continues: its answer would arrive in any case, and an abort would lose its calls until the next.
    giveWay: () => void (quietUntil = now() + QUIET_PERIOD),
    unload() {
      unloadingUntil = now() + UNLOAD_PERIOD;
      leave("leaving");
    },
    close() {
      started = false;
      leave("closing");
    },
  };
}
