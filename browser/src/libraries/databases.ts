/** Saves the databases of IndexedDB in memory as text, and restores them: types of the structured clone algorithm but files. */

import { fromBase64, toBase64 } from "../view/base64";

/** The deepest value that is saved. */
const MAX_DEPTH = 100;

type Coded = null | boolean | number | string | CodedParts;
/** The type of a value, then its parts. */
interface CodedParts extends Array<Coded> {
  0: string;
}

interface StoredIndex {
  name: string;
  keyPath: string | string[];
  unique: boolean;
  multiEntry: boolean;
}

interface StoredStore {
  name: string;
  keyPath: string | string[] | null;
  autoIncrement: boolean;
  indexes: StoredIndex[];
  entries: [key: Coded, value: Coded][];
}

interface StoredDatabase {
  version: number;
  stores: StoredStore[];
}

const VIEWS = { Int8Array, Uint8Array, Uint8ClampedArray, Int16Array, Uint16Array, Int32Array, Uint32Array, Float32Array, Float64Array, BigInt64Array, BigUint64Array };

function encode(value: unknown, depth = 0): Coded {
  if (depth > MAX_DEPTH) throw new TypeError("a value that is nested too deeply");
  const inner = (one: unknown): Coded => encode(one, depth + 1);
  switch (typeof value) {
    case "string":
    case "boolean":
      return value;
    case "number":
      return Number.isFinite(value) && !Object.is(value, -0) ? value : ["number", Object.is(value, -0) ? "-0" : String(value)];
    case "bigint":
      return ["bigint", String(value)];
    case "undefined":
      return ["undefined"];
  }
  if (value === null) return null;
  if (Array.isArray(value)) return ["array", ...value.map(inner)];
  if (value instanceof Date) return ["date", inner(value.getTime())];
  if (value instanceof RegExp) return ["regexp", value.source, value.flags];
  if (value instanceof Map) return ["map", ...[...value].flat().map(inner)];
  if (value instanceof Set) return ["set", ...[...value].map(inner)];
  if (value instanceof ArrayBuffer) return ["bytes", toBase64(new Uint8Array(value))];
  if (ArrayBuffer.isView(value)) {
    return [value.constructor.name, toBase64(new Uint8Array(value.buffer, value.byteOffset, value.byteLength))];
  }
  if (typeof value !== "object" || !/^\[object (Object|Error)\]$/.test(Object.prototype.toString.call(value))) {
    throw new TypeError(`a ${Object.prototype.toString.call(value)}`);
  }
  return ["object", ...Object.entries(value).flat().map(inner)];
}

function* pairs<Item>(items: readonly Item[]): Generator<[Item, Item]> {
  for (let at = 0; at < items.length; at += 2) yield [items[at]!, items[at + 1]!];
}

function decode(coded: Coded): unknown {
  if (!Array.isArray(coded)) return coded;
  const [type, ...parts] = coded;
  const [first, second] = parts;
  switch (type) {
    case "number":
      return Number(first);
    case "bigint":
      return BigInt(String(first));
    case "undefined":
      return undefined;
    case "array":
      return parts.map(decode);
    case "date":
      return new Date(decode(first!) as number);
    case "regexp":
      return new RegExp(String(first), String(second));
    case "map":
      return new Map([...pairs(parts.map(decode))]);
    case "set":
      return new Set(parts.map(decode));
    case "bytes":
      return bytesOf(first).buffer;
    case "object":
      return Object.fromEntries([...pairs(parts.map(decode))] as [string, unknown][]);
  }
  const { buffer } = bytesOf(first);
  return type === "DataView" ? new DataView(buffer) : new VIEWS[type as keyof typeof VIEWS](buffer);
}

const bytesOf = (coded: Coded | undefined): Uint8Array<ArrayBuffer> => Uint8Array.from(fromBase64(String(coded)));

function settled<Result>(request: IDBRequest<Result>): Promise<Result> {
  return new Promise((go, fail) => {
    request.onsuccess = () => go(request.result);
    request.onerror = () => fail(request.error);
  });
}

const sameOrder = (path: string | string[] | DOMStringList): string | string[] => (typeof path === "string" ? path : [...path]);

/** The text of the database `name`; null if there is none. Rejects if it holds what cannot be saved. */
export async function dump(factory: IDBFactory, name: string): Promise<string | null> {
  if (!(await factory.databases()).some((one) => one.name === name)) return null;
  const database = await settled(factory.open(name));
  try {
    const names = [...database.objectStoreNames];
    const all = names.length ? database.transaction(names) : null;
    const stores: StoredStore[] = [];
    for (const store of names.map((one) => all!.objectStore(one))) {
      const [keys, values] = await Promise.all([settled(store.getAllKeys()), settled(store.getAll())]);
      const indexes = [...store.indexNames].map((one) => store.index(one));
      stores.push({
        name: store.name,
        keyPath: store.keyPath && sameOrder(store.keyPath),
        autoIncrement: store.autoIncrement,
        indexes: indexes.map((one) => ({ name: one.name, keyPath: sameOrder(one.keyPath), unique: one.unique, multiEntry: one.multiEntry })),
        entries: keys.map((key, at) => [encode(key), encode(values[at])]),
      });
    }
    return JSON.stringify({ version: database.version, stores } satisfies StoredDatabase);
  } finally {
    database.close();
  }
}

/** Creates the database `name` as it was. */
export async function restore(factory: IDBFactory, name: string, text: string): Promise<void> {
  const { version, stores } = JSON.parse(text) as StoredDatabase;
  const opening = factory.open(name, version);
  opening.onupgradeneeded = () => {
    for (const { name: of, keyPath, autoIncrement, indexes, entries } of stores) {
      const store = opening.result.createObjectStore(of, { keyPath, autoIncrement });
      for (const { name: by, keyPath: path, ...how } of indexes) store.createIndex(by, path, how);
      for (const [key, value] of entries) store.put(decode(value), ...(keyPath === null ? [decode(key) as IDBValidKey] : []));
    }
  };
  (await settled(opening)).close();
}
