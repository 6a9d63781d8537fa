/** What opaque origins refuse and pages take for granted: storage, cookies, the history's URLs, service workers. */

import { attempt } from "./attempt";
import { CARRIED } from "./entries";
import { tellMember } from "./event-members";
import { named } from "./wrapped";

const QUOTA = 5 * 1024 * 1024;

const refused = (get: () => unknown): boolean => !attempt(() => [get()]);

/** What a `Storage` of ours holds, and what changes it. */
export interface Area {
  items: ReadonlyMap<string, string>;
  setItem(key: string, value: string): void;
  removeItem(key: string): void;
  clear(): void;
}

/** By their names: what they say, and until when. */
type Cookies = Map<string, [value: string, until: number | null]>;

/** Before what the window's name has of storage and cookies on their way. */
const STORED = "webmcp-gateway-storage:";

/** To the page that comes when the app loads itself anew, of which `CARRIED` tells; none of another site is to read it. */
function carry(areas: Area[], cookies: Cookies): void {
  const put = (): void => {
    window.name = STORED + JSON.stringify([window.name, areas.map(({ items }) => [...items]), [...cookies]]);
  };
  // The last of all listeners, as others store something then.
  addEventListener(CARRIED, () => addEventListener("beforeunload", put, { once: true }));
  if (!window.name.startsWith(STORED)) return;
  const [name, stored, jar] = JSON.parse(window.name.slice(STORED.length)) as [string, [string, string][][], [string, [string, number | null]][]];
  window.name = name;
  areas.forEach((area, at) => stored[at]?.forEach(([key, value]) => area.setItem(key, value)));
  for (const [key, cookie] of jar) cookies.set(key, cookie);
}

/** Of the page's life. */
function createArea(): Area {
  const items = new Map<string, string>();
  return {
    items,
    setItem(key, value) {
      let size = (key + value).length;
      for (const [name, held] of items) if (name !== key) size += name.length + held.length;
      if (size > QUOTA) throw new DOMException(`Setting '${key}' exceeds the quota.`, "QuotaExceededError");
      items.set(key, value);
    },
    removeItem: (key) => void items.delete(key),
    clear: () => items.clear(),
  };
}

/** Its methods are those of `Storage.prototype`, which know it from now on: pages wrap them, and add others. */
export function createStorage({ items, ...changes }: Area): Storage {
  const target = Object.create(Storage.prototype) as Storage;
  const held = (key: string | symbol) => items.get(key as string);
  const storage = new Proxy(target, {
    get: (_, key) => (key in target ? Reflect.get(target, key, storage) : held(key)),
    // Only what has a name is an item.
    set: (_, key, value) => (typeof key === "symbol" ? Reflect.set(target, key, value) : (changes.setItem(key, `${value}`), true)),
    defineProperty: (_, key, how) => (typeof key === "symbol" ? Reflect.defineProperty(target, key, how) : (changes.setItem(key, `${how.value}`), true)),
    preventExtensions: () => false,
    has: (_, key) => held(key) !== undefined || key in target,
    deleteProperty: (_, key) => (typeof key === "symbol" ? Reflect.deleteProperty(target, key) : (changes.removeItem(key), true)),
    ownKeys: () => [...items.keys()],
    getOwnPropertyDescriptor: (_, key) => (held(key) === undefined ? undefined : { value: held(key), writable: true, enumerable: true, configurable: true }),
  });
  const methods: { [name: string]: (...given: [string, string]) => unknown } = {
    getItem: (key) => items.get(key) ?? null,
    key: (index) => [...items.keys()][Number(index) >>> 0] ?? null,
    ...changes,
  };
  const prototype = Storage.prototype as Storage & { [name: string]: (...given: unknown[]) => unknown };
  for (const [name, method] of Object.entries(methods)) {
    const native = prototype[name]!;
    prototype[name] = named(native, function (this: Storage, ...given: unknown[]) {
      if (this !== storage) return native.apply(this, given);
      if (given.length < method.length) throw new TypeError(`${name} needs ${method.length} arguments`);
      return method(...(given.map(String) as [string, string]));
    });
  }
  const length = Object.getOwnPropertyDescriptor(prototype, "length")!;
  Object.defineProperty(prototype, "length", {
    ...length,
    get(this: Storage) {
      return this === storage ? items.size : length.get!.call(this);
    },
  });
  tellMember<StorageEvent>("StorageEvent", "storageArea", "initStorageEvent", 7, storage);
  return storage;
}

/** `document.cookie` of the page's own making: it never leaves the page, as the gateway keeps those of the backend. */
function createCookies(cookies: Cookies, now: () => number): { get(): string; set(text: string): void } {
  return {
    get: () => [...cookies].filter(([, [, until]]) => until === null || until > now()).map(([name, [value]]) => (name ? `${name}=${value}` : value)).join("; "),
    set(text) {
      const [pair = "", ...attributes] = String(text).split(";").map((part) => part.trim());
      // One of nothing is none, and those that could break a header are refused.
      if (/^=?$|[\0-\x08\n-\x1f\x7f]/.test(pair)) return;
      const at = pair.indexOf("=");
      let until: number | null = null;
      for (const attribute of attributes) {
        const [, name = "", value = ""] = /^([^=]*)=?(.*)$/s.exec(attribute) ?? [];
        if (/^httponly$/i.test(name)) return;
        if (/^max-age$/i.test(name) && /^-?\d+$/.test(value)) until = now() + Number(value) * 1000;
        else if (/^expires$/i.test(name) && until === null) until = Number.isNaN(Date.parse(value)) ? null : Date.parse(value);
      }
      cookies.set(at < 0 ? "" : pair.slice(0, at).trim(), [pair.slice(at + 1).trim(), until]);
    },
  };
}

export function installShims(): void {
  const put = (owner: object, name: string, what: PropertyDescriptor): void => {
    if (refused(() => Reflect.get(owner, name))) Object.defineProperty(owner, name, { configurable: true, ...what });
  };
  const areas = { localStorage: createArea(), sessionStorage: createArea() };
  const cookies: Cookies = new Map();
  attempt(() => carry(Object.values(areas), cookies));
  for (const [name, area] of Object.entries(areas)) put(window, name, { value: createStorage(area) });
  // WebKit does not refuse, and keeps nothing.
  if (origin === "null" || refused(() => document.cookie)) {
    Object.defineProperty(document, "cookie", { configurable: true, ...createCookies(cookies, Date.now) });
    // Pages that do not find it ask there.
    Reflect.deleteProperty(window, "cookieStore");
  }
  // Pages ask whether they are there, as where the context is not secure.
  for (const [owner, name, holder] of [[window, "caches", window], [navigator, "serviceWorker", Navigator.prototype]] as const) {
    if (refused(() => Reflect.get(owner, name))) Reflect.deleteProperty(holder, name);
  }
  // These refuse only when they are asked for something.
  const late = [[window, "indexedDB"], [Navigator.prototype, "locks"], [Navigator.prototype, "storage"]] as const;
  if (origin === "null") for (const [owner, name] of late) Reflect.deleteProperty(owner, name);
  let told = false;
  for (const name of ["pushState", "replaceState"] as const) {
    const native = History.prototype[name];
    History.prototype[name] = named(native, function (this: History, ...given: Parameters<typeof native>) {
      const [state, unused, url] = given;
      try {
        native.apply(this, given);
      } catch (error) {
        if (!(error instanceof DOMException) || error.name !== "SecurityError") throw error;
        // Of the URL only its fragment can be shown: the document has no address of its own.
        const [, path = "", hash = ""] = /^([^#]*)(.*)$/s.exec(String(url)) ?? [];
        native.call(this, state, unused, location.href.replace(/#.*/s, "") + hash);
        if (path && !told) {
          told = true;
          console.warn(`webmcp-gateway: ${name} shows no ${path} in location, of which a view has the fragment alone: take a hash or memory router`);
        }
      }
    });
  }
}
