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
export function createStorage(changed: () => void = () => undefined, items = new Map<string, string>()): Storage {
  const size = (): number => [...items].reduce((sum, [key, value]) => sum + key.length + value.length, 0);
  const methods: { [name: string]: unknown } = {
    getItem: (key: string) => items.get(String(key)) ?? null,
    setItem(key: string, value: string) {
      const old = items.get(String(key));
      items.set(String(key), String(value));
      if (size() <= QUOTA) return changed();
      if (old === undefined) items.delete(String(key));
      else items.set(String(key), old);
      throw new DOMException(`Setting the value of '${key}' exceeded the quota.`, "QuotaExceededError");
    },
    removeItem: (key: string) => void (items.delete(String(key)) && changed()),
    clear: () => (items.clear(), changed()),
    key: (index: number) => [...items.keys()][index] ?? null,
  };
  const own = (key: string | symbol): key is string => typeof key === "string" && items.has(key);
  return new Proxy(Object.create(Storage.prototype) as Storage, {
    get: (target, key) => (key === "length" ? items.size : (methods[key as string] ?? (own(key) ? items.get(key) : key === Symbol.toStringTag ? "Storage" : key in Object.prototype ? Reflect.get(target, key) : undefined))),
    set: (_, key, value) => ((methods["setItem"] as (key: unknown, value: unknown) => void)(key, value), true),
    has: (target, key) => own(key) || key in target,
    deleteProperty: (_, key) => ((methods["removeItem"] as (key: unknown) => void)(key), true),
    ownKeys: () => [...items.keys()],
    getOwnPropertyDescriptor: (_, key) => (own(key) ? { value: items.get(key), writable: true, enumerable: true, configurable: true } : undefined),
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

export function installShims(local?: Storage): void {
  const put = (owner: object, name: string, value: unknown): unknown => Object.defineProperty(owner, name, { configurable: true, enumerable: true, value });
  if (local || refused(() => window.localStorage)) {
    put(window, "localStorage", local ?? createStorage());
    if (refused(() => window.sessionStorage)) put(window, "sessionStorage", createStorage());
  }
  if (refused(() => document.cookie)) Object.defineProperty(document, "cookie", { configurable: true, ...createCookies(Date.now) });
  if (refused(() => window.caches)) put(window, "caches", undefined);
  if (refused(() => navigator.serviceWorker)) {
    const none = async (): Promise<never> => { throw new DOMException("A view has no service workers.", "SecurityError"); };
    put(navigator, "serviceWorker", Object.assign(new EventTarget(), { controller: null, register: none, getRegistrations: async () => [], getRegistration: async () => undefined, ready: new Promise(() => undefined) }));
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
