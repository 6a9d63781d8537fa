// IndexedDB, which an opaque origin is refused: the view's is fake-indexeddb.

const done = (request) => new Promise((go, fail) => {
  request.onsuccess = () => go(request.result);
  request.onerror = () => fail(request.error);
});

const opened = (name, version, upgrade) => {
  const request = indexedDB.open(name, version);
  request.onupgradeneeded = (event) => upgrade?.(request.result, request.transaction, event);
  return done(request);
};

const errorName = async (run) => {
  try {
    await run();
    return "none";
  } catch (error) {
    return error.name;
  }
};

const unique = () => `db-${Math.random()}`;

twin("database: stores, keys and values", async (see) => {
  const db = await opened(unique(), 1, (made) => {
    made.createObjectStore("notes", { keyPath: "id", autoIncrement: true });
    made.createObjectStore("plain");
  });
  const notes = db.transaction("notes", "readwrite").objectStore("notes");
  see(await done(notes.add({ text: "a" })), await done(notes.add({ text: "b", id: 7 })), await done(notes.put({ text: "c" })), await done(notes.getAll()));
  const plain = db.transaction("plain", "readwrite").objectStore("plain");
  const value = { date: new Date(5), map: new Map([[1, new Set([2])]]), bytes: new Uint8Array([1, 2]), blob: new Blob(["x"], { type: "a/b" }), big: 3n };
  await done(plain.put(value, ["a", 1, new Date(1)]));
  const read = await done(plain.get(["a", 1, new Date(1)]));
  see(read.date.getTime(), [...read.map.get(1)], [...read.bytes], read.blob.size, read.blob.type, String(read.big), [...db.objectStoreNames], db.objectStoreNames.length);
});

twin("database: indexes, ranges and cursors", async (see) => {
  const db = await opened(unique(), 1, (made) => {
    const store = made.createObjectStore("people", { keyPath: "id" });
    store.createIndex("city", "city");
    store.createIndex("mail", "mail", { unique: true });
    store.createIndex("tags", "tags", { multiEntry: true });
    for (let id = 1; id <= 6; id++) store.add({ id, city: id % 2 ? "Rome" : "Oslo", mail: `m${id}`, tags: ["t", `t${id}`] });
  });
  const store = db.transaction("people", "readwrite").objectStore("people");
  await new Promise((go) => {
    store.index("city").openCursor(IDBKeyRange.only("Rome"), "prev").onsuccess = ({ target: { result } }) => {
      if (!result) return go();
      see(result.key, result.primaryKey);
      if (result.primaryKey === 3) result.update({ ...result.value, seen: true });
      result.continue();
    };
  });
  const people = () => db.transaction("people").objectStore("people");
  see(await done(people().index("city").getAllKeys("Oslo")), await done(people().get(3)), await done(people().index("tags").count("t")));
  see(await done(people().getAllKeys(IDBKeyRange.bound(2, 5, true, false))), await done(people().index("mail").get("m4")), [...people().indexNames]);
  see(await errorName(() => done(db.transaction("people", "readwrite").objectStore("people").add({ id: 9, mail: "m1" }))));
});

twin("database: transactions that end and fail", async (see) => {
  const db = await opened(unique(), 1, (made) => made.createObjectStore("s"));
  const aborted = db.transaction("s", "readwrite");
  aborted.objectStore("s").put(1, "a").onerror = (event) => event.preventDefault();
  const ended = new Promise((go) => (aborted.onabort = () => go("aborted")));
  aborted.abort();
  see(await ended);
  const later = db.transaction("s", "readwrite");
  later.objectStore("s").put(2, "b");
  await new Promise((go) => (later.oncomplete = go));
  const store = () => db.transaction("s", "readwrite").objectStore("s");
  see(await done(store().getAll()), await errorName(() => later.objectStore("s")), await errorName(() => db.transaction("nothing")));
  see(await errorName(() => db.transaction("s").objectStore("s").put(1, "a")), await errorName(() => store().put(() => {}, "f")), await errorName(() => store().put(1, {})));
});

twin("database: versions and deletion", async (see) => {
  const name = unique();
  const db = await opened(name, 2, (made) => made.createObjectStore("one"));
  db.onversionchange = ({ oldVersion, newVersion }) => {
    see(oldVersion, newVersion);
    db.close();
  };
  const newer = await opened(name, 5, (made, _, event) => {
    see(event.oldVersion, event.newVersion);
    made.createObjectStore("two");
    made.deleteObjectStore("one");
  });
  const listed = async () => (await indexedDB.databases()).filter((one) => one.name === name).map((one) => one.version);
  see([...newer.objectStoreNames], await listed(), await errorName(() => opened(name, 1)));
  newer.close();
  await done(indexedDB.deleteDatabase(name));
  see(await listed());
});

twin("database: its interfaces", async (see) => {
  const request = indexedDB.open(unique());
  const db = await done(request);
  see(indexedDB instanceof IDBFactory, request instanceof IDBOpenDBRequest, request instanceof IDBRequest, db instanceof IDBDatabase);
  see(String(indexedDB), String(db), IDBFactory.name, IDBKeyRange.lowerBound(1).includes(2), indexedDB.cmp([1], ["a"]), "indexedDB" in window);
});
