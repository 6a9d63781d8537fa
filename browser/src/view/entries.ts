/** Which URL of the app each entry of the frame's history stands for: of its own it shows the fragment alone. */

import { attempt } from "./attempt";

/** In the browser's state of an entry: its URL, beside the state that the page gave it. */
const ADDRESS = "webmcp-gateway";
/** Before what the window's name carries over a reload, for which an opaque frame keeps nothing else; and the event of that. */
export const CARRIED = `${ADDRESS}:`;
/** More pages of the app than this are not remembered. */
const REMEMBERED = 1000;

interface Kept {
  [ADDRESS]: string;
  state: unknown;
}

export interface Entries {
  /** The URL of the entry that is shown. */
  here(): string;
  /** Whether the app was at this path: that it is one of its own page. */
  knows(path: string): boolean;
  /** Loads the app anew at a URL, in the place of the entry that is shown: in opaque frames no browser can go back to the one before. */
  enter(url: string, state?: unknown): void;
}

const isKept = (state: unknown): state is Kept => typeof (state as Kept | null)?.[ADDRESS] === "string";
const stateIn = (state: unknown): unknown => (isKept(state) ? state.state : state);

export const withoutFragment = (url: string): string => url.replace(/#.*/s, "");

/** Whether a host wrote the page into the document of `frame`, which has the host's address, and cannot be loaded anew. */
export function isWritten(frame: Location): boolean {
  const [loaded] = performance.getEntriesByType("navigation");
  return !!loaded && withoutFragment(loaded.name) !== withoutFragment(frame.href);
}

/** `url` with the fragment that `other` has. */
export const withFragmentOf = (other: string, url: string): string => withoutFragment(url) + other.slice(withoutFragment(other).length);

/** Where the page before this one said that the app is; the window's name is again what it was. */
function carried(): string | undefined {
  if (!window.name.startsWith(CARRIED)) return undefined;
  const [url, name] = JSON.parse(window.name.slice(CARRIED.length)) as [string, string];
  window.name = name;
  return url;
}

/** `read` is told the object and what the browser's own getter gives. */
export function reading<Owner extends object, Name extends keyof Owner & string>(
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

/** `first` is where the app begins, `pages` are paths of others, `resolve` makes a URL absolute, and `changed` is told where it is. */
export function keepEntries(frame: Location, first: string, pages: string[], resolve: (url: string) => URL, changed: (url: string) => void): Entries {
  const { prototype } = History;
  const changes = { pushState: prototype.pushState, replaceState: prototype.replaceState };
  const stateOf = Object.getOwnPropertyDescriptor(prototype, "state")!.get!;
  const { origin, pathname } = new URL(first);
  const paths = new Set([pathname, ...pages]);
  let url = first;
  let before = first;
  let name: string | undefined;

  function write(how: keyof typeof changes, owner: History, state: unknown, unused: string, to: string): void {
    const kept: Kept = { [ADDRESS]: to, state };
    const shown = withFragmentOf(to, frame.href);
    // Some frames, such as those at `about:blank`, can show no fragment.
    if (shown !== frame.href && attempt(() => (changes[how].call(owner, kept, unused, shown), true))) return;
    changes[how].call(owner, kept, unused);
  }

  function here(): string {
    const state = stateOf.call(history) as unknown;
    // An entry that the page did not make is one of a fragment.
    const now = isKept(state) ? state[ADDRESS] : withFragmentOf(frame.href, url);
    if (!isKept(state)) attempt(() => write("replaceState", history, state, "", now));
    if (now !== url) {
      before = url;
      url = now;
      if (paths.size < REMEMBERED) paths.add(new URL(now).pathname);
      changed(now);
    }
    return now;
  }

  /** What a page gives the history as an entry's URL. */
  function given(text: string, what: string): string {
    const from = here();
    if (text === "") return from;
    // Scripts that the packer has not seen read where the frame is.
    const to = withoutFragment(text) === withoutFragment(frame.href) ? new URL(withFragmentOf(text, from)) : attempt(() => resolve(text));
    if (to?.origin === origin && !to.username && !to.password) return to.href;
    const message = `Failed to execute '${what}' on 'History': A history state object with URL '${to?.href ?? text}' cannot be created in a document with origin '${origin}' and URL '${from}'.`;
    throw new DOMException(message, "SecurityError");
  }

  for (const how of ["pushState", "replaceState"] as const) {
    prototype[how] = function (state, unused, ...rest) {
      if (arguments.length < 2) return changes[how].apply(this, arguments as never);
      write(how, this, state, unused, given(String(rest[0] ?? ""), how));
      here();
    };
  }
  reading(prototype, "state", (_, state) => stateIn(state));
  reading(PopStateEvent.prototype, "state", (_, state) => stateIn(state));
  const shown = (native: string, now: string): string => (withoutFragment(native) === withoutFragment(frame.href) ? withFragmentOf(native, now) : native);
  reading(HashChangeEvent.prototype, "oldURL", (_, native) => shown(native, before));
  reading(HashChangeEvent.prototype, "newURL", (_, native) => shown(native, here()));
  // Before any listener of the page.
  for (const type of ["popstate", "hashchange"]) addEventListener(type, here, true);
  // Between URLs that differ in more than the fragment, which the frame's do not, browsers tell of none.
  addEventListener("hashchange", (event) => {
    if (withoutFragment(before) !== withoutFragment(url)) event.stopImmediatePropagation();
  }, true);
  const begun = attempt(carried);
  if (begun !== undefined && attempt(() => new URL(begun).origin) === origin) write("replaceState", history, null, "", begun);
  here();
  return {
    here,
    knows: (path) => paths.has(path),
    enter(to, state = null) {
      write("replaceState", history, state, "", to);
      // A page may say twice where it goes before it is gone.
      name ??= window.name;
      window.name = CARRIED + JSON.stringify([to, name]);
      dispatchEvent(new Event(CARRIED));
      frame.reload();
    },
  };
}
