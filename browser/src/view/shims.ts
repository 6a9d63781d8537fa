/** What opaque origins refuse and pages take for granted: storage, cookies, the history's URLs, service workers. */

const QUOTA = 5 * 1024 * 1024;

function refused(get: () => unknown): boolean {
  try {
    get();
    return false;
  } catch {
    return true;
  }
}

/** What a `Storage` of ours holds, and what changes it. */
export interface Area {
  items: ReadonlyMap<string, string>;
  setItem(key: string, value: string): void;
  removeItem(key: string): void;
  clear(): void;
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
export function createStorage({ items, ...changes }: Area = createArea()): Storage {
  const target = Object.create(Storage.prototype) as Storage;
  const held = (key: string | symbol) => items.get(key as string);
  const storage = new Proxy(target, {
    get: (_, key) => (key in target ? Reflect.get(target, key, storage) : held(key)),
    set: (_, key, value) => (changes.setItem(String(key), String(value)), true),
    has: (_, key) => held(key) !== undefined || key in target,
    deleteProperty: (_, key) => (changes.removeItem(String(key)), true),
    ownKeys: () => [...items.keys()],
    getOwnPropertyDescriptor: (_, key) => (held(key) === undefined ? undefined : { value: held(key), writable: true, enumerable: true, configurable: true }),
  });
  const methods: { [name: string]: (...given: [string, string]) => unknown } = {
    getItem: (key) => items.get(key) ?? null,
    key: (index) => [...items.keys()][Number(index)] ?? null,
    ...changes,
  };
  const prototype = Storage.prototype as Storage & { [name: string]: (...given: unknown[]) => unknown };
  for (const [name, method] of Object.entries(methods)) {
    const native = prototype[name]!;
    prototype[name] = function (this: Storage, ...given: unknown[]) {
      if (this !== storage) return native.apply(this, given);
      if (given.length < method.length) throw new TypeError(`${name} needs ${method.length} arguments`);
      return method(...(given.map(String) as [string, string]));
    };
  }
  const length = Object.getOwnPropertyDescriptor(prototype, "length")!;
  Object.defineProperty(prototype, "length", {
    ...length,
    get(this: Storage) {
      return this === storage ? items.size : length.get!.call(this);
    },
  });
  return storage;
}

/** `document.cookie` of the page's own making: it never leaves the page, as the gateway keeps those of the backend. */
function createCookies(now: () => number): { get(): string; set(text: string): void } {
  const cookies = new Map<string, [value: string, until: number]>();
  return {
    get: () => [...cookies].filter(([, [, until]]) => until > now()).map(([name, [value]]) => (name ? `${name}=${value}` : value)).join("; "),
    set(text) {
      const [pair = "", ...attributes] = String(text).split(";").map((part) => part.trim());
      const at = pair.indexOf("=");
      let until = Infinity;
      for (const attribute of attributes) {
        const [, name = "", value = ""] = /^([^=]*)=?(.*)$/s.exec(attribute) ?? [];
        if (/^httponly$/i.test(name)) return;
        if (/^max-age$/i.test(name) && /^-?\d+$/.test(value)) until = now() + Number(value) * 1000;
        else if (/^expires$/i.test(name) && until === Infinity) until = Number.isNaN(Date.parse(value)) ? Infinity : Date.parse(value);
      }
      cookies.set(at < 0 ? "" : pair.slice(0, at).trim(), [pair.slice(at + 1).trim(), until]);
    },
  };
}

export function installShims(): void {
  const put = (owner: object, name: string, what: PropertyDescriptor): void => {
    if (refused(() => Reflect.get(owner, name))) Object.defineProperty(owner, name, { configurable: true, ...what });
  };
  for (const name of ["localStorage", "sessionStorage"]) put(window, name, { value: createStorage() });
  // WebKit does not refuse, and keeps nothing.
  if (origin === "null" || refused(() => document.cookie)) {
    Object.defineProperty(document, "cookie", { configurable: true, ...createCookies(Date.now) });
    // Pages that do not find it ask there.
    Reflect.deleteProperty(window, "cookieStore");
  }
  // Pages ask whether they are there, as where the context is not secure.
  for (const [owner, name, holder] of [[window, "caches", window], [navigator, "serviceWorker", Navigator.prototype]] as const) {
    if (refused(() => Reflect.get(owner, name))) Reflect.deleteProperty(holder, name);
  }
  let told = false;
  for (const name of ["pushState", "replaceState"] as const) {
    const native = History.prototype[name];
    History.prototype[name] = function (state, unused, url) {
      try {
        native.call(this, state, unused, url);
      } catch (error) {
        if (!(error instanceof DOMException) || error.name !== "SecurityError") throw error;
        // Of the URL only its fragment can be shown: the document has no address of its own.
        const [, path = "", hash = ""] = /^([^#]*)(.*)$/s.exec(String(url)) ?? [];
        native.call(this, state, unused, location.href.replace(/#.*$/s, "") + hash);
        if (path && !told) {
          told = true;
          console.warn(`webmcp-gateway: ${name} shows no ${path} in location, of which a view has the fragment alone: take a hash or memory router`);
        }
      }
    };
  }
}
