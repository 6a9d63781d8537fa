/** Whether the app's document is still in its frame, into which no page around it can look. */

/** Milliseconds in which a document that took the place of another says something, if it is the app's. */
const SILENCE = 5000;

export class Presence {
  private readonly ask: () => void;
  private readonly left: () => void;
  private readonly again: (() => void) | undefined;
  private documents = 0;
  private spoke = false;
  private kept = false;
  private silence: ReturnType<typeof setTimeout> | undefined;

  /** `ask` makes an app's document speak; `left` is called when there is none any more, `again` when one took its place. */
  constructor(ask: () => void, left: () => void, again?: () => void) {
    this.ask = ask;
    this.left = left;
    this.again = again;
  }

  /** The frame was kept from an address: what it loads next is the browser's own page about that. */
  blocked(): void {
    this.kept = true;
  }

  /** A document is there: the app's first, the same again, or another. A page that never spoke need not. */
  loaded(): void {
    this.documents += 1;
    clearTimeout(this.silence);
    if (this.kept) return this.left();
    if (this.documents === 1 || !this.spoke) return;
    this.silence = setTimeout(this.left, SILENCE);
    this.ask();
  }

  /** The document in the frame said something. */
  heard(): void {
    this.spoke = true;
    if (this.silence === undefined) return;
    clearTimeout(this.silence);
    this.silence = undefined;
    this.again?.();
  }
}
