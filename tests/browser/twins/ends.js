/** The order in which things come to an end. */
async function order(see, ...named) {
  const seen = [];
  await Promise.all(named.map(([name, promise]) => promise.then(() => seen.push(`${name} well`), (reason) => seen.push([name, reason?.name ?? reason]))));
  see(seen);
}

const microtasks = async (count) => {
  while (count--) await 0;
};

twin("end: what is aborted before rejects in the next microtask, with its reason", async (see) => {
  for (const reason of ["mine", undefined, null, 5, new TypeError("x")]) {
    const signal = AbortSignal.abort(reason);
    await order(see, ["one", microtasks(1)], ["fetch", fetch("/api/json", { signal })], ["two", microtasks(2)]);
    await order(see, ["fetch", fetch(new Request("/api/json", { signal }))], ["one", microtasks(1)]);
    await order(see, ["fetch", fetch("data:,a", { signal })], ["one", microtasks(1)]);
  }
  await order(see, ["fetch", fetch("/api/json", { signal: AbortSignal.abort("a"), method: "A B" })], ["one", microtasks(1)]);
  const kept = await fetch(new Request("/api/hello", { signal: AbortSignal.abort("a") }), { signal: null });
  see(await kept.text());
});

twin("end: what is aborted on its way rejects in the next microtask", async (see) => {
  const control = new AbortController();
  const asked = fetch("/api/slow", { signal: control.signal });
  await new Promise((go) => setTimeout(go, 100));
  control.abort("late");
  await order(see, ["fetch", asked], ["one", microtasks(1)], ["two", microtasks(2)]);
});

twin("end: delays at their extremes", async (see) => {
  see(await failure(fetch("/api/slow", { signal: AbortSignal.timeout(0) })));
  for (const delay of [2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1, 2 ** 32, 2 ** 53 - 1]) see(delay, await (await fetch("/api/hello", { signal: AbortSignal.timeout(delay) })).text());
  see(await failure(() => AbortSignal.timeout(-1)), await failure(() => AbortSignal.timeout(2 ** 53)));
  for (const timeout of [2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1, 2 ** 32, -1, 0, NaN, "5000"]) {
    const xhr = await xhrRun(() => 0, "GET", "/api/hello", { set: (one) => (one.timeout = timeout) });
    see(xhr.timeout, xhr.status);
  }
  const waits = new XMLHttpRequest();
  waits.open("GET", "/api/slow");
  waits.timeout = 2 ** 32 - 1;
  waits.ontimeout = () => see("too soon");
  waits.send();
  await new Promise((go) => setTimeout(go, 300));
  see(waits.readyState);
  waits.abort();
});

twin("end: a request keeps the blob of its URL", async (see) => {
  const url = URL.createObjectURL(new Blob(["inside"], { type: "text/x" }));
  const request = new Request(url);
  const copy = request.clone();
  const again = new Request(request);
  const renamed = new Request(copy.clone(), { headers: { a: "b" } });
  const fetched = fetch(url);
  const xhr = new XMLHttpRequest();
  xhr.open("GET", url);
  URL.revokeObjectURL(url);
  see(await (await fetched).text());
  for (const one of [copy, again, renamed]) see(await (await fetch(one)).text(), one instanceof Request, one.constructor === Request);
  const done = once(xhr, "loadend");
  xhr.send();
  await done;
  see(xhr.status, xhr.responseText, await failure(fetch(url)), await failure(fetch(new Request(url))));
  xhr.open("GET", url);
  const failed = once(xhr, "loadend");
  xhr.send();
  await failed;
  see(xhr.status);
});

twin("end: window.stop() ends what is on its way", async (see) => {
  const xhr = new XMLHttpRequest();
  const events = [];
  const closed = [];
  logged(xhr, (line) => events.push(line));
  xhr.open("GET", "/api/slow");
  xhr.send();
  const source = new EventSource("/api/events/said?hold&body=");
  const asked = fetch("/api/slow").then(() => "well", (error) => [error.name, error instanceof DOMException]);
  await new Promise((go) => setTimeout(go, 500));
  source.onerror = () => closed.push(source.readyState);
  window.stop();
  await new Promise((go) => setTimeout(go, 100));
  see(await Promise.race([asked, new Promise((go) => setTimeout(go, 1000, "goes on"))]), xhr.readyState, xhr.status, source.readyState, closed, events);
  see(await (await fetch("/api/hello")).text());
  source.close();
});
