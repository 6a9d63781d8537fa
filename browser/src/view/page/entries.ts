/** Maps each entry of the frame's history to a URL of the app: the frame itself shows only the fragment. */

import { attempt } from "../attempt";

/** The key in the browser's state of an entry: its URL, beside the page's state. */
const ADDRESS = "webmcp-gateway";
/** The prefix of the window's name that carries data over a reload, the only storage of an opaque frame; and its event. */
export const CARRIED = `${ADDRESS}:`;
/** Further paths of the app are not stored. */
const MAX_PATHS = 1000;

interface SavedState {
  [ADDRESS]: string;
  state: unknown;
}

export interface Entries {
  /** The URL of the current entry. */
  here(): string;
  /** Whether the app has been at this path, so that its page serves it. */
  knows(path: string): boolean;
  /** Reloads the app at a URL, in place of the current entry: in opaque frames no browser can go back to an earlier one. */
  enter(url: string, state?: unknown): void;
}

const isSavedState = (state: unknown): state is SavedState => typeof (state as SavedState | null)?.[ADDRESS] === "string";
const stateIn = (state: unknown): unknown => (isSavedState(state) ? state.state : state);

export const withoutFragment = (url: string): string => url.replace(/#.*/s, "");

/** Whether a host wrote the page into the document of `frame`, which has the host's address, and cannot be reloaded. */
export function isWrittenByHost(frame: Location): boolean {
  const [loaded] = performance.getEntriesByType("navigation");
  return !!loaded && withoutFragment(loaded.name) !== withoutFragment(frame.href);
}

/** `url` with the fragment of `other`. */
export const withFragmentOf = (other: string, url: string): string => withoutFragment(url) + other.slice(withoutFragment(other).length);

/** The app's URL from before a reload; restores the window's name. */
function takeCarriedUrl(): string | undefined {
  if (!window.name.startsWith(CARRIED)) return undefined;
  const [url, name] = JSON.parse(window.name.slice(CARRIED.length)) as [string, string];
  window.name = name;
  return url;
}

/** Wraps a getter; `read` receives the object and the browser's value. */
export function wrapGetter<Owner extends object, Name extends keyof Owner & string>(
  owner: Owner,
  name: Name,
  read: (self: Owner, native: Owner[Name]) => unknown,
): void {
  const native = Object.getOwnPropertyDescriptor(owner, name)!;
  Object.defineProperty(owner, name, {
    ...native,
    get(this: Owner) {
      return read(this, native.get!.call(this) as Owner[Name]);
    },
  });
}

/**
 * `first` is the app's initial URL, `pages` are paths of other pages, `resolve` makes a URL absolute, and `changed`
 * receives the new URL.
 */
export function createEntries(frame: Location, first: string, pages: string[], resolve: (url: string) => URL, changed: (url: string) => void): Entries {
  const { prototype } = History;
  const changes = { pushState: prototype.pushState, replaceState: prototype.replaceState };
  const stateOf = Object.getOwnPropertyDescriptor(prototype, "state")!.get!;
  const { origin, pathname } = new URL(first);
  const paths = new Set([pathname, ...pages]);
  let url = first;
  let before = first;
  let name: string | undefined;

  function write(how: keyof typeof changes, owner: History, state: unknown, unused: string, to: string): void {
    const kept: SavedState = { [ADDRESS]: to, state };
    const shown = withFragmentOf(to, frame.href);
    // Some frames, such as those at `about:blank`, can show no fragment.
    if (shown !== frame.href && attempt(() => (changes[how].call(owner, kept, unused, shown), true))) return;
    changes[how].call(owner, kept, unused);
  }

  function here(): string {
    const state = stateOf.call(history) as unknown;
    // An entry that the page did not create belongs to a fragment.
    const now = isSavedState(state) ? state[ADDRESS] : withFragmentOf(frame.href, url);
    if (!isSavedState(state)) attempt(() => write("replaceState", history, state, "", now));
    if (now !== url) {
      before = url;
      url = now;
      if (paths.size < MAX_PATHS) paths.add(new URL(now).pathname);
      changed(now);
    }
    return now;
  }

  /** Validates a URL for a history entry. */
  function checkUrl(text: string, what: string): string {
    const from = here();
    if (text === "") return from;
    // Scripts that the packer has not seen use the frame's address.
    const to = withoutFragment(text) === withoutFragment(frame.href) ? new URL(withFragmentOf(text, from)) : attempt(() => resolve(text));
    if (to?.origin === origin && !to.username && !to.password) return to.href;
    const message = `Failed to execute '${what}' on 'History': A history state object with URL '${to?.href ?? text}' cannot be created in a document with origin '${origin}' and URL '${from}'.`;
    throw new DOMException(message, "SecurityError");
  }

  for (const how of ["pushState", "replaceState"] as const) {
    prototype[how] = function (state, unused, ...rest) {
      if (arguments.length < 2) return changes[how].apply(this, arguments as never);
      write(how, this, state, unused, checkUrl(String(rest[0] ?? ""), how));
      here();
    };
  }
  wrapGetter(prototype, "state", (_, state) => stateIn(state));
  wrapGetter(PopStateEvent.prototype, "state", (_, state) => stateIn(state));
  const toAppUrl = (native: string, now: string): string => (withoutFragment(native) === withoutFragment(frame.href) ? withFragmentOf(native, now) : native);
  wrapGetter(HashChangeEvent.prototype, "oldURL", (_, native) => toAppUrl(native, before));
  wrapGetter(HashChangeEvent.prototype, "newURL", (_, native) => toAppUrl(native, here()));
  // Before any listener of the page.
  for (const type of ["popstate", "hashchange"]) addEventListener(type, here, true);
  // Browsers fire no such event if more than the fragment differs.
  addEventListener("hashchange", (event) => {
    if (withoutFragment(before) !== withoutFragment(url)) event.stopImmediatePropagation();
  }, true);
  // A fragment at which the app begins is in no history entry of the frame.
  const begun = attempt(takeCarriedUrl) ?? (first.includes("#") && !frame.hash ? first : undefined);
  if (begun !== undefined && attempt(() => new URL(begun).origin) === origin) write("replaceState", history, null, "", begun);
  here();
  return {
    here,
    knows: (path) => paths.has(path),
    enter(to, state = null) {
      write("replaceState", history, state, "", to);
      // A page may navigate twice before it is unloaded.
      name ??= window.name;
      window.name = CARRIED + JSON.stringify([to, name]);
      dispatchEvent(new Event(CARRIED));
      frame.reload();
    },
  };
}
