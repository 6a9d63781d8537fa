for (const name of ["localStorage", "sessionStorage"]) {
  twins[`storage: ${name}`] = async (see) => {
    const storage = window[name];
    storage.clear();
    storage.setItem("a", 1);
    storage.b = { toString: () => "two" };
    storage["c d"] = "3";
    see(storage.length, storage.getItem("a"), storage.getItem("none"), storage.b, storage["c d"], storage.none, "a" in storage, "none" in storage);
    see(Object.keys(storage).sort(), JSON.parse(JSON.stringify(storage)), storage.key(99), storage instanceof Storage, String(storage));
    delete storage.b;
    storage.removeItem("a");
    see(storage.length, storage.hasOwnProperty("c d"), typeof storage.getItem, storage.key("none"));
    storage[Symbol.for("a")] = 1;
    see(storage[Symbol.for("a")], storage.length, delete storage[Symbol.for("a")], storage[Symbol.for("a")], storage.length);
    Object.defineProperty(storage, "defined", { value: 2 });
    see(storage.defined, storage.getItem("defined"), Object.keys(storage).sort(), await failure(() => Object.freeze(storage)));
    see(await failure(() => storage.setItem("big", "x".repeat(6 * 1024 * 1024))), storage.getItem("big"));
    see(await failure(() => storage.setItem("alone")), await failure(() => storage.getItem()), storage.key("0"));
    Storage.prototype.setObject = function (key, value) { this.setItem(key, JSON.stringify(value)); };
    const { setItem } = Storage.prototype;
    Storage.prototype.setItem = function (...given) { see("wrap", given); return setItem.apply(this, given); };
    storage.setObject("object", { a: 1 });
    Object.assign(Storage.prototype, { setItem });
    delete Storage.prototype.setObject;
    see(Storage.prototype.getItem.call(storage, "object"), Object.keys(storage).sort(), await failure(() => setItem.call({}, "a", "b")));
    storage.clear();
    see(storage.length);
    for (const key of ["length", "0", "own"]) storage.setItem(key, key);
    see(storage.length, Object.keys(storage).sort(), { ...storage }, Object.entries(storage).sort(), storage.hasOwnProperty("length"));
    see(delete storage.length, storage.getItem("length"), delete storage.none, delete storage.own, storage.getItem("own"));
    for (const key of ["getItem", "toString"]) storage.setItem(key, "an item");
    see(storage.length, typeof storage.getItem, Object.entries(storage), JSON.stringify(storage), storage.hasOwnProperty("toString"), storage.getItem("toString"));
    const symbol = Symbol.for("a");
    storage[symbol] = 1;
    see(Object.getOwnPropertySymbols(storage).length, Object.getOwnPropertyDescriptor(storage, symbol), delete storage[symbol]);
    for (const how of [{ get: () => 1 }, {}, { enumerable: true }, { value: undefined }]) see(await failure(() => Object.defineProperty(storage, "how", how)), storage.getItem("how"));
    see(await failure(() => storage.setItem(symbol, 1)), await failure(() => storage.setItem("a", symbol)), storage.getItem(undefined));
    storage.clear();
  };
}

twin("storage: localStorage", twins["storage: localStorage"]);
twin("storage: sessionStorage", twins["storage: sessionStorage"]);

twin("storage: its events", async (see) => {
  const facts = ({ type, key, oldValue, newValue, url, storageArea, bubbles }) =>
    [type, key, oldValue, newValue, url, bubbles, storageArea === localStorage ? "local" : storageArea === sessionStorage ? "session" : storageArea];
  for (const storageArea of [localStorage, sessionStorage, null, undefined]) {
    see(facts(new StorageEvent("storage", { storageArea, key: "k", newValue: "v", bubbles: true })));
    const old = document.createEvent("StorageEvent");
    old.initStorageEvent("storage", true, false, "k", "old", "new", "http://a.example/", storageArea);
    see(facts(old));
    old.initStorageEvent("again");
    see(facts(old));
  }
  see(facts(new StorageEvent("storage")), facts(new StorageEvent("storage", null)), facts(new StorageEvent("storage", undefined)));
  const read = [];
  const init = { get storageArea() { read.push("area"); return localStorage; }, get key() { read.push("key"); return "k"; } };
  see(facts(new StorageEvent("storage", Object.create(init))), read);
  for (const storageArea of [{}, 1, "localStorage", Object.create(localStorage)]) see(await failure(() => new StorageEvent("storage", { storageArea })));
  see(await failure(() => new StorageEvent()), await failure(() => StorageEvent("storage")), await failure(() => new StorageEvent("storage", 1)));
  see(StorageEvent.length, StorageEvent.name, StorageEvent.prototype.constructor === StorageEvent, new StorageEvent("a") instanceof StorageEvent);
  see(facts(new StorageEvent("again", new StorageEvent("storage", { storageArea: localStorage, key: "k", newValue: "v" }))));
  class Own extends StorageEvent {}
  see(facts(new Own("own", { storageArea: sessionStorage })), new Own("own") instanceof Own);
  const heard = [];
  const hear = (event) => {
    event.initStorageEvent("other", false, false, null, null, null, "", null);
    heard.push(facts(event));
  };
  addEventListener("storage", hear);
  dispatchEvent(new StorageEvent("storage", { storageArea: localStorage }));
  removeEventListener("storage", hear);
  see(heard);
});

twin("storage: cookies", async (see) => {
  if (window.cookieStore) see((await cookieStore.getAll()).map(({ name }) => name).filter((name) => name === "none"));
  else see([]);
  document.cookie = "one=1";
  document.cookie = "two = 2; path=/; SameSite=Lax";
  document.cookie = "one=uno";
  document.cookie = "gone=1";
  document.cookie = "gone=; max-age=0";
  document.cookie = "old=1; expires=Thu, 01 Jan 1970 00:00:00 GMT";
  document.cookie = "hidden=1; HttpOnly";
  for (const none of ["", ";", "=", "one=2\nold=1"]) document.cookie = none;
  see(document.cookie.split("; ").includes(""));
  see(document.cookie.split("; ").filter((one) => /^(one|two|gone|old|hidden)/.test(one)).sort());
});

twin("storage: history", async (see) => {
  history.replaceState({ at: 0 }, "");
  history.pushState({ at: 1 }, "", "/elsewhere?x#top");
  see(history.state, location.hash);
  history.pushState({ at: 2 }, "", "#two");
  see(history.state, location.hash);
  const popped = once(window, "popstate");
  history.back();
  see((await popped).state, location.hash);
  see(await failure(() => history.pushState(() => 0, "", "/x")), await failure(() => history.pushState()), await failure(() => history.replaceState(1)));
});

twin("storage: history and the fragment", async (see) => {
  history.replaceState(null, "", "#");
  const heard = [];
  const hear = (event) => heard.push(event.type);
  for (const type of ["hashchange", "popstate"]) addEventListener(type, hear);
  const changed = once(window, "hashchange");
  location.hash = "three";
  await changed;
  see(location.hash, heard.sort(), history.state);
  history.replaceState({ a: new Date(0), b: new Map([[1, 2]]) }, "");
  see(history.state.a instanceof Date, history.state.b.get(1), location.hash, history.length > 1, history.scrollRestoration);
  history.pushState(null, "", "/another?x#other");
  const back = once(window, "popstate");
  history.back();
  await back;
  await new Promise((go) => setTimeout(go, 50));
  see(heard);
  for (const type of ["hashchange", "popstate"]) removeEventListener(type, hear);
});

twin("storage: links within the page", async (see) => {
  history.replaceState(null, "", "#");
  const stage = document.getElementById("stage");
  for (const href of ["#one", `${location.href.replace(/#.*/, "")}#two`]) {
    const link = stage.appendChild(document.createElement("a"));
    link.href = href;
    const changed = once(window, "hashchange");
    link.click();
    see((await changed).type, location.hash, link.hash);
  }
});

twin("storage: clicks of scripts that nobody can cancel, or that go no further", async (see) => {
  const stage = document.getElementById("stage");
  const initiated = (bubbles) => {
    const event = document.createEvent("MouseEvents");
    event.initEvent("click", bubbles, false);
    return event;
  };
  for (const bubbles of [true, false]) {
    for (const make of [() => new MouseEvent("click", { bubbles }), () => new Event("click", { bubbles }), () => new PointerEvent("click", { bubbles }), () => initiated(bubbles), () => new MouseEvent("click", { bubbles, cancelable: true })]) {
      stage.innerHTML = '<a href="/api/status/204">x</a><svg><a href="/api/status/204"></a></svg><form><button>x</button></form>';
      const told = [];
      for (const one of [stage, stage.firstChild]) one.onclick = ({ currentTarget }) => void told.push(currentTarget.localName);
      stage.lastChild.onsubmit = () => (told.push("submit"), false);
      // Of an event that is not the mouse's a link takes notice, and no button.
      for (const one of stage.querySelectorAll("a, button")) one.dispatchEvent(make());
      const alone = Object.assign(document.createElement("a"), { href: "/api/status/204", onclick: () => void told.push("alone") });
      alone.dispatchEvent(make());
      await new Promise((go) => setTimeout(go, 50));
      see(bubbles ? told : told.sort()); // where one stops, what browsers would do at once comes a moment later
    }
  }
});

twin("storage: clicks in closed shadow roots, and those that say where they lead", async (see) => {
  history.replaceState(null, "", "#");
  const stage = document.getElementById("stage");
  const told = [];
  const holder = stage.appendChild(document.createElement("div"));
  const root = holder.attachShadow({ mode: "closed" });
  root.innerHTML = '<a href="/api/status/204"><b>x</b></a><form><button>x</button></form><a href="#closed">x</a><input type="checkbox">';
  const [link, form, own, box] = root.children;
  form.onsubmit = ({ submitter }) => (told.push(["submit", submitter?.localName]), false);
  root.onclick = ({ target }) => void told.push(target.localName);
  holder.onclick = ({ target }) => void told.push(target.localName);
  for (const one of [link.firstChild, form.firstChild, box]) one.click();
  link.onclick = () => false;
  link.click();
  see(told, box.checked, holder.shadowRoot, root.mode);
  own.click();
  await once(window, "hashchange");
  see(location.hash);
  stage.innerHTML = '<a><input type="checkbox"></a><a href="/api/status/204">x</a>';
  const [late, stopped] = stage.children;
  late.onclick = ({ target }) => void (target === late && (late.href = "#late"));
  late.firstChild.click();
  see(late.firstChild.checked);
  late.click();
  await once(window, "hashchange");
  see(location.hash);
  stopped.onclick = (event) => void (event.cancelBubble = true, told.push(event.cancelBubble));
  stopped.click();
  await new Promise((go) => setTimeout(go, 50));
  see(told.at(-1));
});

twin("storage: links that a click makes, changes or takes away", async (see) => {
  const stage = document.getElementById("stage");
  const ways = {
    "<a>x</a>": (event, link) => (event.stopPropagation(), (link.href = "#late")),
    '<a href="#no"><i>x</i></a>': (_, link) => link.removeAttribute("href"),
    '<a href="#no"> x</a>': (_, link) => (link.href = " #other "),
    '<a href="#gone">x</a>': (_, link) => link.remove(),
    '<a href="#stopped">x</a>': (event) => Event.prototype.stopPropagation.call(event),
    '<a href="#never">x</a>': (event) => (event.stopImmediatePropagation(), event.preventDefault()),
    '<a href="#false">x</a>': (event) => (event.stopPropagation(), false),
    '<a href="#in"><input type="checkbox"></a>': () => 0,
    '<a href="#in"><input type="color"></a>': () => 0,
    '<a href="#in"><input type="file" disabled></a>': () => 0,
    '<a href="#in"><input type="reset"></a>': () => 0,
    '<form><a href="#in"><button type="button">x</button></a></form>': () => 0,
    '<a href="#in"><label>x<input type="checkbox"></label></a>': () => 0,
    '<a href="#in"><label>x<b>y</b><select></select></label></a>': () => 0,
    '<a href="#in"><label>x</label></a>': () => 0,
    '<label><input type="checkbox"><a href="#in"><i>x</i></a></label>': () => 0,
    '<form onsubmit="return false"><button><a href="#in"><i>x</i></a></button></form>': () => 0,
    '<form onsubmit="return false"><button><a href="#in">x</a></button></form>': () => 0,
    '<a href="#in"><svg><a><text>x</text></a></svg></a>': () => 0,
  };
  for (const [html, way] of Object.entries(ways)) {
    history.replaceState(null, "", "#");
    stage.innerHTML = html;
    const link = stage.querySelector("a");
    const handler = (event) => (way(event, link) === false ? false : undefined);
    link.onclick = handler;
    let inner = link;
    while (inner.firstElementChild) inner = inner.firstElementChild;
    if (inner.parentNode.control && inner.control !== inner) inner = inner.parentNode;
    inner.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }));
    await new Promise((go) => setTimeout(go, 20));
    see(html, location.hash, inner.checked, link.onclick === handler);
  }
});

twin("storage: clicks that no window hears of, and by other buttons", async (see) => {
  const told = [];
  const hear = ({ message }) => told.push(message);
  addEventListener("error", hear);
  const clicks = {
    "of what is no element": () => [document, window, document.createTextNode("x")].forEach((one) => one.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }))),
    alone: (link) => link.click(),
    "of a child": (link) => link.appendChild(document.createElement("i")).click(),
    "in a box": (link) => (document.createElement("p").append(link), link.dispatchEvent(new MouseEvent("click"))),
    "prevented above": (link) => ((document.createElement("p").onclick = () => false), (link.onclick = () => false), link.click()),
    "then in the page": (link) => (link.addEventListener("click", (event) => event.preventDefault(), { once: true }), link.click(), document.getElementById("stage").append(link), link.click()),
    "no mouse's": (link) => link.dispatchEvent(new Event("click", { cancelable: true })),
    "by the second button": (link) => document.getElementById("stage").appendChild(link).dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true, button: 2 })),
    "of a child that does not bubble": (link) => document.getElementById("stage").appendChild(link).appendChild(document.createElement("i")).dispatchEvent(new MouseEvent("click")),
  };
  for (const [name, click] of Object.entries(clicks)) {
    history.replaceState(null, "", "#");
    click(Object.assign(document.createElement("a"), { href: "#outside" }));
    await new Promise((go) => setTimeout(go, 20));
    see(name, location.hash);
  }
  removeEventListener("error", hear);
  see(told);
  document.getElementById("stage").innerHTML = '<p contenteditable><a id="edited" href="#edited">a link</a></p>';
  await act("#edited", "click");
  await new Promise((go) => setTimeout(go, 20));
  see(location.hash);
});

twin("storage: a listener that is added on the way down is the last", async (see) => {
  const stage = document.getElementById("stage");
  stage.innerHTML = '<a href="/elsewhere">x</a>';
  const last = (event) => {
    see(event.defaultPrevented);
    event.preventDefault();
  };
  const first = () => addEventListener("click", last, { once: true });
  addEventListener("click", first, true);
  stage.firstChild.click();
  removeEventListener("click", first, true);
});

twin("storage: links of pictures", async (see) => {
  history.replaceState(null, "", "#");
  const stage = document.getElementById("stage");
  stage.innerHTML = '<map><area href="#area" shape="default"></map><svg><a href="#svg"></a></svg><svg><a xlink:href="#older"></a></svg>';
  for (const picture of stage.children) {
    const changed = once(window, "hashchange");
    picture.firstChild.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }));
    await changed;
    see(location.hash);
  }
});
