const XHR_EVENTS = ["readystatechange", "loadstart", "progress", "load", "error", "abort", "timeout", "loadend"];

/** Every event of a request until it ended, progress that repeats itself once. */
function logged(xhr, see, uploads) {
  let last = "";
  const say = (who) => (event) => {
    const line = `${who}${event.type} ${xhr.readyState} ${event instanceof ProgressEvent ? `${event.loaded}/${event.total}` : ""}`;
    if (!/progress/.test(line) || line !== last) see((last = line));
  };
  for (const type of XHR_EVENTS) {
    xhr[`on${type}`] = say("");
    if (type !== "readystatechange" && uploads) xhr.upload.addEventListener(type, say("upload "));
  }
  return once(xhr, "loadend");
}

async function xhrRun(see, method, url, { body, set } = {}) {
  const xhr = new XMLHttpRequest();
  const done = logged(xhr, see, body !== undefined);
  xhr.open(method, url);
  set?.(xhr);
  xhr.send(body);
  await done;
  return xhr;
}

twin("xhr: a GET, its states and events", async (see) => {
  const xhr = await xhrRun(see, "GET", "/api/json");
  see(xhr.status, xhr.statusText, xhr.responseText, xhr.responseURL, xhr.getResponseHeader("Content-Type"), xhr.getResponseHeader("none"));
  see(xhr.getAllResponseHeaders().split("\r\n").filter((line) => /^(content|x-)/.test(line)));
});

twin("xhr: a POST with upload events", async (see) => {
  for (const body of ["text ü", new URLSearchParams("a=1"), new Blob(["b"]), new Uint8Array([1, 2])]) {
    const xhr = await xhrRun(see, "POST", "/api/echo", { body });
    see(JSON.parse(xhr.response));
  }
});

twin("xhr: a form, a document, JSON", async (see) => {
  const form = new FormData();
  form.append("a", "1");
  const xhr = new XMLHttpRequest();
  xhr.open("POST", "/api/echo");
  xhr.send(form);
  await once(xhr, "load");
  see(JSON.parse(xhr.responseText));
  for (const kind of ["application/xml", "text/xml", "text/html"]) {
    const page = new DOMParser().parseFromString("<!doctype html><a>ü</a>", kind);
    see(JSON.parse((await xhrRun(() => 0, "POST", "/api/echo", { body: page })).responseText));
  }
  const set = (one) => one.setRequestHeader("Content-Type", "application/json");
  see(JSON.parse((await xhrRun(() => 0, "PUT", "/api/echo", { body: '{"a":1}', set })).responseText));
  for (const charset of ["iso-8859-1", "utf-8", '"latin1"; a=b']) {
    const said = (one) => one.setRequestHeader("Content-Type", `text/plain; charset=${charset}`);
    see(JSON.parse((await xhrRun(() => 0, "POST", "/api/echo", { body: "ü", set: said })).responseText), JSON.parse((await xhrRun(() => 0, "POST", "/api/echo", { body: new Blob(["ü"]), set: said })).responseText));
  }
});

twin("xhr: nothing in the body", async (see) => {
  for (const url of ["/api/status/204", "/api/status/404", "/api/empty"]) {
    const xhr = await xhrRun(see, "GET", url);
    see(xhr.status, xhr.responseText, xhr.response);
  }
});

twin("xhr: response types", async (see) => {
  for (const type of ["", "text", "json", "arraybuffer", "blob", "document"]) {
    for (const url of ["/api/json", "/api/text", "/api/xml", "/api/page", "/api/latin1", "/api/empty"]) {
      const xhr = await xhrRun(() => 0, "GET", url, { set: (one) => (one.responseType = type) });
      let value = xhr.response;
      if (value instanceof ArrayBuffer) value = [...new Uint8Array(value)].length;
      if (value instanceof Blob) value = [value.type, await value.text()];
      if (value instanceof Document) value = [value.contentType, value.documentElement.textContent, value.URL, value.documentURI, value.baseURI];
      see(type, url, value, await failure(() => xhr.responseText));
      see(await failure(() => xhr.responseXML), !type && xhr.responseXML?.documentElement.nodeName, !type && xhr.responseXML?.URL);
    }
  }
});

twin("xhr: abort", async (see) => {
  const unsent = new XMLHttpRequest();
  logged(unsent, see);
  unsent.abort();
  unsent.open("GET", "/api/slow");
  unsent.abort();
  see("unsent", unsent.readyState);
  const running = new XMLHttpRequest();
  logged(running, see, true);
  running.open("POST", "/api/slow");
  running.send("x");
  setTimeout(() => running.abort(), 10); // a tenth of a second later browsers tell that it went up
  await once(running, "loadend");
  await new Promise((go) => setTimeout(go));
  see(running.readyState, running.status, running.responseText);
  const done = await xhrRun(() => 0, "GET", "/api/json");
  done.abort();
  see(done.readyState, done.status, done.responseText);
});

twin("xhr: timeout", async (see) => {
  const xhr = await xhrRun(see, "GET", "/api/slow", { set: (one) => (one.timeout = 60) });
  see(xhr.readyState, xhr.status, xhr.response);
});

twin("xhr: an error", async (see) => {
  const xhr = await xhrRun(see, "GET", "foo:bar");
  see(xhr.readyState, xhr.status, xhr.responseText, xhr.getAllResponseHeaders());
});

twin("xhr: what is refused", async (see) => {
  const xhr = new XMLHttpRequest();
  see(await failure(() => xhr.send()), await failure(() => xhr.setRequestHeader("a", "b")), await failure(() => xhr.open("A B", "/x")));
  see(await failure(() => xhr.open("TRACE", "/x")), await failure(() => xhr.open("GET", "http://[")), xhr.readyState);
  xhr.open("get", "/api/json");
  see(await failure(() => xhr.setRequestHeader("a b", "c")), await failure(() => xhr.setRequestHeader("a", "b\nc")));
  xhr.responseType = "nonsense";
  see(xhr.responseType, xhr.withCredentials, xhr.timeout);
  xhr.send();
  see(await failure(() => xhr.send()), await failure(() => xhr.setRequestHeader("a", "b")));
  await once(xhr, "load");
  see(await failure(() => (xhr.responseType = "json")), await failure(() => xhr.overrideMimeType("text/x")));
});

twin("xhr: used again, constants, prototypes", async (see) => {
  const xhr = new XMLHttpRequest();
  const states = [];
  xhr.onreadystatechange = function () { states.push([this === xhr, xhr.readyState]); };
  for (const url of ["/api/json", "/api/text"]) {
    xhr.open("GET", url);
    xhr.setRequestHeader("x-a", "1");
    xhr.send();
    await once(xhr, "load");
    see(xhr.responseText);
  }
  see(states, XMLHttpRequest.DONE, xhr.OPENED, XMLHttpRequest.name, xhr instanceof EventTarget, xhr instanceof XMLHttpRequest);
  see(Object.keys(XMLHttpRequest.prototype).includes("onreadystatechange"), typeof XMLHttpRequest.prototype.send, String(xhr));
  xhr.onload = null;
  see(xhr.onload, xhr.onreadystatechange === null);
});

twin("xhr: what libraries ask of its classes", async (see) => {
  const xhr = new XMLHttpRequest();
  see(xhr instanceof XMLHttpRequestEventTarget, xhr.upload instanceof XMLHttpRequestUpload, xhr.upload instanceof XMLHttpRequestEventTarget, xhr.upload instanceof XMLHttpRequest);
  see([xhr, xhr.upload].map(String), XMLHttpRequestEventTarget.prototype instanceof EventTarget, "onload" in XMLHttpRequestEventTarget.prototype, [XMLHttpRequestEventTarget, XMLHttpRequestUpload].map(({ name }) => name));
  const { addEventListener } = XMLHttpRequestEventTarget.prototype;
  xhr.open("GET", "/api/json");
  addEventListener.call(xhr, "load", { handleEvent: ({ type, target, currentTarget }) => see(type, target === xhr, currentTarget === xhr) });
  xhr.send();
  await once(xhr, "loadend");
  see(await failure(() => xhr.open("GET")), await failure(() => new EventSource()));
  xhr.timeout = "5";
  xhr.open("GET", "/api/json");
  see(xhr.timeout, Object.keys(xhr), await failure(() => xhr.setRequestHeader("a")), await failure(() => { "use strict"; xhr.upload = 5; }));
  const names = [];
  for (const name in xhr) if (!/^set[AP]/.test(name)) names.push(name);
  see(names.sort());
});

twin("xhr: order of listeners and handlers", async (see) => {
  const xhr = new XMLHttpRequest();
  xhr.addEventListener("load", () => see("first"));
  xhr.onload = () => see("replaced");
  xhr.addEventListener("load", () => see("third"));
  xhr.onload = () => see("second");
  xhr.open("GET", "/api/json");
  xhr.send();
  await once(xhr, "loadend");
});

twin("xhr: opened anew while it runs", async (see) => {
  const xhr = new XMLHttpRequest();
  logged(xhr, see);
  xhr.open("GET", "/api/slow");
  xhr.send();
  xhr.open("GET", "/api/json");
  xhr.send();
  await once(xhr, "loadend");
  see(xhr.responseText);
});

twin("xhr: mime type of the page's choice", async (see) => {
  const xhr = await xhrRun(() => 0, "GET", "/api/bytes", { set: (one) => one.overrideMimeType("text/plain; charset=x-user-defined") });
  see([...xhr.responseText].map((one) => one.charCodeAt(0) & 255));
  for (const mime of ["text/xml", "text/plain;charset=utf-8", "none", ""]) {
    const [text, blob] = await Promise.all(["", "blob"].map((type) => xhrRun(() => 0, "GET", "/api/xml", { set: (one) => (one.overrideMimeType(mime), (one.responseType = type)) })));
    see(mime, text.responseXML?.contentType, blob.response.type);
  }
});

twin("xhr: HEAD and redirects", async (see) => {
  for (const [method, url] of [["HEAD", "/api/json"], ["GET", "/api/redirect"], ["POST", "/api/redirect?status=307"]]) {
    const xhr = await xhrRun(see, method, url);
    see(xhr.status, xhr.responseURL, xhr.responseText && JSON.parse(xhr.responseText).method);
  }
});

twin("xhr: a large upload is told of", async (see) => {
  const xhr = new XMLHttpRequest();
  const kinds = [];
  const progress = [];
  const say = (who) => (event) => {
    if (event.type === "progress") progress.push(event.loaded);
    const line = [who, event.type, xhr.readyState, event.total, event.lengthComputable, event.type === "progress" || event.loaded];
    if (`${line}` !== `${kinds.at(-1)}`) kinds.push(line);
  };
  for (const type of XHR_EVENTS) {
    xhr.upload.addEventListener(type, say("upload"));
    if (type !== "readystatechange") xhr.addEventListener(type, say(""));
  }
  xhr.open("POST", "/api/echo/size");
  xhr.send(new Uint8Array(3_000_003));
  await once(xhr, "loadend");
  see(xhr.status, kinds.filter(([who, type]) => who || type !== "progress"));
  const up = progress.slice(0, progress.indexOf(3_000_003) + 1);
  see(up.every((loaded, at) => !at || loaded > up[at - 1]), up.at(-1));
});

twin("xhr: who listens to an upload too late hears nothing of it", async (see) => {
  const xhr = new XMLHttpRequest();
  xhr.open("POST", "/api/echo");
  xhr.send("x");
  xhr.upload.onload = () => see("too late");
  xhr.upload.addEventListener("loadend", () => see("too late"));
  await once(xhr, "loadend");
  see(xhr.status);
});

twin("xhr: a large download is told of", async (see) => {
  const xhr = new XMLHttpRequest();
  const told = [];
  xhr.onprogress = ({ loaded, total, lengthComputable }) => told.push([loaded, total, lengthComputable]);
  xhr.open("GET", "/api/large?size=20000003");
  xhr.responseType = "blob";
  xhr.send();
  while (xhr.readyState < 2) await once(xhr, "readystatechange");
  see(xhr.getResponseHeader("content-length"));
  await once(xhr, "loadend");
  see(told.length > 1, told.every(([loaded, total, computable], at) => computable && total === 20_000_003 && (!at || loaded > told[at - 1][0])), told.at(-1), xhr.response.size);
});

twin("xhr: what it may not have while it runs", async (see) => {
  const xhr = new XMLHttpRequest();
  xhr.open("POST", "/api/slow");
  xhr.send("x");
  see(await failure(() => (xhr.withCredentials = true)), await failure(() => (xhr.responseType = "json")), await failure(() => xhr.setRequestHeader("a", "b")));
  xhr.timeout = 50;
  await once(xhr, "timeout");
  see(xhr.readyState, xhr.status, await failure(() => (xhr.withCredentials = true)));
});

twin("xhr: opened to wait, and with a name and a password", async (see) => {
  for (const set of [(xhr) => (xhr.responseType = "json"), (xhr) => (xhr.timeout = 5)]) {
    const xhr = new XMLHttpRequest();
    see(await failure(() => set(xhr)), await failure(() => xhr.open("GET", "/api/echo", false)), xhr.readyState);
    xhr.open("GET", "/api/echo");
    see(await failure(() => xhr.open("GET", "/api/echo", false)), xhr.readyState, xhr.responseType, xhr.timeout, await failure(() => xhr.send()));
  }
  const { href } = new URL("/api/echo?a@b", location.href);
  for (const [url, ...given] of [["/api/echo", "user", "word"], ["/api/echo", null, null], [href.replace("//", "//user:w%40rd@")], [href.replace("//", "//user@"), "other"]]) {
    const xhr = new XMLHttpRequest();
    xhr.open("POST", url, true, ...given);
    xhr.send();
    await once(xhr, "loadend");
    see(xhr.responseURL, JSON.parse(xhr.responseText));
  }
});

twin("xhr: a listener that ends it, or opens it anew", async (see) => {
  const ends = { abort: (xhr) => xhr.abort(), open: (xhr) => xhr.open("GET", "/api/text"), again: (xhr) => (xhr.open("GET", "/api/text"), xhr.send()), type: (xhr) => (xhr.responseType = "none") };
  for (const [where, ...how] of [["loadstart 1", "abort", "open", "again"], ["upload loadstart 1", "abort", "open"], ["upload progress 1", "abort", "open", "again"], ["upload load 1", "abort", "open"], ["readystatechange 3", "abort", "open"],
    ["progress 3", "abort", "open"], ["readystatechange 4", "abort", "type"], ["load 4", "abort", "open", "again", "type"], ["loadend 4", "abort", "again"]]) {
    for (const name of how) {
      const xhr = new XMLHttpRequest();
      const told = [];
      let ended;
      logged(xhr, (line) => {
        told.push(line);
        if (ended || !line.startsWith(where)) return;
        ended = true;
        ends[name](xhr);
        told.push([name, xhr.readyState, xhr.status, xhr.responseText]);
      }, true);
      xhr.open("POST", "/api/echo");
      xhr.send("body");
      // What is still to come of it came before the answer to what is asked later.
      do await (await fetch("/api/text")).text();
      while (name === "again" ? xhr.readyState !== 4 : !ended);
      see(where, told, xhr.readyState);
    }
  }
});

twin("xhr: the upload of what is empty, has no body, or comes to no end", async (see) => {
  for (const [method, url, body, then] of [["POST", "/api/echo", ""], ["GET", "/api/slow", undefined, "abort"], ["POST", "/api/slow", "", "abort"], ["GET", "foo:bar"], ["GET", "/api/broken"]]) {
    const xhr = new XMLHttpRequest();
    const done = logged(xhr, see, true);
    xhr.open(method, url);
    xhr.send(body);
    if (then) xhr[then]();
    await done;
    see(method, url, body, xhr.status);
  }
});

twin("xhr: what is not said", async (see) => {
  const xhr = new XMLHttpRequest();
  see(await failure(() => xhr.overrideMimeType()), await failure(() => xhr.getResponseHeader()), xhr.send.length, xhr.open.length);
  for (const async of [undefined, null, 0, 1, ""]) {
    xhr.open("GET", "/api/latin1", async);
    see(async, await failure(() => (xhr.timeout = 1000)), await failure(() => (xhr.timeout = 0)));
  }
  for (const mime of ["application/json", "text/plain;charset=utf-8", "none"]) {
    xhr.open("GET", "/api/latin1");
    xhr.overrideMimeType(mime);
    const done = once(xhr, "loadend");
    xhr.send();
    await done;
    see(mime, xhr.responseText);
  }
});
