/** The documents of a frame on an origin of its own: each address works once, so a page that reloads needs another. */

/** Milliseconds in which the first message of a document follows its `load` event at the latest, if it did not come before. */
const GRACE = 500;
/** Loads in a row without the gateway's document, after which the proxy gives up. */
const MAX_FAILURES = 3;

export interface DocumentEvents {
  /** The gateway's document was loaded. */
  onDocument(): void;
  /** Something else was loaded in its place, at the same origin: the page reloaded, or went to another path. */
  onOther(): void;
  /** The gateway's document cannot be loaded. */
  onFailure(): void;
}

export class Documents {
  private readonly events: DocumentEvents;
  private spoke = false;
  private failures = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  /** Whether the host was asked for another address. */
  wanted = false;

  constructor(events: DocumentEvents) {
    this.events = events;
  }

  /** The frame navigates to a new address. */
  expect(): void {
    this.wanted = this.spoke = false;
    clearTimeout(this.timer);
  }

  /** The document in the frame says that it is the gateway's. */
  announced(): void {
    this.spoke = true;
    if (this.timer !== undefined) this.loaded();
  }

  /** Something was loaded in the frame. */
  loaded(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    if (this.spoke) {
      this.spoke = false;
      this.failures = 0;
      this.events.onDocument();
    } else this.timer = setTimeout(() => this.replace(), GRACE);
  }

  private replace(): void {
    this.timer = undefined;
    this.failures += 1;
    if (this.failures > MAX_FAILURES) return this.events.onFailure();
    this.wanted = true;
    this.events.onOther();
  }
}
