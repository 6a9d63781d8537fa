/** Detects whether the app's document is still in its frame, which no page around it can inspect. */

/** Milliseconds in which a document that replaced another sends a message, if it is the app's. */
const ANSWER_TIMEOUT = 5000;

export class Presence {
  private readonly ping: () => void;
  private readonly onLeave: () => void;
  private readonly onReturn: (() => void) | undefined;
  private documents = 0;
  private spoke = false;
  private kept = false;
  private silence: ReturnType<typeof setTimeout> | undefined;

  /** `ping` makes the document of an app answer; `onLeave` is called when it is gone, `onReturn` when a new instance replaced it. */
  constructor(ask: () => void, left: () => void, again?: () => void) {
    this.ping = ask;
    this.onLeave = left;
    this.onReturn = again;
  }

  /** The frame was blocked from a URL: it loads the browser's error page next. */
  block(): void {
    this.kept = true;
  }

  /** Whether it was blocked. */
  get isBlocked(): boolean {
    return this.kept;
  }

  /** A document was loaded: the app's first, the same again, or another. A page that never sent a message need not. */
  documentLoaded(): void {
    this.documents += 1;
    clearTimeout(this.silence);
    if (this.kept) return this.onLeave();
    if (this.documents === 1 || !this.spoke) return;
    this.silence = setTimeout(this.onLeave, ANSWER_TIMEOUT);
    this.ping();
  }

  /** The document in the frame sent a message. */
  messageReceived(): void {
    this.spoke = true;
    if (this.silence === undefined) return;
    clearTimeout(this.silence);
    this.silence = undefined;
    this.onReturn?.();
  }
}
