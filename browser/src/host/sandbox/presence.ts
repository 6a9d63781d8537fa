/** Detects whether the app's document is still in its frame, which no page around it can inspect. */

/** Milliseconds in which a document that replaced another sends a message, if it is the app's. */
const SILENCE = 5000;

export class Presence {
  private readonly ask: () => void;
  private readonly left: () => void;
  private readonly again: (() => void) | undefined;
  private documents = 0;
  private spoke = false;
  private kept = false;
  private silence: ReturnType<typeof setTimeout> | undefined;

  /** `ask` makes an app's document answer; `left` is called when it is gone, `again` when a new instance replaced it. */
  constructor(ask: () => void, left: () => void, again?: () => void) {
    this.ask = ask;
    this.left = left;
    this.again = again;
  }

  /** The frame was blocked from a URL: it loads the browser's error page next. */
  blocked(): void {
    this.kept = true;
  }

  /** A document was loaded: the app's first, the same again, or another. A page that never sent a message need not. */
  loaded(): void {
    this.documents += 1;
    clearTimeout(this.silence);
    if (this.kept) return this.left();
    if (this.documents === 1 || !this.spoke) return;
    this.silence = setTimeout(this.left, SILENCE);
    this.ask();
  }

  /** The document in the frame sent a message. */
  heard(): void {
    this.spoke = true;
    if (this.silence === undefined) return;
    clearTimeout(this.silence);
    this.silence = undefined;
    this.again?.();
  }
}
