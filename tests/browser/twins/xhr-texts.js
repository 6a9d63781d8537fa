/** The URL of an answer with this type and body. */
const saidOf = (type, bytes, status = 200) => `/api/said?status=${status}&type=${encodeURIComponent(type)}&body=${encodeURIComponent(btoa(String.fromCharCode(...bytes)))}`;
const latin1 = (text) => [...text].map((one) => one.charCodeAt(0));
const utf8 = (text) => [...new TextEncoder().encode(text)];
const utf16 = (text, little) => [...text].flatMap((one) => (little ? [one.charCodeAt(0) & 255, one.charCodeAt(0) >> 8] : [one.charCodeAt(0) >> 8, one.charCodeAt(0) & 255]));

/** What all response types give. */
async function readAll(see, type, bytes, override) {
  for (const kind of ["", "text", "json", "document", "blob"]) {
    const xhr = await xhrRun(() => 0, "GET", saidOf(type, bytes), { set: (one) => { one.responseType = kind; if (override) one.overrideMimeType(override); } });
    let { response } = xhr;
    if (response instanceof Document) response = [response.contentType, response.characterSet, response.documentElement.textContent];
    if (response instanceof Blob) response = response.type;
    see(type, override, kind, response, kind ? "" : [xhr.responseXML?.contentType, xhr.responseXML?.characterSet, xhr.responseXML?.documentElement.textContent]);
  }
}

twin("text: JSON is UTF-8, whatever its type says", async (see) => {
  for (const type of ["application/json", "application/json; charset=iso-8859-1", "text/plain; charset=utf-16", ""]) await readAll(see, type, utf8('{"s":"é"}'));
  await readAll(see, "application/json", [0xef, 0xbb, 0xbf, ...utf8('"é"')]);
  await readAll(see, "application/json", [0xff, 0xfe, ...utf16('"é"', true)]);
  await readAll(see, "application/json", utf8("none"));
});

twin("text: XML declares its encoding", async (see) => {
  for (const declared of ['encoding="iso-8859-1"', "encoding='iso-8859-1'", 'encoding = "ISO-8859-1" standalone="yes"', 'encoding="utf-16"', 'encoding="none"', ""]) {
    await readAll(see, "text/xml", latin1(`<?xml version="1.0" ${declared}?><a>caf\xe9</a>`));
  }
  await readAll(see, "application/xml; charset=utf-8", utf8('<?xml version="1.0" encoding="iso-8859-1"?><a>é</a>'));
  await readAll(see, "image/svg+xml", latin1('<?xml version="1.0" encoding="windows-1252"?><svg xmlns="http://www.w3.org/2000/svg">\x80</svg>'));
  await readAll(see, "text/plain", latin1('<?xml version="1.0" encoding="iso-8859-1"?><a>caf\xe9</a>'));
  await readAll(see, "text/plain", latin1('<?xml version="1.0" encoding="iso-8859-1"?><a>caf\xe9</a>'), "text/xml");
  await readAll(see, "text/xml", [0xef, 0xbb, 0xbf, ...utf8('<?xml version="1.0" encoding="iso-8859-1"?><a>é</a>')]);
});

twin("text: HTML declares its encoding", async (see) => {
  for (const head of ['<meta charset="iso-8859-1">', "<meta charset=windows-1252 >", '<meta http-equiv="Content-Type" content="text/html; charset=iso-8859-1">', '<!-- <meta charset="iso-8859-1"> -->', '<meta name=a content="charset=iso-8859-1">',
    '<META\nCHARSET=\'latin1\'/>', "", '<meta charset="none">', '<meta charset="utf-16">']) {
    await readAll(see, "text/html", latin1(`<!doctype html><head>${head}<title>caf\xe9</title>`));
  }
  await readAll(see, "text/html; charset=iso-8859-1", latin1('<meta charset="utf-8"><p>caf\xe9'));
});

twin("text: marks, labels, and what the page wants it taken for", async (see) => {
  for (const [type, bytes, override] of [
    ["text/plain", [0xef, 0xbb, 0xbf, ...utf8("é")]], ["text/plain; charset=iso-8859-1", [0xef, 0xbb, 0xbf, ...utf8("é")]], ["text/plain", [0xff, 0xfe, ...utf16("é", true)]],
    ["text/plain", [0xfe, 0xff, ...utf16("é", false)]], ["text/plain; charset=utf-16le", utf16("é", true)], ["text/plain; charset=none", utf8("é")], ["text/plain; charset=latin1", latin1("\x80\xe9")],
    ['text/plain; charset="iso-8859-1"', latin1("\xe9")], ["text/plain;charset=utf-8;charset=iso-8859-1", latin1("\xe9")], ["text/plain; charset=iso-8859-1", utf8("é"), "text/plain; charset=utf-8"],
    ["text/plain; charset=iso-8859-1", latin1("\xe9"), "text/plain"], ["text/plain", utf8("é"), "bogus"], ["text/plain; charset=iso-8859-1", latin1("\xe9"), "bogus;charset=utf-8"],
    ["bogus", utf8("<a>é</a>")], ["", utf8("<a>é</a>")], ["text/plain; charset=shift_jis", [0x83, 0x65, 0x83, 0x58]], ["text/plain; charset=iso-2022-kr", utf8("ab")], ["text/xml; charset=hz-gb-2312", utf8("<a>b</a>")], ["text/plain; charset=Replacement", []], ["text/plain", utf8("ab"), "text/plain; charset=iso-2022-cn-ext"], ["text/html; charset=csiso2022kr", utf8("<p>a")], ["text/html", utf8("<meta charset=iso-2022-kr><p>a")], ["text/plain; charset=x-user-defined", [0x80, 0xff]],
  ]) await readAll(see, type, bytes, override);
});

/** In full: name and message. */
const refusal = (run) => {
  try {
    run();
    return "none";
  } catch (error) {
    return [error instanceof DOMException ? "DOMException" : error.constructor.name, error.name, error.message];
  }
};

twin("text: what an error of a request says", async (see) => {
  const xhr = new XMLHttpRequest();
  see(refusal(() => xhr.send()), refusal(() => xhr.setRequestHeader("a", "b")), refusal(() => xhr.open("GET")), refusal(() => xhr.open("A B", "/x")), refusal(() => xhr.open("TRACE", "/x")));
  see(refusal(() => xhr.open("日", "/x")), refusal(() => xhr.open()), refusal(() => xhr.setRequestHeader("a")));
  xhr.open("GET", "/api/json");
  for (const given of [["a b", "c"], ["", "c"], ["a", "b\nc"], ["a", "b\u0000"], ["日", "b"], ["a", "日"], ["é", "b"], ["a", "é"], ["a", null], ["a", undefined], ["a", { toString: () => "b" }], ["a", ""], ["a", " b\t"], ["Host", "x"], ["Sec-A", "x"]]) {
    see(given.map(String), refusal(() => xhr.setRequestHeader(...given)));
  }
  see(await failure(() => xhr.open("GET", Symbol())), await failure(() => xhr.setRequestHeader("a", Symbol())), refusal(() => xhr.overrideMimeType()), refusal(() => xhr.getResponseHeader()), refusal(() => xhr.getResponseHeader("日")));
  xhr.responseType = "json";
  see(refusal(() => xhr.responseText), refusal(() => xhr.responseXML));
  const done = once(xhr, "load");
  xhr.send();
  see(await failure(() => xhr.send()), await failure(() => xhr.setRequestHeader("a", "b")), refusal(() => (xhr.withCredentials = true)));
  await done;
  see(refusal(() => (xhr.responseType = "text")), refusal(() => xhr.overrideMimeType("text/plain")), refusal(() => (xhr.withCredentials = true)));
  const sync = new XMLHttpRequest();
  sync.open("GET", "/api/json", false);
  see(refusal(() => (sync.timeout = 5)), refusal(() => (sync.responseType = "json")));
  const typed = new XMLHttpRequest();
  typed.responseType = "json";
  see(refusal(() => typed.open("GET", "/api/json", false)));
});

twin("text: headers of a request", async (see) => {
  const xhr = new XMLHttpRequest();
  xhr.open("POST", "/api/echo");
  for (const [name, value] of [["X-A", "1"], ["x-a", " 2 "], ["X-B", ""], ["Accept", "a/b"], ["x-one", "tab\there"]]) xhr.setRequestHeader(name, value);
  const done = once(xhr, "load");
  xhr.send();
  await done;
  see(JSON.parse(xhr.responseText).headers);
});

twin("text: bodies that are of no type that is sent", async (see) => {
  const shared = await failure(() => new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true }).buffer) === "none" ? new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true }).buffer : null;
  for (const body of [5, true, { a: 1 }, ["a", "b"], new ReadableStream(), new Map(), undefined, null, "\ud800", new DataView(new ArrayBuffer(2)), new URL("http://a.b/")]) {
    const xhr = new XMLHttpRequest();
    xhr.open("POST", "/api/echo");
    const done = once(xhr, "load");
    xhr.send(body);
    await done;
    const { body: sent, type } = JSON.parse(xhr.responseText);
    see(sent, type);
  }
  for (const body of [shared, shared && new Uint8Array(shared), Symbol()]) {
    const xhr = new XMLHttpRequest();
    xhr.open("POST", "/api/echo");
    see(await failure(() => xhr.send(body)), refusal(() => xhr.send(body)));
    xhr.abort();
  }
  const resizable = new ArrayBuffer(2, { maxByteLength: 4 });
  for (const body of [resizable, new Uint8Array(resizable), new DataView(resizable)]) {
    const xhr = new XMLHttpRequest();
    xhr.open("POST", "/api/echo");
    see(refusal(() => xhr.send(body)));
  }
  const sent = new XMLHttpRequest();
  sent.open("GET", "/api/json");
  sent.send();
  see(refusal(() => sent.send()), refusal(() => sent.setRequestHeader("a", "b")));
  const handler = { handleEvent() {} };
  sent.onload = handler;
  see(sent.onload === handler);
  for (const wrong of [1, "x", Symbol(), undefined]) see((sent.onload = wrong, sent.onload));
  sent.onloadstart = () => false;
  see(sent.dispatchEvent(new Event("loadstart", { cancelable: true })));
  sent.abort();
});

twin("text: how much is sent and received", async (see) => {
  const file = new FormData();
  file.append("a\"b", "c\nd");
  file.append("f", new File(["xyz"], "é.txt", { type: "text/x" }));
  const text = new FormData();
  text.append("a", "é");
  for (const body of [file, text, new FormData(), "", new Blob([]), new Blob(["abcdef"]).slice(1, 4), new URLSearchParams("a=é")]) {
    const xhr = new XMLHttpRequest(), totals = [];
    for (const type of ["loadstart", "load", "loadend"]) xhr.upload.addEventListener(type, ({ loaded, total, lengthComputable }) => totals.push([type, loaded, total, lengthComputable]));
    xhr.open("POST", "/api/echo");
    const done = once(xhr, "loadend");
    xhr.send(body);
    await done;
    const sent = atob(JSON.parse(xhr.responseText).body).length;
    see(totals.map(([type, loaded, total, known]) => [type, loaded === sent, total === sent, known]));
  }
  for (const url of ["data:text/plain,h%C3%A9", "data:;base64,AP8=", "data:,"]) {
    const xhr = new XMLHttpRequest(), totals = [];
    for (const type of ["progress", "load", "loadend"]) xhr.addEventListener(type, ({ loaded, total, lengthComputable }) => totals.push([type, loaded, total, lengthComputable]));
    xhr.open("GET", url);
    const done = once(xhr, "loadend");
    xhr.send();
    await done;
    see(url, totals);
  }
});

twin("text: the headers of an answer, in their order", async (see) => {
  const xhr = await xhrRun(() => 0, "GET", "/api/json");
  see(xhr.getAllResponseHeaders().split("\r\n").map((line) => line.split(":")[0]).filter((name) => /^(content|e)/.test(name)), xhr.getResponseHeader("CONTENT-type"), xhr.getResponseHeader("set-cookie"), xhr.getResponseHeader("a b"));
});
