const prototypes = () => [XMLHttpRequest, XMLHttpRequestUpload, XMLHttpRequestEventTarget].map((one) => [one.name, one.prototype]);

twin("rules: what no page constructs", async (see) => {
  for (const one of [XMLHttpRequestUpload, XMLHttpRequestEventTarget]) {
    see(one.name, one.length, await failure(() => one()), await failure(() => new one()), await failure(() => new one(1)), await failure(() => new one(Symbol("own"))));
    class Other extends one {}
    see(await failure(() => new Other()), await failure(() => Reflect.construct(EventTarget, [], one)));
  }
  class Own extends XMLHttpRequest {}
  const own = new Own();
  see(own instanceof XMLHttpRequest, own.upload instanceof XMLHttpRequestUpload, own.upload === own.upload, new Own().upload === own.upload, XMLHttpRequest.length);
});

twin("rules: each member is called on its own kind alone", async (see) => {
  const good = ["GET", "/x"];
  for (const [name, prototype] of [...prototypes(), ["EventSource", EventSource.prototype]]) {
    for (const key of Object.keys(Object.getOwnPropertyDescriptors(prototype)).filter((one) => !/^(constructor|addEventListener|setAttributionReporting|setPrivateToken)$/.test(one)).sort()) {
      const { get, set, value } = Object.getOwnPropertyDescriptor(prototype, key);
      const other = [null, undefined, {}, prototype, Object.create(prototype), new EventTarget()];
      for (const [at, self] of other.entries()) {
        for (const call of [get, set, typeof value === "function" && value].filter(Boolean)) see(name, key, at, call.length, await failure(() => call.call(self, ...good)));
      }
      if (set) see(key, await failure(() => set.call({}, "nonsense")), await failure(() => set.call(null, null)));
    }
  }
});

twin("rules: what is given is converted in its order", async (see) => {
  const seen = [];
  const told = (name, text) => ({ toString: () => (seen.push(name), text), valueOf: () => (seen.push(`${name} value`), true) });
  const xhr = new XMLHttpRequest();
  xhr.open(told("method", "get"), told("url", "/api/json"), told("async", ""), told("user", "u"), told("password", "p"));
  see(seen.splice(0));
  for (const more of [[true, null, undefined], [true, undefined, null], [true, 1, 2], [true, "", ""], [true]]) see(await failure(() => xhr.open("GET", "/api/json", ...more)), xhr.readyState);
  for (const more of [[true, Symbol()], [true, "a", Symbol()], [true, told("throws", ""), { toString: () => { throw new RangeError("x"); } }]]) see(await failure(() => xhr.open("GET", "/api/text", ...more)), seen.splice(0));
  xhr.setRequestHeader(told("name", "x-a"), told("value", "b"));
  xhr.overrideMimeType(told("mime", "text/plain"));
  xhr.responseType = told("type", "text");
  xhr.timeout = told("timeout", "5");
  see(seen, xhr.responseType, xhr.timeout);
});

twin("rules: a stop of the page is told in a task of its own", async (see) => {
  const ask = (url) => {
    const xhr = new XMLHttpRequest();
    logged(xhr, see);
    xhr.open("GET", url);
    return xhr;
  };
  const ended = ask("/api/slow");
  ended.send();
  const over = once(ended, "loadend");
  window.stop();
  see("stopped", ended.readyState);
  await over;
  see(ended.readyState, ended.status, ended.responseText);
  const again = ask("/api/slow");
  again.send();
  window.stop();
  again.open("GET", "/api/json");
  see("opened", again.readyState);
  await new Promise((go) => setTimeout(go, 100));
  see(again.readyState);
  const done = once(again, "loadend");
  again.send();
  await done;
  see(again.status, again.responseText);
  window.stop();
  await new Promise((go) => setTimeout(go, 50));
  see(again.status, again.readyState);
});

twin("rules: a page that is busy loses no answer to a timeout", async (see) => {
  const busy = (milliseconds) => {
    for (const until = performance.now() + milliseconds; performance.now() < until; );
  };
  for (const [before, after] of [[400, 0], [0, 400]]) {
    const xhr = await xhrRun(() => 0, "GET", "/api/hello", {
      set: (one) => {
        one.timeout = 300;
        Promise.resolve().then(() => busy(before));
        setTimeout(busy, 0, after);
      },
    });
    see(xhr.status, xhr.responseText);
  }
  const slow = await xhrRun(see, "GET", "/api/slow", { set: (one) => ((one.timeout = 50), setTimeout(busy, 10, 200)) });
  see(slow.status);
});

twin("rules: a synchronous request that fails is done", async (see) => {
  const xhr = new XMLHttpRequest();
  xhr.onreadystatechange = xhr.onerror = xhr.onloadend = ({ type }) => see(type, xhr.readyState);
  xhr.open("GET", "unknown:there", false);
  see(await failure(() => xhr.send()), xhr.readyState, xhr.status, xhr.statusText, xhr.responseText, xhr.getAllResponseHeaders());
  see(await failure(() => xhr.send()), await failure(() => xhr.setRequestHeader("a", "b")));
  xhr.open("GET", "/api/json");
  const done = once(xhr, "loadend");
  xhr.send();
  await done;
  see(xhr.status);
});

twin("rules: types with spaces, and charsets that are none", async (see) => {
  for (const mime of ["text/ html", "text /html", " text/html", "text/html ", "text/html ;a=b", "text/\thtml", "text/html;charset=342", "text/plain;charset=342", "text/xml;charset=342", "text/plain;charset= latin1"]) {
    await readAll(see, "text/plain;charset=windows-1252", [0xc2, 0xf0], mime);
    await readAll(see, mime, [0xc2, 0xf0]);
  }
  await readAll(see, "text/xml;charset=windows-1252", latin1('<?xml version="1.0" encoding="iso-8859-1"?><a>\xe9</a>'), "text/xml;charset=342");
});

twin("rules: text is there as it comes, where no declaration can follow", async (see) => {
  for (const [type, start] of [["text/xml", "a"], ["text/xml", "<a>"], ["text/css", "<?xml a"], ["application/json", "{"], ["text/html", "<p>"], ["text/xml", '<?xml version="1.0" encoding="iso-8859-1"?>\xe9.']]) {
    const xhr = new XMLHttpRequest();
    xhr.open("GET", `/api/slowly?type=${encodeURIComponent(type)}&start=${encodeURIComponent(btoa(start))}`);
    const told = new Promise((go) => (xhr.onprogress = () => go([xhr.readyState, xhr.responseText, xhr.response === xhr.responseText])));
    xhr.send();
    see(type, await told);
    xhr.abort();
  }
});

twin("rules: ranges of blobs", async (see) => {
  const url = URL.createObjectURL(new Blob(["0123456789"], { type: "text/plain" }));
  for (const range of ["bytes=1-2", "bytes \t =\t 6-", "bytes= 1 - 2 ", "bytes=-\t3", "bytes=3-\t", "bytes=8-100", "bytes=10-", "bytes=2-1", "bytes=-0", "bytes=-", "bytes=", "bytes", "Bytes=1-2", "bytes=1-2,4-5", "bytes=1-2,", " bytes=1-2", "bits=1-2", "bytes=a-b", "bytes=1-2-3", "bytes=+1-2", "bytes=1-2;"]) {
    const xhr = await xhrRun(() => 0, "GET", url, { set: (one) => one.setRequestHeader("Range", range) });
    see(range, xhr.status, xhr.responseText, xhr.getAllResponseHeaders());
    see(await fetch(url, { headers: { range } }).then(async (got) => [got.status, await got.text(), got.headers.get("content-range")], (error) => error.name));
  }
});
