/** Replacements for features that browsers refuse opaque origins, and frames of another site than the host: storage, cookies, the history's URLs, service workers. */

import { attempt } from "../attempt";
import { CARRIED } from "./entries";
import { overrideMember } from "./event-members";
import { withIdentityOf } from "../wrap";

const QUOTA = 5 * 1024 * 1024;

const isRefused = (get: () => unknown): boolean => !attempt(() => [get()]);

/** The items of our own `Storage`, and its operations. */
export interface Area {
  items: ReadonlyMap<string, string>;
  setItem(key: string, value: string): void;
  removeItem(key: string): void;
  clear(): void;
}

/** By name: the value, and the expiry. */
type Cookies = Map<string, [value: string, until: number | null]>;

/** The prefix of the window's name that carries storage and cookies over a reload. */
const CARRIED_STORAGE = "webmcp-gateway-storage:";

/** Carries them to the page after a reload, which `CARRIED` announces; no other site may read them. */
function carryOverReload(areas: Area[], cookies: Cookies): void {
  const put = (): void => {
    window.name = CARRIED_STORAGE + JSON.stringify([window.name, areas.map(({ items }) => [...items]), [...cookies]]);
  };
  // The last of all listeners, as others may store something then.
  addEventListener(CARRIED, () => addEventListener("beforeunload", put, { once: true }));
  if (!window.name.startsWith(CARRIED_STORAGE)) return;
  const [name, stored, jar] = JSON.parse(window.name.slice(CARRIED_STORAGE.length)) as [string, [string, string][][], [string, [string, number | null]][]];
  window.name = name;
  areas.forEach((area, at) => stored[at]?.forEach(([key, value]) => area.setItem(key, value)));
  for (const [key, cookie] of jar) cookies.set(key, cookie);
}

/** Storage for the life of the page. */
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

/** Its methods are those of `Storage.prototype`, extended for it: pages wrap them, and add others. */
export function createStorage({ items, ...changes }: Area): Storage {
  const target = Object.create(Storage.prototype) as Storage;
  // A name that the prototype has is no property (Web IDL, 3.9.7): such an item is reached by `getItem` alone.
  const itemOf = (key: string | symbol) => (key in target ? undefined : items.get(key as string));
  const storage = new Proxy(target, {
    get: (_, key) => itemOf(key) ?? Reflect.get(target, key, storage),
    // Only string keys are items.
    set: (_, key, value) => (typeof key === "symbol" ? Reflect.set(target, key, value) : (changes.setItem(key, `${value}`), true)),
    defineProperty: (_, key, how) => (typeof key === "symbol" ? Reflect.defineProperty(target, key, how) : !how.get && !how.set && (changes.setItem(key, `${how.value}`), true)),
    preventExtensions: () => false,
    has: (_, key) => itemOf(key) !== undefined || key in target,
    deleteProperty: (_, key) => (itemOf(key) === undefined ? Reflect.deleteProperty(target, key) : (changes.removeItem(key as string), true)),
    ownKeys: () => [...[...items.keys()].filter((key) => !(key in target)), ...Reflect.ownKeys(target)],
    getOwnPropertyDescriptor: (_, key) => (itemOf(key) === undefined ? Reflect.getOwnPropertyDescriptor(target, key) : { value: itemOf(key), writable: true, enumerable: true, configurable: true }),
  });
  const methods: { [name: string]: (...given: [string, string]) => unknown } = {
    getItem: (key) => items.get(key) ?? null,
    key: (index) => [...items.keys()][Number(index) >>> 0] ?? null,
    ...changes,
  };
  const prototype = Storage.prototype as Storage & { [name: string]: (...given: unknown[]) => unknown };
  for (const [name, method] of Object.entries(methods)) {
    const native = prototype[name]!;
    prototype[name] = withIdentityOf(native, function (this: Storage, ...given: unknown[]) {
      if (this !== storage) return native.apply(this, given);
      if (given.length < method.length) throw new TypeError(`${name} needs ${method.length} arguments`);
      return method(...(given.map((value) => `${value}`) as [string, string]));
    });
  }
  const length = Object.getOwnPropertyDescriptor(prototype, "length")!;
  Object.defineProperty(prototype, "length", {
    ...length,
    get(this: Storage) {
      return this === storage ? items.size : length.get!.call(this);
    },
  });
  overrideMember<StorageEvent>("StorageEvent", "storageArea", "initStorageEvent", 7, storage);
  return storage;
}

/** `document.cookie` within the page: these are never sent, as the gateway stores the backend's cookies. */
function createCookies(cookies: Cookies, now: () => number): { get(): string; set(text: string): void } {
  return {
    get: () => [...cookies].filter(([, [, until]]) => until === null || until > now()).map(([name, [value]]) => (name ? `${name}=${value}` : value)).join("; "),
    set(text) {
      const [pair = "", ...attributes] = String(text).split(";").map((part) => part.trim());
      // Empty cookies are ignored, and characters that could break a header.
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

/** WebKit does not refuse, but stores nothing, as all browsers in frames of another site than the host. */
function storesCookies(): boolean {
  const test = "webmcp-gateway=1";
  document.cookie = test;
  const stored = document.cookie.includes(test);
  document.cookie = `${test}; max-age=0`;
  return stored;
}

export function installShims(): void {
  const put = (owner: object, name: string, what: PropertyDescriptor): void => {
    if (isRefused(() => Reflect.get(owner, name))) Object.defineProperty(owner, name, { configurable: true, ...what });
  };
  const denied = origin === "null" || isRefused(() => localStorage);
  const areas = { localStorage: createArea(), sessionStorage: createArea() };
  const cookies: Cookies = new Map();
  attempt(() => carryOverReload(Object.values(areas), cookies));
  for (const [name, area] of Object.entries(areas)) put(window, name, { value: createStorage(area) });
  if (!attempt(storesCookies)) {
    Object.defineProperty(document, "cookie", { configurable: true, ...createCookies(cookies, Date.now) });
    // Pages fall back to document.cookie without it.
    Reflect.deleteProperty(window, "cookieStore");
  }
  // Pages test for their existence, as in insecure contexts.
  for (const [owner, name, holder] of [[window, "caches", window], [navigator, "serviceWorker", Navigator.prototype]] as const) {
    if (isRefused(() => Reflect.get(owner, name))) Reflect.deleteProperty(holder, name);
  }
  // These refuse only when they are used.
  const late = [[window, "indexedDB"], [Navigator.prototype, "locks"], [Navigator.prototype, "storage"]] as const;
  if (denied) for (const [owner, name] of late) Reflect.deleteProperty(owner, name);
  let told = false;
  for (const name of ["pushState", "replaceState"] as const) {
    const native = History.prototype[name];
    History.prototype[name] = withIdentityOf(native, function (this: History, ...given: Parameters<typeof native>) {
      const [state, unused, url] = given;
      try {
        native.apply(this, given);
      } catch (error) {
        if (!(error instanceof DOMException) || error.name !== "SecurityError") throw error;
        // Only the URL's fragment can be shown: the document has no address of its own.
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
