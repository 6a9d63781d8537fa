/** A `Storage` whose changes are saved elsewhere: in the background, one save at a time. */

import { createStorage } from "./shims";
import type { Params } from "../host/json-rpc";

/** The minimum time between two saves, in milliseconds. */
const SAVE_INTERVAL = 250;
/** Milliseconds after which a failed save is retried. */
const RETRY_DELAY = 5000;

export interface StoredItems {
  items: Params;
  /** Characters of keys and values together. */
  quota: number;
}

/** Hosts' JSON cannot carry lone surrogates, and objects no such key: these are written with escapes. */
export function escapeText(text: string): string {
  return /^(\0|__proto__$)|\p{Surrogate}/u.test(text) ? `\0${JSON.stringify(text)}` : text;
}

function unescapeText(text: string): string {
  return text[0] === "\0" ? (JSON.parse(text.slice(1)) as string) : text;
}

/** `save` takes `{changes, clear?}`; returns false if it failed and should be retried. */
function createSaver(save: (args: Params) => Promise<boolean>, later: (milliseconds: number) => Promise<unknown>) {
  let changes: { [key: string]: string | null } = {};
  let clear = false;
  let busy = false;

  async function run(): Promise<void> {
    busy = true;
    await later(0);
    while (clear || Object.keys(changes).length) {
      const sent = { changes, ...(clear && { clear }) };
      changes = {};
      clear = false;
      if (await save(sent)) await later(SAVE_INTERVAL);
      else {
        // A later clear discards them; else later changes win.
        if (!clear) ({ changes, clear = false } = { ...sent, changes: { ...sent.changes, ...changes } });
        await later(RETRY_DELAY);
      }
    }
    busy = false;
  }

  return {
    change(key: string, value: string | null): void {
      changes[escapeText(key)] = value === null ? null : escapeText(value);
      if (!busy) void run();
    },
    keep(key: string, value: string | null): void {
      changes[key] = value;
      if (!busy) void run();
    },
    clear(): void {
      changes = {};
      clear = true;
      if (!busy) void run();
    },
  };
}

/** The prefix of items that hold a database, and not an item of the page: no escaped key begins with it. */
export const DATABASE = "\0indexedDB:";

/** The stored values: the page's `localStorage`, and databases as text, which share its quota. */
export interface Kept {
  storage: Storage;
  /** False if the text would exceed the quota. */
  keepDatabase(name: string, text: string | null): boolean;
}

export function createKeptStorage({ items: kept, quota }: StoredItems, save: (args: Params) => Promise<boolean>, later: (milliseconds: number) => Promise<unknown>): Kept {
  const items = new Map<string, string>();
  const saver = createSaver(save, later);
  const sizes = new Map<string, number>();

  function exceeds(key: string, size: number): boolean {
    let whole = size;
    for (const [name, held] of sizes) if (name !== key) whole += held;
    return whole > quota;
  }

  function put(key: string, value: string): void {
    const size = escapeText(key).length + escapeText(value).length;
    if (exceeds(key, size)) throw new DOMException(`Setting '${key}' exceeds the quota.`, "QuotaExceededError");
    items.set(key, value);
    sizes.set(key, size);
  }
  for (const [key, value] of Object.entries(kept)) {
    if (key.startsWith(DATABASE)) sizes.set(key, key.length + String(value).length);
    else put(unescapeText(key), unescapeText(String(value)));
  }

  function keepDatabase(name: string, text: string | null): boolean {
    const key = DATABASE + name;
    const size = text === null ? 0 : key.length + text.length;
    if (text !== null && exceeds(key, size)) return false;
    sizes.set(key, size);
    saver.keep(key, text);
    return true;
  }

  const storage = createStorage({
    items,
    setItem(key, value) {
      if (items.get(key) === value) return;
      put(key, value);
      saver.change(key, value);
    },
    removeItem(key) {
      if (!items.delete(key)) return;
      sizes.delete(key);
      saver.change(key, null);
    },
    clear() {
      const databases = [...sizes.keys()].filter((key) => key.startsWith(DATABASE));
      if (databases.length) {
        for (const key of items.keys()) saver.change(key, null);
      } else saver.clear();
      for (const key of items.keys()) sizes.delete(key);
      items.clear();
    },
  });
  return { storage, keepDatabase };
}
