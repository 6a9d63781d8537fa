/** The URL of a stream with this text, or these bytes. */
function streamOf(text, more = "") {
  const bytes = typeof text === "string" ? new TextEncoder().encode(text) : text;
  return `/api/events/said?body=${encodeURIComponent(btoa(String.fromCharCode(...bytes)))}${more}`;
}

/** What a source hears until it is told the end, or ends for good. */
async function heard(see, url, ...types) {
  const source = new EventSource(url);
  await new Promise((over) => {
    const say = ({ type, data, lastEventId, origin }) => see(type, data, lastEventId, origin === new URL(source.url).origin);
    for (const type of ["message", ...types]) source.addEventListener(type, say);
    source.onopen = () => see("open", source.readyState);
    source.onerror = () => {
      see("error", source.readyState);
      if (source.readyState === 2) over();
    };
    source.addEventListener("end", ({ data }) => over(see("end", data)));
  });
  source.close();
  see(source.readyState);
}

twin("source: ids of every kind go out in UTF-8", async (see) => {
  for (const id of ["abc", "é", "日本語", "😀", "ü  ö", "a, b; c=\"d\"", " spaces ", "a\u0000b", "\u00a0"]) {
    await heard(see, streamOf(`id: before\nretry: 20\ndata: first\n\nid: ${id}\ndata: second\n\n`));
  }
});

twin("source: fields as HTML reads them", async (see) => {
  const end = "\n\nevent: end\ndata: over\n\n";
  for (const text of [
    "data:a\ndata: b\ndata:  c\ndata", "data", "data:\ndata:", ":data: a", "data : a\ndata: b", " data: a\ndata: b", "DATA: a\ndata: b", "data: a\n:comment\ndata: b",
    "event: x\ndata: a", "event: x\nevent\ndata: a", "event: x\n\ndata: a", "event:\ndata: a", "id: 1\ndata: a\n\ndata: b\n\nid\ndata: c", "id: 1\n\ndata: a", "id:1\u00002\ndata: a",
    "data: a\r\rdata: b\r\n\r\ndata: c\n\rdata: d", "\ufeffdata: a", "\ufeff\ufeffdata: a\n\ndata: b", "data: \ufeffa", "retry: x\ndata: a", "\ndata: a\u2028b\u0085c\u000bd", "data: \u0000",
    "data:a:b", "data: a\nunknown: b\nunknown", "", "event: x",
  ]) {
    see(text);
    await heard(see, streamOf(text + end, "&hold"), "x");
  }
});

twin("source: bytes that are no UTF-8", async (see) => {
  for (const bytes of [[0xff, 0x61], [0xc3], [0xe2, 0x82], [0xed, 0xa0, 0x80]]) {
    const [start, end] = ["data: ", "\n\nevent: end\ndata: over\n\n"].map((text) => [...new TextEncoder().encode(text)]);
    await heard(see, streamOf([...start, ...bytes, ...end], "&hold"));
  }
});

twin("source: types and statuses that end it for good, and that do not", async (see) => {
  const body = `body=${encodeURIComponent(btoa("event: end\ndata: over\n\n"))}`;
  for (const type of ["text/event-stream", "text/event-stream;", "TEXT/Event-Stream; a=b", "text/event-stream; charset=utf-8", "text/event-stream;charset=UTF-8", 'text/event-stream; charset="utf-8"',
    "text/event-stream;charset=windows-1251", "text/event-stream; bogus", "text/plain", "text/event-streams"]) {
    see(type);
    await heard(see, `/api/${/stream(;|$)/i.test(type) ? "events/said?hold" : "said?"}&${body}&type=${encodeURIComponent(type)}`);
  }
  for (const status of [201, 202, 203, 205, 400, 500, 503, 599]) {
    see(status);
    await heard(see, `/api/said?status=${status}&type=text/event-stream`);
  }
});

twin("source: how long it waits before it connects again", async (see) => {
  const again = async (retry, patience) => {
    const source = new EventSource(streamOf(`retry: ${retry}\nid: 1\ndata: a\n\n`));
    const found = await Promise.race([new Promise((go) => source.addEventListener("end", () => go("again"))), new Promise((go) => setTimeout(go, patience, "waits"))]);
    see(retry, found, source.readyState);
    source.close();
  };
  for (const retry of ["0", "1", "007"]) await again(retry, 20000);
  const slow = ["99999999999", "2147483648", "4294967296", "9007199254740993", "18446744073709551615"];
  await Promise.all(slow.map((retry) => again(retry, 1500)));
});

twin("source: retries that are none keep what was said before", async (see) => {
  for (const retry of ["-1", "1.5", "1e3", "x", " 9999999", "99999999999999999999999"]) {
    const source = new EventSource(streamOf(`retry: 10\nid: 1\nretry: ${retry}\ndata: a\n\n`));
    see(retry, await Promise.race([new Promise((go) => source.addEventListener("end", () => go("again"))), new Promise((go) => setTimeout(go, 2000, "waits"))]));
    source.close();
  }
});

twin("source: between two events a page has its turn", async (see) => {
  const source = new EventSource(streamOf("data: 1\n\ndata: 2\n\ndata: 3\n\nevent: end\ndata: over\n\n", "&hold"));
  source.onmessage = ({ data }) => {
    see(data);
    Promise.resolve().then(() => 0).then(() => see(`after ${data}`));
    if (data === "3") source.close();
  };
  while (source.readyState !== 2) await new Promise((go) => setTimeout(go, 20));
  await new Promise((go) => setTimeout(go, 50));
});

twin("source: what its constructor takes", async (see) => {
  for (const given of [[], ["/api/status/204", null], ["/api/status/204", 5], ["/api/status/204", {}], [{ toString: () => "/api/status/204" }], [new URL("/api/status/204", "http://a.b/")], [Symbol()], ["/api/status/204", { withCredentials: 1 }]]) {
    see(await failure(() => {
      const source = new EventSource(...given);
      see(source.withCredentials, source.readyState, given[0] instanceof URL || source.url);
      source.close();
    }));
  }
  see(await failure(() => EventSource("/x")), EventSource.name, EventSource.length, Object.keys(EventSource));
});
