const brand = (value) => Object.prototype.toString.call(value);

twin("brand: classes of what the page has", async (see) => {
  const answer = await fetch("/api/json"), request = new Request("/api/json"), xhr = new XMLHttpRequest();
  const source = new EventSource("/api/none");
  source.close();
  const things = { answer, request, xhr, source, headers: answer.headers, upload: xhr.upload, local: localStorage, session: sessionStorage, history, location, document, controller: new AbortController(), form: new FormData() };
  const classes = [Response, Request, Headers, EventSource, XMLHttpRequest, XMLHttpRequestUpload, XMLHttpRequestEventTarget, EventTarget, Storage, History, Location, FormData];
  for (const [name, thing] of Object.entries(things)) {
    see(name, brand(thing), String(thing).slice(0, 30).replace(/^(http|about).*/, "address"), thing.constructor?.name);
    see(classes.filter((one) => thing instanceof one).map((one) => one.name), await failure(() => structuredClone(thing)));
  }
  see(classes.map((one) => [brand(one), brand(one.prototype), one.name, one.length, one.prototype.constructor === one, typeof one]));
  see(brand(window), brand(navigator));
});

twin("brand: the classes of the browser are called by its rules", async (see) => {
  for (const one of [Response, Request, Headers, EventSource, XMLHttpRequest, FormData, URL, StorageEvent, Storage, History, Location]) {
    see(one.name, await failure(() => one()), await failure(() => new one()), await failure(() => one.call({})));
    class Other extends one {}
    see(await failure(() => { const made = new Other("/api/json"); see(made instanceof one, made instanceof Other, made.constructor === Other); made.close?.(); }));
  }
  for (const [owner, name] of [[Response.prototype, "status"], [Request.prototype, "url"], [XMLHttpRequest.prototype, "status"], [EventSource.prototype, "url"], [Storage.prototype, "length"], [History.prototype, "length"], [StorageEvent.prototype, "storageArea"], [MessageEvent.prototype, "source"]]) {
    see(name, await failure(() => owner[name]), await failure(() => Object.getOwnPropertyDescriptor(owner, name).get.call({})));
  }
});

twin("brand: events with what the runtime stands in for", async (see) => {
  const { parent } = window;
  const event = await failure(() => see(new MessageEvent("x", { source: parent }).source === parent, new MessageEvent("x", { source: parent, data: 1 }).data));
  see(event, await failure(() => new MessageEvent("x", { source: window }).source === window), await failure(() => new MessageEvent("x", { source: {} })), new MessageEvent("x").source, new MessageEvent("x", { source: null }).source);
  const late = new MessageEvent("x");
  see(await failure(() => late.initMessageEvent("y", false, false, 1, "o", "", parent, [])), late.source === parent, late.type);
  class Own extends MessageEvent {}
  see(await failure(() => see(new Own("x", { source: parent }) instanceof Own)), MessageEvent.name, MessageEvent.length, MessageEvent.prototype.constructor === MessageEvent);
  see(await failure(() => new UIEvent("x", { view: window })));
  see(await failure(() => new StorageEvent("x", { storageArea: localStorage })), await failure(() => new StorageEvent("x", { storageArea: {} })));
  see(await failure(() => new PopStateEvent("x", { state: history.state })), await failure(() => new ProgressEvent("x", { loaded: 1 })));
  window.dispatchEvent(new MessageEvent("message", { data: "own", source: window }));
  const got = once(window, "message");
  window.postMessage({ a: new Date(0), b: new Map([[1, new Set([2])]]) }, "*");
  const { data, source } = await got;
  see(brand(data.a), brand(data.b), source === window);
  see(await failure(() => window.postMessage(localStorage, "*")), await failure(() => window.postMessage(new Response(), "*")), await failure(() => window.postMessage(() => 1, "*")));
  const channel = new MessageChannel();
  const heard = once(channel.port2, "message");
  channel.port2.start();
  channel.port1.postMessage(new Uint8Array([1, 2]));
  see([...(await heard).data]);
});
