twin("fetch: a GET", async (see) => {
  const response = await fetch("/api/json");
  see(response.status, response.statusText, response.ok, response.url, response.redirected, response.type, response.bodyUsed);
  see(response.headers.get("content-type"), response.headers.get("etag"), response.headers.get("set-cookie"));
  see(await response.json(), response.bodyUsed, await failure(response.text()));
});

twin("fetch: bodies", async (see) => {
  const form = new FormData();
  form.append("a", "1");
  form.append("a", "zwei ü");
  form.append("file", new File([new Uint8Array([0, 1, 255])], "ü.bin", { type: "application/octet-stream" }));
  const bodies = ["text", "", new URLSearchParams("a=1&b=%20"), form, new Blob(["blob"], { type: "text/csv" }),
    new Blob([new Uint8Array([255])]), new Uint8Array([1, 2, 3, 255]), new Uint8Array([9, 8, 7]).subarray(1), new ArrayBuffer(2), null];
  for (const body of bodies) see(await (await fetch("/api/echo", { method: "POST", body })).json());
  see(await (await fetch("/api/echo", { method: "PUT", body: '{"a": 1}', headers: { "content-type": "application/json" } })).json());
  see(await (await fetch("/api/echo", { method: "PUT", body: "{broken", headers: { "content-type": "application/json" } })).json());
});

twin("fetch: methods", async (see) => {
  for (const method of ["GET", "get", "POST", "put", "PATCH", "DELETE", "OPTIONS"]) {
    const response = await fetch("/api/echo", { method }).catch((error) => error);
    see(method, response instanceof Response ? (response.ok ? (await response.json()).method : response.status >= 400) : response.name);
  }
  const head = await fetch("/api/json", { method: "HEAD" });
  see(head.status, head.headers.get("content-length"), head.body === null, await head.text());
  for (const path of ["empty", "status/205", "status/204"]) see(path, (await fetch(`/api/${path}`)).headers.get("content-length"));
  const empty = await fetch("/api/empty");
  see(empty.body === null, (await empty.body.getReader().read()).done);
});

twin("fetch: what is refused", async (see) => {
  const attempts = [
    () => fetch("/x", { method: "TRACE" }), () => fetch("/x", { method: "connect" }), () => fetch("/x", { method: "Track" }), () => fetch("/x", { method: "a b" }),
    () => fetch("/x", { body: "b" }), () => fetch("/x", { method: "HEAD", body: "b" }), () => fetch("http://["), () => fetch("http://a:b@c/"),
    () => fetch("/x", { headers: { "a b": "c" } }), () => fetch("/x", { mode: "navigate" }), () => fetch("/x", { signal: {} }), () => fetch(),
    () => fetch("/x", { method: "POST", body: new Blob(["b"]).stream() }), () => fetch("/x", { window: 1 }), () => fetch("foo:bar"),
  ];
  for (const attempt of attempts) {
    let threw = "rejected";
    const promise = (() => { try { return attempt(); } catch (error) { threw = "threw"; throw error; } });
    see(String(attempt), threw, await failure(promise));
  }
  for (const init of [5, "x", true, Symbol("x"), 1n]) see(await failure(fetch("/api/json", init)));
  for (const init of [null, undefined, () => 1, []]) see((await fetch("/api/json", init)).status);
});

twin("fetch: unbound, with a Request, an init over it", async (see) => {
  const { fetch: unbound } = window;
  see(fetch.length, fetch.name, typeof unbound, (await unbound("/api/json")).status);
  const request = new Request("/api/echo?q=1#hash", { method: "POST", body: "one", headers: { "x-a": "1", "x-b": "2" } });
  see(request.url, request.method, request.bodyUsed);
  const echoed = await (await fetch(request, { headers: { "x-a": "3" } })).json();
  see(echoed, request.bodyUsed, await failure(() => fetch(request)), await failure(() => request.text()));
  const again = new Request("/api/echo", { method: "POST", body: "two" });
  see(await (await fetch(again.clone())).json(), again.bodyUsed, await again.text());
  see(await (await fetch(new URL("/api/echo", location.href))).json());
});

twin("fetch: redirects keep what is said of a body with the method", async (see) => {
  const headers = { "content-language": "en", "x-a": "1" };
  for (const [method, status] of [["GET", 302], ["GET", 307], ["GET", 303], ["OPTIONS", 308], ["POST", 303], ["POST", 301]]) {
    const said = await (await fetch(`/api/redirect?status=${status}`, { method, headers })).json();
    see(method, status, said.method, said.language, said.headers["x-a"]);
  }
});

twin("fetch: an aborted answer is told of at once", async (see) => {
  const readers = ["arrayBuffer", "blob", "bytes", "formData", "json", "text"];
  for (const path of ["/api/json", "/api/empty", "/api/status/200"]) {
    for (const name of readers) {
      const control = new AbortController();
      const response = await fetch(path, { signal: control.signal });
      control.abort("why");
      const order = [];
      const tell = (what) => (value) => void order.push(what, String(value?.name ?? value));
      const read = response[name]().then(tell("read"), tell("failed"));
      await Promise.resolve().then(() => order.push("next"));
      await read;
      see(path, name, order, await response[name]().then(() => "read", (error) => String(error?.name ?? error)));
    }
  }
  const control = new AbortController();
  const whole = await fetch("/api/json", { signal: control.signal });
  await whole.text();
  control.abort("late");
  see(whole.bodyUsed, await failure(() => whole.text()));
});

twin("fetch: only what is in a cache", async (see) => {
  see(await failure(() => fetch("/api/json?never", { cache: "only-if-cached", mode: "same-origin" })), await failure(() => fetch("/api/json", { cache: "only-if-cached" })));
  const local = await fetch("data:text/plain,local", { cache: "only-if-cached", mode: "same-origin" }).then((response) => response.text(), (error) => error.name);
  see(typeof local);
});

twin("fetch: what others put on prototypes does not matter", async (see) => {
  for (const name of ["size", "highWaterMark", "type", "start", "pull", "cancel", "autoAllocateChunkSize", "then"]) {
    for (const given of [{ get() { throw new Error(name); } }, { value: -1, writable: true }, { value: {}, writable: true }]) {
      if (name === "then" && given.get) continue;
      Object.defineProperty(Object.prototype, name, { ...given, configurable: true });
      const text = await fetch("/api/json").then((response) => response.text(), (error) => error.name).finally(() => delete Object.prototype[name]);
      see(name, text);
    }
  }
});

twin("fetch: null bodies and statuses", async (see) => {
  for (const status of [200, 201, 204, 205, 304, 400, 401, 404, 409, 418, 422, 500, 503]) {
    const response = await fetch(`/api/status/${status}`);
    see(status, response.status, response.ok, await response.text());
  }
});

twin("fetch: redirects", async (see) => {
  const followed = await fetch("/api/redirect");
  see(followed.redirected, followed.url, followed.status, (await followed.json()).method);
  const posted = await fetch("/api/redirect", { method: "POST", body: "b" });
  see(posted.redirected, (await posted.json()).method);
  const kept = await fetch("/api/redirect?status=307", { method: "POST", body: "kept" });
  see((await kept.json()).method);
  const manual = await fetch("/api/redirect", { redirect: "manual" });
  see(manual.type, manual.status, manual.url, manual.headers.get("location"), manual.body === null);
  see(await failure(fetch("/api/redirect", { redirect: "error" })));
});

twin("fetch: clone, bytes, blob, formData", async (see) => {
  const response = await fetch("/api/bytes");
  const clone = response.clone();
  see(clone.url, clone.type, [...new Uint8Array(await response.arrayBuffer())]);
  const blob = await clone.blob();
  see(blob.size, blob.type);
  see([...(await (await fetch("/api/form")).formData())], await failure((await fetch("/api/text")).json()));
  see(await (await fetch("/api/text")).text(), await failure((await fetch("/api/text")).formData()));
});

twin("fetch: body as a stream", async (see) => {
  const { body } = await fetch("/api/text");
  const reader = body.getReader();
  see(body.locked, new TextDecoder().decode((await reader.read()).value), (await reader.read()).done);
  const byob = (await fetch("/api/bytes")).body.getReader({ mode: "byob" });
  const first = await byob.read(new Uint8Array(2));
  see([...first.value], first.done);
  const parts = [];
  for await (const part of (await fetch("/api/text")).body.pipeThrough(new TextDecoderStream())) parts.push(part);
  see(parts.join(""));
});

twin("fetch: abort before, during, while reading, after", async (see) => {
  see(await failure(fetch("/api/json", { signal: AbortSignal.abort() })));
  see(await fetch("/api/json", { signal: AbortSignal.abort("mine") }).catch((reason) => reason));
  const during = new AbortController();
  const slow = fetch("/api/slow", { signal: during.signal });
  setTimeout(() => during.abort(), 50);
  see(await failure(slow), await failure(fetch("/api/slow", { signal: AbortSignal.timeout(50) })));
  const after = new AbortController();
  const response = await fetch("/api/json", { signal: after.signal });
  const json = await response.json();
  after.abort();
  see(json);
});

twin("fetch: integrity", async (see) => {
  const right = "sha256-" + "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=";
  for (const url of ["/api/hello", "data:,hello", URL.createObjectURL(new Blob(["hello"]))]) {
    const response = await fetch(url, { integrity: right });
    see(await response.clone().text(), response.bodyUsed, await response.text(), await failure(fetch(url, { integrity: right.replace("LPJ", "MPJ") })));
  }
  see((await fetch("/api/large?size=100000", { integrity: "md5-x" })).status, await failure(fetch("/api/large?size=100000", { integrity: right })));
});

twin("fetch: data: and blob:", async (see) => {
  const url = URL.createObjectURL(new Blob(["inside"], { type: "text/x" }));
  const blob = await fetch(url);
  see(await blob.text(), blob.headers.get("content-type"), blob.status);
  URL.revokeObjectURL(url);
  see(await failure(fetch(url)), await (await fetch("data:text/plain;base64,aMOk")).text(), await (await fetch("data:,a%20b")).text());
});

twin("fetch: data: URLs of every kind", async (see) => {
  for (const url of ["data:,a", "data:text/html,x?#y", "data:text/plain;base64,aGk=#y", "data:;base64,####", "data:text", "data:a b,c", "data:;charset=UTF-8,%C3%BC", "data:text/plain; charset=x ; base64 ,a%20Gk"]) {
    for (const init of [{}, { method: "HEAD" }, { method: "POST", body: "x" }, { mode: "no-cors" }]) {
      const response = await fetch(url, init).catch(({ name }) => void see(url, name));
      if (response) see(init, response.status, response.statusText, response.type, response.url, [...response.headers], response.body === null, await response.text());
    }
  }
  const url = URL.createObjectURL(new Blob(["b"]));
  see((await fetch(`${url}#y`)).url === url, await failure(fetch(url, { method: "HEAD" })));
});

twin("fetch: what is no URL", async (see) => {
  for (const input of [null, undefined, Symbol("x"), "/api/./json", " /api/json\n", new String("/api/json"), { toString: () => "/api/json" }]) {
    see(String(input), await fetch(input).then(({ url, ok }) => [url, ok], ({ name }) => name));
  }
});

twin("fetch: keepalive, and how much it may send", async (see) => {
  const sent = (body, more) => fetch("/api/status/201", { method: "POST", keepalive: true, body, ...more }).then(({ status }) => status, ({ name }) => name);
  for (const body of ["x".repeat(65536), "x".repeat(65537), new Blob([new Uint8Array(65537)]), new URLSearchParams({ a: "x".repeat(65536) })]) see(await sent(body));
  see(await sent(new Blob(["x"]).stream(), { duplex: "half" }), await sent(undefined, { method: "GET" }));
  see(await failure(fetch(new Request("/api/status/201", { method: "POST", keepalive: true, body: "x".repeat(65537) }))));
});

twin("fetch: bytes of another charset", async (see) => {
  see([...new Uint8Array(await (await fetch("/api/latin1")).arrayBuffer())], await (await fetch("/api/latin1")).text());
});

twin("fetch: headers", async (see) => {
  const headers = new Headers({ "X-One": "1", accept: "text/x" });
  headers.append("x-one", "2");
  see((await (await fetch("/api/echo", { headers })).json()).headers);
  see([...(await fetch("/api/json")).headers.keys()].filter((name) => /^(content-(type|length)|etag)/.test(name)));
});

twin("fetch: headers of an answer are not the page's to change", async (see) => {
  const response = await fetch("/api/json");
  for (const { headers } of [response, response.clone(), await fetch("/api/status/404"), Response.error()]) {
    for (const change of [() => headers.append("x-a", "1"), () => headers.set("etag", "x"), () => headers.delete("etag")]) see(await failure(change));
    see(headers.get("x-a"), headers instanceof Headers, Object.keys(headers));
  }
  const own = new Response("", { headers: response.headers });
  own.headers.set("etag", "x");
  own.headers.delete("content-type");
  see(own.headers.get("etag"), response.headers.get("etag"), new Headers(response.headers).get("content-type"));
});

twin("fetch: many at once", async (see) => {
  const all = await Promise.all(Array.from({ length: 1000 }, async (_, n) => (await (await fetch(`/api/echo?n=${n}`)).json()).query));
  see(all.every((query, n) => query === `n=${n}`), all.length);
});

twin("fetch: a beacon", async (see) => {
  see(navigator.sendBeacon("/api/beacon", new URLSearchParams("a=1")), await failure(() => navigator.sendBeacon("data:,x", "x")));
  see(navigator.sendBeacon("/api/beacon", new Blob([new Uint8Array(70000)])));
  let last;
  while (!(last = await (await fetch("/api/beacon")).json()).body) await new Promise((go) => setTimeout(go, 20));
  see(last.body, last.type);
});

twin("fetch: a Request and what it holds", async (see) => {
  const held = ({ url, method, mode, credentials, cache, redirect, referrerPolicy, integrity, keepalive, destination, bodyUsed }) =>
    ({ url, method, mode, credentials, cache, redirect, referrerPolicy, integrity, keepalive, destination, bodyUsed });
  see(held(new Request("/api/echo")));
  const options = { method: "put", credentials: "omit", cache: "no-store", redirect: "error", keepalive: true, body: "b", mode: "same-origin", referrerPolicy: "no-referrer" };
  const request = new Request("/api/echo?q#hash", { ...options, headers: { "X-A": "1" } });
  see(held(request), [...request.headers], held(request.clone()), held(new Request(request)), request.bodyUsed, request.signal.aborted);
  for (const attempt of [() => new Request(), () => new Request("http://["), () => new Request("/x", { body: "b" }), () => new Request("/x", { method: "a b" }),
    () => Request("/x"), () => new Request("/x", { mode: "navigate" }), () => new Request("http://a:b@c/"), () => new Request(request)]) see(String(attempt), await failure(attempt));
  class Mine extends Request {}
  const mine = new Mine("/api/echo", { method: "POST", body: "mine" });
  see(mine instanceof Request, Request.name, Request.length, String(mine), (await (await fetch(mine)).json()).body);
});

twin("fetch: what an error says", async (see) => {
  for (const attempt of [() => fetch("foo:bar"), () => fetch("/api/redirect", { redirect: "error" }), () => fetch("blob:none")]) {
    const error = await attempt().catch((thrown) => thrown);
    see(error.constructor === TypeError, error.name, error.message);
  }
  const abort = await fetch("/api/slow", { signal: AbortSignal.timeout(20) }).catch((thrown) => thrown);
  see(abort instanceof DOMException, abort.name, abort.code, abort.message);
});

twin("fetch: beacons of all kinds", async (see) => {
  const form = new FormData();
  form.append("a", "ü");
  for (const body of [undefined, "text", form, new Blob(["b"], { type: "text/csv" }), new Uint8Array([1, 2])]) {
    see(navigator.sendBeacon("/api/beacon/sink", body));
    see((({ method, type, body: bytes, fields }) => [method, type, bytes, fields])(await arrived()));
  }
  see(await failure(() => navigator.sendBeacon("http://[", "x")), navigator.sendBeacon.length);
  see(await failure(() => navigator.sendBeacon()), await failure(() => navigator.sendBeacon("/api/beacon/sink", new ReadableStream())));
});

twin("fetch: what a page makes of its location", async (see) => {
  const { origin, protocol, host, href, pathname, search } = location;
  for (const url of [`${origin}/api/echo?1`, `${protocol}//${host}/api/echo?2`, new URL("/api/echo?3", origin), new URL("/api/echo?4", href)]) see(await (await fetch(url)).json());
  const xhr = new XMLHttpRequest();
  xhr.open("GET", `${origin}/api/echo?5`);
  xhr.send();
  await once(xhr, "load");
  see(JSON.parse(xhr.responseText), xhr.responseURL);
  const picture = new Image();
  picture.src = `${origin}/api/pixel.png?location`;
  see(await loaded(picture), picture.naturalWidth);
  const hosts = [href, "/api", `${origin}/api`, "api#x"].map((url) => Object.assign(document.createElement("a"), { href: url })).map(({ protocol, host }) => protocol + host);
  see(new Set(hosts).size, new Set([...hosts, Object.assign(document.createElement("a"), { href: "http://other.example/" }).host]).size);
  // As htmx 2 does, the one with `selfRequestsOnly`.
  see(new URL("/api", protocol === "about:" ? window.origin : href).origin === (protocol === "about:" ? window.origin : origin));
  const own = new URL(origin + pathname + search);
  see(own.protocol !== "null:", own instanceof URL, own.constructor === URL, new URL("/api/echo", new URL("/api/json", href)).pathname);
  for (const broken of [["/api"], ["nope"], ["x", "nope"], ["http://a b", href], ["nullable"]]) see(await failure(() => new URL(...broken)));
  for (const given of [["/api/echo", href], ["/api/echo?q", origin], [`${origin}/api/echo`], [`${origin}/api/echo`, "nope"], ["http://a/b"], ["x", new URL(href)], ["/api"], ["nope"], ["x", "nope"], ["x", undefined], [undefined, href], ["http://a b", href]]) {
    const parsed = URL.parse(...given);
    see(parsed && parsed.pathname + parsed.search, parsed instanceof URL, URL.canParse(...given));
  }
  see(await failure(() => URL.parse()), await failure(() => URL.canParse()));
});

twin("fetch: a part of a blob", async (see) => {
  const url = URL.createObjectURL(new Blob(["0123456789"], { type: "text/plain" }));
  const ranges = ["2-4", "2-", "-3", "-30", "-0", "0-99", "9-9", "10-", "5-2", "-", "1-2,4-5", " 1 - 2 "].map((part) => `bytes=${part}`);
  for (const range of [...ranges, "BYTES=1-2", "items=1-2", ""]) {
    for (const from of [url, "data:text/plain,0123456789"]) {
      const response = await fetch(from, { headers: { range } }).catch(({ name }) => void see(range, name));
      if (response) see(range, response.status, response.statusText, [...response.headers], await response.text());
    }
  }
});

twin("fetch: what URL says of itself", async (see) => {
  for (const name of ["parse", "canParse"]) see(URL[name].name, URL[name].length, await failure(() => URL[name]()));
});

twin("fetch: a method of the window, with an argument", async (see) => {
  const frame = document.getElementById("stage").appendChild(document.createElement("iframe"));
  for (const self of [undefined, null, window, globalThis, {}, document, "x", 0, frame]) {
    see(await fetch.call(self, "/api/json").then(({ status }) => status, ({ name }) => name));
    const told = fetch.call(self); // an error of a promise, not thrown
    see(told instanceof Promise, await failure(told));
  }
  const client = { fetch };
  see(await failure(client.fetch("/api/json")), await failure(fetch.bind(window)()), (await fetch.bind(window)("/api/json")).status);
});

twin("fetch: the referrer of a request", async (see) => {
  const own = new URL(new Request("/api/echo").url);
  const place = (referrer) => (referrer.startsWith(own.origin) ? referrer.slice(own.origin.length) : referrer);
  for (const referrer of [undefined, "", "about:client", "/api/a?b#c", "a", own.href, `${own.origin}#x`, own.href.replace("//", "//user:word@"), "http://other.example/", "data:,x", "blob:x"]) {
    const made = new Request("/api/echo", { referrer });
    see(referrer && place(referrer), place(made.referrer), place(made.clone().referrer), place(new Request(made).referrer), place(new Request(made, { method: "POST" }).referrer));
    see((await fetch(made)).status, await failure(fetch("/api/echo", { referrer })));
  }
  const first = new Request("/api/echo", { method: "POST", body: "b", headers: { "x-a": "1" }, referrer: "/api/a" });
  const second = new Request("/api/other", first);
  see(second.method, second.headers.get("x-a"), place(second.referrer), await second.text(), first.bodyUsed);
  see((await fetch("/api/echo", new Request("/api/other", { method: "PUT" }))).status, new Request("/api/echo", Object.freeze({ referrer: "" })).referrer);
  see(await failure(() => new Request("/api/echo", { referrer: "http://a b" })), await failure(fetch("/api/echo", { referrer: "http://a b" })));
  const made = new Request("/api/echo", { referrer: "/api/a" });
  class Own extends Request {}
  for (const init of [undefined, null, {}, { unknown: 1 }, { method: undefined }, { cache: "no-store" }, { referrer: "" }, { referrer: null }, Object.create({ referrer: "/b" }), { get referrer() { see("read"); return { toString: () => "/c" }; } }]) {
    see(await failure(() => see(place(new Request(made, init).referrer), place(new Request("/x", init).referrer), place(new Own(made, init).referrer), new Own(made, init) instanceof Own)));
  }
  see(await failure(() => Object.getOwnPropertyDescriptor(Request.prototype, "referrer").get.call({})), await failure(() => new Request()));
});

twin("fetch: redirects that lead nowhere, or on for ever", async (see) => {
  for (const to of ["mailto:a@b.example", "data:text/plain,a", "about:blank", "about:unicorn", "blob:x", "javascript:1", "ftp://a.example/", "invalidurl:", "http://", "https:", "http://[::1/a", "http://127.0.0.1:x/a", "http://127.0.0.1:99999/a", "/api/json"]) {
    const url = `/api/redirect?to=${encodeURIComponent(to)}`;
    for (const redirect of ["follow", "error", ...(/^https?:/.test(to) ? [] : ["manual"])]) see(to, redirect, await failure(fetch(url, { redirect }).then(async (got) => see(got.type, got.status, (await got.text()).length))));
    const xhr = await xhrRun(() => 0, "GET", url);
    see(xhr.status, xhr.responseURL, xhr.responseText);
  }
  for (const times of [0, 1, 4, 5, 18, 19, 20]) see(times, await failure(fetch(`/api/redirect?times=${times}`).then((got) => see(got.status, got.redirected, got.url))));
  see(await failure(fetch("/api/loop")));
});

twin("fetch: what a request says of caches", async (see) => {
  const shown = ["cache-control", "pragma"];
  for (const cache of ["default", "no-store", "reload", "no-cache", "force-cache"]) {
    for (const headers of [{}, { "cache-control": "x=1" }, { pragma: "x" }, { "cache-control": "max-age=9", pragma: "y" }]) {
      const { headers: said } = await (await fetch(`/api/echo?${cache}`, { cache, headers, method: "POST" })).json();
      see(cache, headers, shown.map((name) => said[name]));
    }
  }
  const { headers: said } = JSON.parse((await xhrRun(() => 0, "POST", "/api/echo")).responseText);
  see(shown.map((name) => said[name]));
});

twin("fetch: a request of mode same-origin leads to no other site", async (see) => {
  const mode = "same-origin";
  for (const url of ["http://other.example/", "https://localhost/", "//other.example/api/json", "/api/json", new Request("/api/json").url, "/api/redirect?to=/api/json", "data:,a"]) {
    see(url, await failure(fetch(url, { mode })), await failure(fetch(new Request(url, { mode }))));
  }
});

twin("fetch: the URL of an answer is that of the request where none led on", async (see) => {
  for (const url of ["/api/json?a=b#c", "/api/json?", "/api/json?é", "/api/./json", "/api/json#", "/api/json?a='b'|c"]) see((await fetch(url)).url, (await fetch(new Request(url))).url, (await xhrRun(() => 0, "GET", url)).responseURL);
});
