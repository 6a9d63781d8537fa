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

function define(name: string, value: unknown): void {
  Object.defineProperty(window, name, { value, configurable: true, writable: true, enumerable: false });
}

if (window.parent !== window && !("indexedDB" in window)) {
  for (const [name, value] of Object.entries(INTERFACES)) {
    Object.defineProperty(value, "name", { value: name, configurable: true });
    define(name, value);
  }
  define("indexedDB", new IDBFactory());
}
