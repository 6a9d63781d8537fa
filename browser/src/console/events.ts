/** The gateway's event stream: reconnects after every loss, with growing pauses up to three seconds. */
import { attempt } from "../view/attempt";
import { ApiError, problemText } from "./api";
import { isObject } from "./json";
import { events, type ServerEvent } from "./sse";
import type { AppInfo, Connection, Grant, Line, LiveView, Problem, Question } from "./types";

export interface Listener {
  approvals(questions: Question[]): void;
  views(views: LiveView[]): void;
  problems(problems: Problem[]): void;
  apps(apps: AppInfo[]): void;
  grants(grants: Grant[]): void;
  record(line: Line): void;
  connection(state: Connection, detail: string): void;
  /** The person is not (or no longer) authenticated. */
  onUnknown(): void;
}

/** Milliseconds of silence after which a stream whose server sends pings is closed. */
const SILENCE_LIMIT = 45_000;
const PAUSES = [300, 1000, 2000, 3000];

/** The dependencies of following the stream. */
export interface Network {
  fetch: typeof fetch;
  pause(milliseconds: number, signal: AbortSignal): Promise<void>;
}

const BROWSER: Network = { fetch: (input, init) => fetch(input, init), pause };

/** Follow the stream at `url` until `signal` aborts. */
export async function follow(url: string, listener: Listener, signal: AbortSignal, around = BROWSER): Promise<void> {
  let failures = 0;
  while (!signal.aborted) {
    const problem = await readStream(url, listener, signal, around.fetch, () => (failures = 0));
    if (signal.aborted) return;
    listener.connection("lost", problem);
    await around.pause(PAUSES[Math.min(failures++, PAUSES.length - 1)] ?? 3000, signal);
  }
}

/** One connection, from opening to its end; returns the reason for the end in words. */
async function readStream(
  url: string,
  listener: Listener,
  signal: AbortSignal,
  get: typeof fetch,
  opened: () => void,
): Promise<string> {
  const silence = new SilenceTimer(signal);
  try {
    const response = await get(url, {
      headers: { accept: "text/event-stream" },
      cache: "no-store",
      signal: silence.signal,
    });
    if (response.status === 401) listener.onUnknown();
    if (!response.ok) throw new ApiError(response.status, await problemText(response));
    opened();
    listener.connection("open", "");
    for await (const event of events(response, () => silence.ping())) {
      silence.reset();
      dispatchEvent(event, listener);
    }
    return "The gateway closed the connection.";
  } catch (error) {
    return error instanceof ApiError ? error.message : "The gateway does not answer.";
  } finally {
    silence.end();
  }
}

function dispatchEvent({ event, data }: ServerEvent, listener: Listener): void {
  const value = attempt((): unknown => JSON.parse(data));
  if (event === "approvals" && Array.isArray(value)) listener.approvals(value as Question[]);
  else if (event === "views" && Array.isArray(value)) listener.views(value as LiveView[]);
  else if (event === "problems" && Array.isArray(value)) listener.problems(value as Problem[]);
  else if (event === "apps" && Array.isArray(value)) listener.apps(value as AppInfo[]);
  else if (event === "grants" && Array.isArray(value)) listener.grants(value as Grant[]);
  else if (event === "record" && isLine(value)) listener.record(value);
}

function isLine(value: unknown): value is Line & { [key: string]: never } {
  return (
    isObject(value) && typeof value["id"] === "string" && typeof value["time"] === "number" && isObject(value["fields"])
  );
}

/** Aborts when pings stop; inactive until a first ping was received. */
class SilenceTimer {
  private readonly controller = new AbortController();
  private readonly stop: () => void;
  private readonly outer: AbortSignal;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private pings = false;

  constructor(outer: AbortSignal) {
    this.outer = outer;
    this.stop = () => this.controller.abort();
    outer.addEventListener("abort", this.stop);
  }

  get signal(): AbortSignal {
    return this.controller.signal;
  }

  ping(): void {
    this.pings = true;
    this.reset();
  }

  reset(): void {
    if (!this.pings) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(this.stop, SILENCE_LIMIT);
  }

  end(): void {
    clearTimeout(this.timer);
    this.outer.removeEventListener("abort", this.stop);
  }
}

function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(done, milliseconds);
    function done(): void {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      window.removeEventListener("online", done);
      resolve();
    }
    signal.addEventListener("abort", done);
    window.addEventListener("online", done);
  });
}
