/** The history of the pages in the shell: one entry of the browser's own history for each page, none of which it can show. */

const KEY = "webmcp-gateway-page";
/** Milliseconds after which a host is known to have a history that the shell cannot go through. */
const TRAVERSAL = 500;

export interface Entry {
  url: string;
  /** Whether the page was the answer to a form that changes something. */
  posted: boolean;
}

export interface PageHistory {
  current(): Entry | undefined;
  push(entry: Entry): void;
  /** Puts `entry` in the place of the current one. */
  replace(entry: Entry): void;
  go(steps: number): void;
  /** The page itself has gone through its own entries. */
  moved(url: string): void;
  /** Forgets all. */
  clear(): void;
}

/** `show` is called with the entry to which a person, or a page, went. */
export function createHistory(show: (entry: Entry) => void): PageHistory {
  let entries: Entry[] = [];
  let at = -1;
  let moves = 0;

  function enter(to: number): void {
    const entry = entries[to];
    if (!entry || to === at) return;
    moves++;
    at = to;
    show(entry);
  }

  addEventListener("popstate", ({ state }) => {
    const to = (state as { [KEY]?: unknown } | null)?.[KEY];
    if (typeof to === "number") enter(to);
  });

  return {
    current: () => entries[at],
    push(entry) {
      entries = [...entries.slice(0, at + 1), entry];
      at = entries.length - 1;
      if (at) history.pushState({ [KEY]: at }, "");
      else history.replaceState({ [KEY]: at }, "");
    },
    replace(entry) {
      if (at < 0) return this.push(entry);
      entries[at] = entry;
    },
    go(steps) {
      const to = at + steps;
      const seen = moves;
      history.go(steps);
      // Some hosts show the view where it has no part in the history.
      setTimeout(() => steps && moves === seen && enter(to), TRAVERSAL);
    },
    moved(url) {
      moves++;
      if (entries[at]) entries[at] = { url, posted: false };
    },
    clear() {
      entries = [];
      at = -1;
    },
  };
}
