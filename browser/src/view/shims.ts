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

/** A `Storage` of the page's life. */
export function createStorage(): Storage {
  const items = new Map<string, string>();
  const storage = Object.create(Storage.prototype) as Storage;
  function setItem(key: unknown, value: unknown): void {
    let size = `${key}${value}`.length;
    for (const [name, held] of items) if (name !== `${key}`) size += name.length + held.length;
    if (size > QUOTA) throw new DOMException(`Setting '${key}' exceeds the quota.`, "QuotaExceededError");
    items.set(`${key}`, `${value}`);
  }
  const methods: { [name: string | symbol]: unknown } = Object.assign(Object.create(null), {
    getItem: (key: string) => items.get(`${key}`) ?? null,
    setItem,
    removeItem: (key: string) => void items.delete(`${key}`),
    clear: () => items.clear(),
    key: (index: number) => [...items.keys()][index] ?? null,
    [Symbol.toStringTag]: "Storage",
  });
  const held = (key: string | symbol) => items.get(key as string);
  return new Proxy(storage, {
    get: (_, key) => (key === "length" ? items.size : (methods[key] ?? held(key) ?? (key in Object.prototype ? Reflect.get(storage, key) : undefined))),
    set: (_, key, value) => (setItem(key, value), true),
    has: (_, key) => held(key) !== undefined || key in storage,
    deleteProperty: (_, key) => (items.delete(key as string), true),
    ownKeys: () => [...items.keys()],
    getOwnPropertyDescriptor: (_, key) => (held(key) === undefined ? undefined : { value: held(key), writable: true, enumerable: true, configurable: true }),
  });
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
  put(document, "cookie", createCookies(Date.now));
  // Pages ask whether they are there, as where the context is not secure.
  for (const [owner, name, holder] of [[window, "caches", window], [navigator, "serviceWorker", Navigator.prototype]] as const) {
    if (refused(() => Reflect.get(owner, name))) Reflect.deleteProperty(holder, name);
  }
  for (const name of ["pushState", "replaceState"] as const) {
    const native = History.prototype[name];
    History.prototype[name] = function (state, unused, url) {
      try {
        native.call(this, state, unused, url);
      } catch (error) {
        if (!(error instanceof DOMException) || error.name !== "SecurityError") throw error;
        // Of the URL only its fragment can be shown: the document has no address of its own.
        const [, hash = ""] = /(#.*)$/s.exec(String(url)) ?? [];
        native.call(this, state, unused, location.href.replace(/#.*$/s, "") + hash);
      }
    };
  }
}
