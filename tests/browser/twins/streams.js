twin("stream: parts as they come", async (see) => {
  const response = await fetch("/api/lines?n=3");
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  see(response.headers.get("content-type"), (await reader.read()).value);
  await fetch("/api/lines/next", { method: "POST" });
  see((await reader.read()).value);
  await fetch("/api/lines/next", { method: "POST" });
  see((await reader.read()).value, (await reader.read()).done);
});

twin("stream: cancelled and aborted", async (see) => {
  const cancelled = await fetch("/api/lines?n=9");
  await cancelled.body.cancel();
  see(cancelled.bodyUsed);
  const controller = new AbortController();
  const aborted = await fetch("/api/lines?n=9", { signal: controller.signal });
  const reader = aborted.body.getReader();
  await reader.read();
  controller.abort();
  see(await failure(reader.read()));
  let gone = 0;
  while ((gone = await (await fetch("/api/lines/gone")).json()) < 2) await new Promise((go) => setTimeout(go, 20));
  see(gone);
});

twin("stream: large, and exactly the bytes", async (see) => {
  const response = await fetch("/api/large?size=1000003");
  const bytes = new Uint8Array(await response.arrayBuffer());
  see(bytes.length, bytes.every((byte, at) => byte === at % 251));
});

twin("stream: fifty megabytes, piece by piece", async (see) => {
  const response = await fetch("/api/large?size=52428800");
  let size = 0;
  for await (const part of response.body) size += part.length;
  see(size);
});

twin("stream: one that breaks off", async (see) => {
  const response = await fetch("/api/broken");
  see(response.status, await failure(response.text()));
});

twin("stream: one whose framing breaks", async (see) => {
  for (const how of ["read", "closed", "text"]) {
    const response = await fetch("/api/garbled");
    if (how === "text") see(await failure(response.text()));
    else {
      const reader = response.body.getReader();
      see((await reader.read()).value.length, await failure(how === "read" ? reader.read() : reader.closed), await failure(reader.read()));
    }
  }
});

twin("stream: xhr hears of its head first", async (see) => {
  const xhr = new XMLHttpRequest();
  xhr.open("GET", "/api/lines?n=2");
  xhr.send();
  while (xhr.readyState < 2) await once(xhr, "readystatechange");
  see(xhr.status);
  const loaded = once(xhr, "load"); // it may come before the answer to what lets it
  await fetch("/api/lines/next", { method: "POST" });
  await loaded;
  see(xhr.readyState, xhr.responseText);
});

twin("events: messages, types, ids", async (see) => {
  const source = new EventSource("/api/events");
  see(source.readyState, source.url, source.withCredentials);
  const say = (event) => see(event.type, event.data, event.lastEventId, event.origin, source.readyState);
  source.onopen = () => see("open", source.readyState);
  source.onmessage = say;
  source.addEventListener("named", say);
  source.onerror = () => see("error", source.readyState);
  await once(source, "end");
  source.close();
  see(source.readyState);
});

twin("events: lines that come in pieces", async (see) => {
  const source = new EventSource("/api/events/split");
  source.onmessage = ({ data }) => see(data);
  see((await once(source, "end")).data);
  source.close();
});

twin("events: connects again with the last id", async (see) => {
  const source = new EventSource("/api/events/short");
  source.onerror = () => see("error", source.readyState);
  source.onopen = () => see("open");
  source.onmessage = ({ data, lastEventId }) => see(data, lastEventId);
  await new Promise((resolve) => source.addEventListener("end", ({ data }) => resolve(see("last id", data))));
  source.close();
});

twin("events: a backend that is silent for longer than others may be", async (see) => {
  const source = new EventSource("/api/events/quiet");
  source.onopen = () => see("open");
  source.onerror = () => see("error", source.readyState);
  see((await once(source, "end")).data);
  source.close();
});

twin("events: what ends for good", async (see) => {
  for (const url of ["/api/status/404", "/api/status/204", "/api/json"]) {
    const source = new EventSource(url);
    await once(source, "error");
    see(url, source.readyState);
  }
  const nowhere = new EventSource("foo:bar");
  see((await once(nowhere, "error")).type, nowhere.readyState);
  see(await failure(() => new EventSource("http://[")), EventSource.CLOSED, EventSource.prototype.OPEN, EventSource.length);
  const made = new EventSource("/api/status/204", { withCredentials: true });
  see(Object.keys(made), made.withCredentials, made.url, await failure(() => { "use strict"; made.url = "/other"; }), "url" in EventSource.prototype, Object.keys(EventSource.prototype).sort());
  made.close();
});

twin("events: closed in the middle, and handlers", async (see) => {
  const source = new EventSource("/api/events");
  const first = () => see("first");
  source.addEventListener("message", first);
  source.onmessage = (event) => {
    see(event.data, event instanceof MessageEvent, event.target === source, event.ports.length);
    source.removeEventListener("message", first);
    source.close();
    see(source.readyState);
  };
  await once(source, "message");
  await new Promise((go) => setTimeout(go, 100));
  see(source.readyState, source instanceof EventTarget, String(source), source.onopen);
});

twin("socket: it fails, and says so in its events", async (see) => {
  const socket = new WebSocket("ws://127.0.0.1:9/live", ["chat"]);
  see(socket.url, socket.protocol, socket.binaryType);
  socket.addEventListener("open", () => see("open"));
  see((await once(socket, "error")).type, socket.readyState);
  see(await failure(() => new WebSocket("ws://[")), WebSocket.name);
});
