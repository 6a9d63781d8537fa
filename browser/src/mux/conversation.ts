/** One channel of one view: its calls in flight, and which messages pass. */
import type { Channel } from "./frames";
import { BUSY, failure, NO_METHOD, readMessage, type Id } from "./jsonrpc";
import { IN_FLIGHT_LIMIT, METHODS, other, type Role } from "./rules";
import type { JsonObject } from "./text";

export type Verdict =
  | { verdict: "passed" }
  /** The message is dropped without notice. */
  | { verdict: "dropped" }
  /** The call ends here with an error answer for its sender. */
  | { verdict: "answered"; message: JsonObject }
  /** The message ends here; no answer on the channel could inform its sender. */
  | { verdict: "refused"; code: string; detail: string };

const PASSED: Verdict = { verdict: "passed" };
const DROPPED: Verdict = { verdict: "dropped" };

/** The calls in flight between the two ends of one channel of one view. */
export class Conversation {
  private readonly channel: Channel;
  private readonly calls: Record<Role, Set<Id>> = { host: new Set(), gateway: new Set() };

  constructor(channel: Channel) {
    this.channel = channel;
  }

  /** The verdict on a message of `speaker`. Throws MuxError `bad-message`. */
  judge(speaker: Role, message: JsonObject): Verdict {
    const read = readMessage(message);
    switch (read.kind) {
      case "call":
        return this.call(speaker, read.id, read.method);
      case "notice":
        return this.notice(speaker, read.method, read.cancels);
      case "answer":
        return read.id !== null && this.giveUp(other(speaker), read.id) ? PASSED : DROPPED;
    }
  }

  /** The calls of `role` that have no answer, oldest first. */
  waiting(role: Role): Id[] {
    return [...this.calls[role]];
  }

  private call(speaker: Role, id: Id, method: string): Verdict {
    const calls = this.calls[speaker];
    // An answer to a second call of this id would be taken for that of the first.
    if (calls.has(id)) return { verdict: "refused", code: "duplicate-id", detail: "a call with this id is in flight" };
    if (!METHODS[this.channel][speaker].calls.has(method)) {
      const text = `${method.slice(0, 100)} is no method of the ${this.channel} channel in this direction`;
      return { verdict: "answered", message: failure(id, NO_METHOD, text) };
    }
    if (calls.size >= IN_FLIGHT_LIMIT) return { verdict: "answered", message: failure(id, BUSY, "busy") };
    calls.add(id);
    return PASSED;
  }

  private notice(speaker: Role, method: string, cancels: Id | null): Verdict {
    if (!METHODS[this.channel][speaker].notices.has(method)) return DROPPED;
    if (method !== "notifications/cancelled") return PASSED;
    // MCP: a cancelled call is not answered, so it is no longer in flight.
    return cancels !== null && this.giveUp(speaker, cancels) ? PASSED : DROPPED;
  }

  private giveUp(role: Role, call: Id): boolean {
    return this.calls[role].delete(call);
  }
}
