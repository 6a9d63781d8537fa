/**
 * IndexedDB for frames in which browsers refuse it, from which the part before this one has removed it: the library
 * fake-indexeddb, in memory.
 *
 * A separate script, for pages that contain `indexedDB`. It lies outside of the view runtime, which contains no code of
 * others.
 */

import {
  IDBCursor,
  IDBCursorWithValue,
  IDBDatabase,
  IDBFactory,
  IDBIndex,
  IDBKeyRange,
  IDBObjectStore,
  IDBOpenDBRequest,
  IDBRequest,
  IDBTransaction,
  IDBVersionChangeEvent,
} from "fake-indexeddb";

const INTERFACES = {
  IDBCursor, IDBCursorWithValue, IDBDatabase, IDBFactory, IDBIndex, IDBKeyRange, IDBObjectStore, IDBOpenDBRequest, IDBRequest,
  IDBTransaction, IDBVersionChangeEvent,
};

import { DATABASES, type Databases } from "../view/page/part-keys";
import { dump, restore } from "./databases";

/** Notes each change of a database, after its transaction. */
function watchChanges(factory: IDBFactory, note: (name: string) => void): void {
  const { open, deleteDatabase } = factory;
  const { transaction } = IDBDatabase.prototype;
  factory.open = function (...given: Parameters<typeof open>) {
    const request = open.apply(this, given);
    request.addEventListener("upgradeneeded", () => request.transaction!.addEventListener("complete", () => note(given[0])));
    return request;
  };
  factory.deleteDatabase = function (name) {
    const request = deleteDatabase.call(this, name);
    request.addEventListener("success", () => note(name));
    return request;
  };
  IDBDatabase.prototype.transaction = function (...given: Parameters<typeof transaction>) {
    const made = transaction.apply(this, given);
    if (given[1] === "readwrite") made.addEventListener("complete", () => note(this.name));
    return made;
  };
}

/** Milliseconds between a change and the saving of its database: further changes follow soon. */
const PAUSE = 100;

function databasesOf(factory: IDBFactory): Databases {
  return {
    restore: (name, text) => restore(factory, name, text),
    watch(changed, failed) {
      const due = new Set<string>();
      watchChanges(factory, (name) => {
        if (due.has(name)) return;
        due.add(name);
        setTimeout(() => {
          due.delete(name);
          dump(factory, name).then((text) => changed(name, text), (why: unknown) => failed(name, why));
        }, PAUSE);
      });
    },
  };
}

function define(name: string, value: unknown): void {
  Object.defineProperty(window, name, { value, configurable: true, writable: true, enumerable: false });
}

if (window.parent !== window && !("indexedDB" in window)) {
  for (const [name, value] of Object.entries(INTERFACES)) {
    Object.defineProperty(value, "name", { value: name, configurable: true });
    define(name, value);
  }
  const factory = new IDBFactory() as globalThis.IDBFactory;
  define("indexedDB", factory);
  Object.defineProperty(window, DATABASES, { configurable: true, value: databasesOf(factory) });
}
