/** One end of the bridge: text in, events out; frames in, text out. */
import { Conversation, type Verdict } from "./conversation";
import { MuxError } from "./errors";
import { CHANNELS, decode, encode, type Frame, type MessageFrame } from "./frames";
import { BAD_MESSAGE, BUSY, failure, has, idOf, INTERNAL, type Id } from "./jsonrpc";
import { Progress } from "./progress";
import { other, type Role } from "./rules";
import { isDeep, type JsonObject } from "./text";

/**
 * The state of one end of a connection; the same rules apply to received and sent frames.
 *
 * `dropped` counts silently dropped frames: late, refused, or an answer to no call.
 */
export class Connection {
  dropped = 0;
  private readonly role: Role;
  private readonly progress = new Progress();
  private readonly conversations = new Map<string, Conversation>();
  private output: string[] = [];

  constructor(role: Role) {
    this.role = role;
  }

  /** Whether this connection is over. */
  get ended(): boolean {
    return this.progress.ended;
  }

  /** The views that are open on this connection, or were when it was lost. */
  get views(): string[] {
    return this.progress.openViews;
  }

  /** The events of a received frame. Throws MuxError: write the pending output, then disconnect. */
  receiveData(text: string): Frame[] {
    if (this.ended) throw new MuxError("ended", "this connection is over");
    try {
      return this.receive(decode(text));
    } catch (error) {
      if (!(error instanceof MuxError)) throw error;
      this.progress.ended = true;
      const { code, message } = error;
      if (this.role === "gateway") this.write({ type: "error", code, detail: message.slice(0, 1024) });
      throw error;
    }
  }

  /**
   * Add a frame to the pending output; returns the core's own answers to this end, such as `busy`.
   *
   * Throws MuxError for a frame that is out of turn; the connection stays usable.
   */
  send(frame: Frame): Frame[] {
    if (frame.type === "message") return this.sendMessage(frame);
    if (this.ended || !this.progress.advance(this.role, frame)) {
      this.dropped += 1;
      return [];
    }
    this.write(frame);
    return frame.type === "close" ? this.forget(frame.view) : [];
  }

  /** The texts to write, in order; each is returned once. */
  pendingOutput(): string[] {
    const output = this.output;
    this.output = [];
    return output;
  }

  /** The connection is lost: returns a `connection-lost` answer for every pending call of this end. */
  connectionLost(): Frame[] {
    this.progress.ended = true;
    return this.views.flatMap((view) => this.forget(view));
  }

  private receive(frame: Frame): Frame[] {
    if (!this.progress.advance(other(this.role), frame)) {
      this.dropped += 1;
      return [];
    }
    if (frame.type === "message") return this.receiveMessage(frame);
    return frame.type === "close" ? [...this.forget(frame.view), frame] : [frame];
  }

  private receiveMessage(frame: MessageFrame): Frame[] {
    const verdict = this.conversation(frame).judge(other(this.role), frame.message);
    for (const reply of this.replies(frame, verdict)) {
      if (reply.type === "message" || this.role === "gateway") this.write(reply);
    }
    return verdict.verdict === "passed" ? [frame] : [];
  }

  private sendMessage(frame: MessageFrame): Frame[] {
    if (this.ended || !this.progress.isOpen(frame.view)) return this.notSent(frame, BUSY, "connection-lost");
    try {
      const text = written(frame);
      const verdict = this.conversation(frame).judge(this.role, frame.message);
      if (verdict.verdict === "passed") this.output.push(text);
      return this.replies(frame, verdict);
    } catch (error) {
      if (!(error instanceof MuxError)) throw error;
      this.failAnswered(frame, error.code);
      return this.notSent(frame, BAD_MESSAGE, `cannot be sent: ${error.message}`);
    }
  }

  /** Replace an answer that cannot be sent by a failure, so that its call does not wait forever. */
  private failAnswered(frame: MessageFrame, code: string): void {
    const call = idOf(frame.message);
    if (call === null || has(frame.message, "method")) return;
    const message = failure(call, INTERNAL, `the answer cannot be sent: ${code}`);
    if (this.conversation(frame).judge(this.role, message).verdict === "passed") this.write({ ...frame, message });
  }

  private notSent(frame: MessageFrame, code: number, text: string): Frame[] {
    this.dropped += 1;
    const call = idOf(frame.message);
    return call === null || !has(frame.message, "method") ? [] : [{ ...frame, message: failure(call, code, text) }];
  }

  /** The answers to the sender of `frame`. */
  private replies(frame: MessageFrame, verdict: Verdict): Frame[] {
    switch (verdict.verdict) {
      case "passed":
        return [];
      case "answered":
        return [{ ...frame, message: verdict.message }];
      case "dropped":
        this.dropped += 1;
        return [];
      case "refused":
        this.dropped += 1;
        return [{ type: "error", code: verdict.code, detail: verdict.detail, view: frame.view }];
    }
  }

  private conversation(frame: MessageFrame): Conversation {
    const key = `${frame.view} ${frame.channel}`;
    const known = this.conversations.get(key) ?? new Conversation(frame.channel);
    this.conversations.set(key, known);
    return known;
  }

  /** Delete the state of a view; returns an error answer for each pending call of this end in it. */
  private forget(view: string): Frame[] {
    return CHANNELS.flatMap((channel) => {
      const calls = this.conversations.get(`${view} ${channel}`)?.waiting(this.role) ?? [];
      this.conversations.delete(`${view} ${channel}`);
      const lost = (call: Id): JsonObject => failure(call, BUSY, "connection-lost");
      return calls.map((call): Frame => ({ type: "message", view, channel, message: lost(call) }));
    });
  }

  private write(frame: Frame): void {
    this.output.push(encode(frame));
  }
}

/** The text of a message. Throws MuxError `bad-message` or `too-large`. */
function written(frame: MessageFrame): string {
  if (isDeep({ frame: frame.message })) throw new MuxError("bad-message", "nested deeper than 64 levels");
  return encode(frame);
}
