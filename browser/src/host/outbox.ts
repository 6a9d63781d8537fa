/** The write buffer of the bridge's socket: webmcp is sent at once, all else in order, and only while the socket buffers little. */
import { byteLength, encode, GESTURE_LIMIT, type Frame } from "../mux";

/** Bytes that the socket may buffer before more is written to it: this, or one frame, bounds a model's wait. */
export const MAX_BUFFERED = 256 * 1024;
/** Milliseconds between two checks of the socket's buffer; sockets fire no event when it drains. */
const DRAIN_INTERVAL = 10;

interface Waiting {
  frame: Frame;
  text: string;
  /** Bytes of the text. */
  size: number;
  since: number;
}

export class Outbox {
  private readonly socket: Pick<WebSocket, "send" | "bufferedAmount">;
  private readonly queue: Waiting[] = [];
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(socket: Pick<WebSocket, "send" | "bufferedAmount">) {
    this.socket = socket;
  }

  /** Send the text of `frame`; without a frame it is a short message of the core itself. */
  put(text: string, frame?: Frame): void {
    if (!frame || (frame.type === "message" && frame.channel === "webmcp")) return this.socket.send(text);
    this.queue.push({ frame, text, size: byteLength(text), since: performance.now() });
    this.drain();
  }

  /** Write to the socket what it can take now. */
  drain(most = MAX_BUFFERED): void {
    clearTimeout(this.timer);
    for (let first = this.queue[0]; first; first = this.queue[0]) {
      const held = this.socket.bufferedAmount;
      if (held > 0 && held + first.size > most) break;
      this.queue.shift();
      const text = currentText(first);
      if (text !== null) this.socket.send(text);
    }
    if (this.queue.length) this.timer = setTimeout(() => this.drain(), DRAIN_INTERVAL);
  }

  /** The connection is over, and nothing more can be sent. */
  clear(): void {
    clearTimeout(this.timer);
    this.queue.length = 0;
  }
}

/** A gesture is older now, and a model's call may have overtaken it; null if it is too old to be sent. */
function currentText({ frame, text, since }: Waiting): string | null {
  if (frame.type !== "gesture") return text;
  const age = frame.age + Math.round(performance.now() - since);
  return age > GESTURE_LIMIT ? null : encode({ ...frame, age });
}
