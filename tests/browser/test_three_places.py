"""A page sees the same of its backend's HTTP in a view, on the app's own site, and at the backend itself."""

import gzip
import zlib
from asyncio import Event, StreamWriter
from collections.abc import AsyncIterator

import brotli
import pytest
from playwright.async_api import Browser

from tests.browser.three_places import Asked, Places, three_places, whole
from tests.codings import SKIPPED, zstd_of

READ = """async url => {
  const response = await fetch(url).catch(() => undefined);
  if (!response) return "failed";
  const refused = response.headers.get("gateway-reason");
  if (refused) return refused === "backend-protocol" ? "failed" : refused;
  const bytes = await response.bytes().catch(() => undefined);
  return bytes ? [response.status, bytes.length, [...bytes.slice(0, 40)]] : "failed";
}"""


@pytest.fixture(scope="module")
async def places(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Places]:
    """The three places, loaded once."""
    async with three_places(browser, tmp_path_factory.mktemp("world")) as found:
        yield found


DATA = b'{"ok":1}'
LONG = bytes(range(256)) * 2000
PACKED = gzip.compress(DATA)


def raw_deflate(data: bytes) -> bytes:
    """The deflate format without the zlib header."""
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return stream.compress(data) + stream.flush()


CODED: dict[str, tuple[list[str], bytes]] = {
    "case": (["X-GZip"], PACKED),
    "two": (["gzip, gzip"], gzip.compress(PACKED)),
    "two lines": (["gzip", "deflate"], zlib.compress(PACKED)),
    "identity": (["Identity"], DATA),
    "unknown": (["utf-8"], DATA),
    "empty": ([""], DATA),
    "beside unknown": (["gzip, utf-8"], PACKED),
    "beside identity": (["identity, gzip"], PACKED),
    "empty members": (["gzip,,gzip"], PACKED),
    "no list": (["gzip gzip"], PACKED),
    "with a weight": (["gzip;q=1"], PACKED),
    "zlib": (["deflate"], zlib.compress(LONG)),
    "raw": (["deflate"], raw_deflate(LONG)),
    "gzip that says deflate": (["deflate"], PACKED),
    "zlib that says gzip": (["gzip"], zlib.compress(DATA)),
    "not packed": (["gzip"], DATA),
    "not packed at all": (["deflate"], DATA),
    "nothing": (["gzip"], b""),
    "half a head": (["gzip"], PACKED[:6]),
    "without its end": (["gzip"], PACKED[:-8]),
    "wrong check sum": (["gzip"], PACKED[:-8] + bytes(8)),
    "wrong check sum of zlib": (["deflate"], zlib.compress(DATA)[:-4] + bytes(4)),
    "without check sum": (["deflate"], zlib.compress(DATA)[:-4]),
    "cut off": (["gzip"], gzip.compress(LONG)[:-20]),
    "garbage behind": (["gzip"], PACKED + b"garbage"),
    "two members": (["gzip"], PACKED + gzip.compress(b"[2]")),
    "broken": (["gzip"], PACKED[:10] + b"\x07" * 30),
    "brotli": (["BR"], brotli.compress(LONG)),
    "brotli of nothing": (["br"], b""),
    "brotli, cut off": (["br"], brotli.compress(LONG)[:-20]),
    "brotli, cut in its first piece": (["br"], brotli.compress(b"a" * 9 + LONG[:600])[:-50]),
    "brotli, garbage behind": (["br"], brotli.compress(LONG) + b"garbage"),
    "brotli, a byte behind": (["br"], brotli.compress(DATA) + b"g"),
    "brotli, more of it behind": (["br"], brotli.compress(DATA) + brotli.compress(DATA)),
    "brotli, much behind": (["br"], brotli.compress(DATA) + LONG),
    "no brotli": (["br"], DATA),
    "garbage behind, much": (["gzip"], PACKED + LONG),
    "zlib, garbage behind": (["deflate"], zlib.compress(LONG) + b"garbage"),
    "raw, garbage behind": (["deflate"], raw_deflate(LONG) + b"garbage"),
    "zlib, cut off": (["deflate"], zlib.compress(LONG)[:-20]),
    "raw, cut off": (["deflate"], raw_deflate(LONG)[:-20]),
    "deflate of nothing": (["deflate"], b""),
    "x-gzip of nothing": (["x-gzip"], b""),
    "zlib with a dictionary": (["deflate"], b"\x78\xbb\0\0\0\1" + raw_deflate(DATA)),
    "gzip with all of a head": (
        ["gzip"],
        b"\x1f\x8b\x08\x1e" + PACKED[4:10] + b"\x02\0exname\0why\0\0\0" + PACKED[10:],
    ),
    "gzip with reserved flags": (["gzip"], b"\x1f\x8b\x08\xe0" + PACKED[4:]),
    "gzip of another method": (["gzip"], b"\x1f\x8b\x07" + PACKED[3:]),
    "brotli in capitals, twice": (["BR, br"], brotli.compress(brotli.compress(DATA))),
    "zstd that says br": (["br"], zstd_of(DATA)),
    "gzip that says zstd": (["zstd"], PACKED),
    "compress": (["compress"], PACKED),
    "x-compress, gzip": (["x-compress, gzip"], PACKED),
    "a tab around": (["\tgzip\t,\tgzip "], gzip.compress(PACKED)),
    "brotli in gzip": (["br, gzip"], gzip.compress(brotli.compress(DATA))),
    "zstd": (["zstd"], zstd_of(LONG)),
    "zstd of nothing": (["zstd"], b""),
    "half a head of zstd": (["zstd"], zstd_of(DATA)[:3]),
    "zstd, cut off": (["zstd"], zstd_of(LONG)[:-20]),
    "zstd, two frames": (["zstd"], zstd_of(DATA) + zstd_of(b"[2]")),
    "zstd, a frame that is skipped": (["zstd"], SKIPPED + zstd_of(DATA)),
    "zstd, a frame that is skipped behind": (["zstd"], zstd_of(DATA) + SKIPPED),
    "zstd, garbage behind": (["zstd"], zstd_of(DATA) + b"garbage"),
    "zstd, a byte behind": (["zstd"], zstd_of(DATA) + b"g"),
    "zstd, wrong check sum": (["zstd"], zstd_of(DATA, checksum_flag=1)[:-4] + bytes(4)),
    "zstd, a window of 8 MiB": (["zstd"], zstd_of(DATA, window_log=23)),
    "zstd, a window of 16 MiB": (["zstd"], zstd_of(DATA, window_log=24)),
    "no zstd": (["zstd"], DATA),
}


@pytest.mark.parametrize("name", CODED)
@pytest.mark.parametrize("under", ["", "/streamed"])
async def test_content_codings(places: Places, name: str, under: str) -> None:
    """The codings are those of RFC 9110, 8.4."""
    codings, body = CODED[name]
    fields = "".join(f"Content-Encoding: {coding}\r\n" for coding in codings).encode()
    places.backend.answers[f"{under}/coded"] = whole(body, fields=fields)
    assert await places.same(READ, f"{under}/coded")


BODIES = {
    "half a character": '{"s":"\\ud83d"}',
    "deep": "[" * 65 + "]" * 65,
    "very deep": "[" * 5000 + "]" * 5000,
    "a large number": "[1e400]",
    "a long number": "9" * 5000,
    "a key twice": '{"a":1, "a":2}',
    "numbers as they are written": "[-0,1.0,1E2,9007199254740993]",
    "white space": ' \r\n{"a" : 1}\t',
    "a byte order mark": "\ufeff{}",
    "no JSON": "{no json",
    "nothing": "",
}


@pytest.mark.parametrize("name", BODIES)
async def test_json_that_is_sent(places: Places, name: str) -> None:
    """Unless a rule reads it, it arrives byte for byte."""
    places.backend.asked.clear()
    send = """async body => {
      const headers = { "content-type": "application/json" };
      return (await fetch("/json", { method: "POST", headers, body })).status;
    }"""
    assert await places.same(send, BODIES[name]) == 200
    assert [asked.body for asked in places.backend.asked] == [BODIES[name].encode()] * 3


LOCATIONS = [
    b"/ok?a=\xc3\xa9",
    b"/ok?a=\xe9",
    b"/\xc3\xa9",
    b"/a b?c d",
    b"/ok?a=%",
    b"/ok?a='\"<>",
    b" \t/x\ty ",
    b"\\ok\\x",
    b"/a/./b\\..\\c",
    b"../ok",
    b"ok",
    b"http:/ok",
    b"http:ok",
    b"/x?a#f?b\xc3\xa9",
    b"?again",
]


@pytest.mark.parametrize("location", LOCATIONS, ids=repr)
async def test_where_a_redirect_leads(places: Places, location: bytes) -> None:
    """The URL Standard applies; the policy decides on the target."""

    async def moved(asked: Asked, writer: StreamWriter) -> None:
        first = asked.target == "/dir/go"
        fields = b"Location: %b\r\n" % location if first else b""
        writer.write(whole(asked.target.encode(), head="302 Found" if first else "200 OK", fields=fields))

    places.backend.answers["/dir/go"] = moved
    read = "async () => { const got = await fetch('/dir/go'); return [got.status, await got.text()]; }"
    status, target = await places.same(read)
    assert (status, target != "/dir/go") == (200, True)


@pytest.mark.parametrize("media_type", ["text/plain", "text/html", "image/png", "application/json", "x/y"])
@pytest.mark.parametrize("length", [None, 8])
async def test_bytes_come_as_they_are_sent(places: Places, media_type: str, length: int | None) -> None:
    """The head arrives before the body, and each part before the next one is sent, which the page triggers."""
    parts = [b"one,", b"\xc3", b"\xa9\xff", b"."]
    taken = Event()

    async def slow(asked: Asked, writer: StreamWriter) -> None:
        taken.clear()
        framing = b"Connection: close" if length is None else b"Content-Length: %d" % length
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n%b\r\n\r\n" % (media_type.encode(), framing))
        for part in parts:
            await writer.drain()
            await taken.wait()
            taken.clear()
            writer.write(part)
        if length is None:
            writer.close()

    async def go_on(asked: Asked, writer: StreamWriter) -> None:
        taken.set()
        writer.write(whole(b"", head="204 No"))

    places.backend.answers |= {"/streamed/slow": slow, "/only/taken": go_on}
    read = """async sizes => {
      const response = await fetch("/streamed/slow"), reader = response.body.getReader(), out = [];
      for (const size of sizes) {
        await fetch("/only/taken");
        for (const end = out.length + size; out.length < end;) out.push(...(await reader.read()).value);
      }
      return [response.status, out, (await reader.read()).done];
    }"""
    assert await places.same(read, [len(part) for part in parts]) == [200, list(b"".join(parts)), True]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("length", [b"Content-Length: 38", b"Transfer-Encoding: chunked", b"X-A: b"])
async def test_a_body_where_there_can_be_none(places: Places, method: str, length: bytes) -> None:
    """It is not part of the answer, nor the answer to another request (RFC 9112, 6.3)."""
    status = b"204 No" if method == "GET" else b"200 OK"
    body = b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"
    places.backend.answers["/only/none"] = b"HTTP/1.1 %b\r\n%b\r\n\r\n%b" % (status, length, body)
    read = """async method => {
      const got = await fetch("/only/none", { method });
      const text = await got.text();
      const next = await fetch("/only/next");
      return [got.status, text, next.status, await next.text()];
    }"""
    assert await places.same(read, method) == [int(status[:3]), "", 200, "/only/next"]


FORM = """async ([name, value, filename, type]) => {
  const form = new FormData();
  form.append(name, value);
  form.append(name, new File(["x\\r\\ny\\nz\\0"], filename, { type }));
  return (await fetch("/form", { method: "POST", body: form })).status;
}"""
NAMES = [
    ["plain", "1", "a.txt", "text/plain"],
    ["back\\slash", "back\\slash", "a\\b.txt", ""],
    ['quote"', 'quote"', 'a"b.txt', "image/png"],
    ["lone\rcr", "lone\rcr", "lone\rcr.txt", ""],
    ["lone\nlf", "lone\nlf", "lone\nlf.txt", ""],
    ["cr\r\nlf", "cr\r\nlf", "cr\r\nlf.txt", ""],
    ["é日", "é日😀", "é日😀.txt", "text/plain;charset=utf-8"],
    ["semi;colon", "a=b&c", "a;b%22'.txt", "odd"],
    ["", "", "", ""],
    ["_charset_", "x", "../../etc/passwd", "application/x-y"],
]


def parts_of(asked: Asked) -> bytes:
    """A multipart body with a fixed boundary."""
    boundary = asked.headers["content-type"].partition("boundary=")[2].encode()
    assert asked.body.endswith(b"--" + boundary + b"--\r\n")
    return asked.body.replace(boundary, b"BOUNDARY")


@pytest.mark.parametrize("form", NAMES, ids=range(len(NAMES)))
async def test_forms_that_are_sent(places: Places, form: list[str]) -> None:
    """They are encoded as by Chromium (HTML, multipart/form-data encoding algorithm)."""
    places.backend.asked.clear()
    assert await places.same(FORM, form) == 200
    sent = [parts_of(asked) for asked in places.backend.asked]
    assert sent == [sent[0]] * 3


@pytest.mark.parametrize("big", [0, 300_000])
async def test_a_multipart_body_that_a_page_wrote(places: Places, big: int) -> None:
    """It arrives byte for byte, with part headers that `FormData` cannot express, and with any mistakes."""
    body = (
        "preamble\r\n--b\r\nContent-Disposition: form-data; name=\"meta\"; filename*=UTF-8''%e2%82%ac.json\r\n"
        "content-type: application/json\r\nContent-ID: <1>\r\nContent-Transfer-Encoding: 8bit\r\n\r\n{}\r\n"
        "--b\r\nX: y\n\nno name\r\n--b--\r\nepilogue" + "x" * big
    )
    places.backend.asked.clear()
    send = """async ([type, body, bytes]) => (await fetch("/form", {
      method: "POST", headers: { "content-type": type }, body: bytes ? new Blob([body, new Uint8Array([255])]) : body,
    })).status"""
    for media_type in ("multipart/form-data; boundary=b", 'Multipart/Mixed; Boundary="b"', "multipart/form-data"):
        for more in (False, True):
            assert await places.same(send, [media_type, body, more]) == 200
            arrived = [(asked.headers["content-type"], asked.body) for asked in places.backend.asked[-3:]]
            assert arrived == [(media_type, body.encode() + b"\xff" * more)] * 3


@pytest.mark.parametrize("encoding", ["multipart/form-data", "application/x-www-form-urlencoded", "text/plain"])
async def test_forms_that_are_submitted(places: Places, encoding: str) -> None:
    """Lone line breaks in names, values and file names become CRLF (HTML, constructing the form data set)."""
    submit = """async encoding => {
      const form = document.createElement("form"), sink = document.createElement("iframe"), files = new DataTransfer();
      sink.name = form.target = "sink";
      Object.assign(form, { method: "post", action: "/submitted", enctype: encoding });
      const add = (tag, facts) => form.append(Object.assign(document.createElement(tag), facts));
      add("input", { type: "hidden", name: "a\\rb\\nc\\r\\nd", value: "e\\rf\\ng\\r\\nh\\\\" });
      add("textarea", { name: "t", value: "1\\n2\\r3" });
      files.items.add(new File(["x\\r\\ny\\rz"], "f\\rg\\nh\\\\i\\"j.txt"));
      add("input", { type: "file", name: "file", files: files.files });
      add("input", { type: "file", name: "none" });
      document.body.append(sink, form);
      form.requestSubmit();
      while (await (await fetch("/only/submitted")).text() !== "yes") await new Promise((go) => setTimeout(go, 25));
      form.remove();
      sink.remove();
    }"""
    sent: list[object] = []
    there = False

    async def submitted(asked: Asked, writer: StreamWriter) -> None:
        nonlocal there
        there = True
        multipart = encoding == "multipart/form-data"
        sent.append(parts_of(asked) if multipart else (asked.headers["content-type"], asked.body))
        writer.write(whole(b"", "text/html"))

    async def seen(asked: Asked, writer: StreamWriter) -> None:
        writer.write(whole(b"yes" if there else b"no"))

    places.backend.answers |= {"/submitted": submitted, "/only/submitted": seen}
    for name in ("backend", "view"):  # on its site, a browser that leaves sends no origin, and is refused
        there = False
        await places.places[name].evaluate(submit, encoding)
    assert sent == [sent[0]] * 2


TEXTS = {
    "latin-1": ("text/plain; charset=iso-8859-1", b"caf\xe9"),
    "utf-8 that says latin-1": ("text/html; charset=ISO-8859-1", "café".encode()),
    "a byte order mark": ("text/plain", b"\xef\xbb\xbfa"),
    "two byte order marks": ("text/css; charset=utf-8", b"\xef\xbb\xbf\xef\xbb\xbfa"),
    "utf-16": ("text/plain; charset=utf-16", "é".encode("utf-16")),
    "utf-16 in ascii": ("text/plain; charset=utf-16le", "ab".encode("utf-16-le")),
    "broken": ("text/plain", b"a\xe2\x82b\xff"),
    "json that says latin-1": ("application/json; charset=iso-8859-1", '{"s":"é"}'.encode()),
    "json with a byte order mark": ("application/json", b'\xef\xbb\xbf{"a":1}'),
    "json in latin-1": ("application/json", b'{"s":"\xe9"}'),
    "json as it is written": ("application/problem+json", b'{"a" : 1.0, "a":-0, "b":1e400, "c":9007199254740993}\r\n'),
    "json with half a character": ("application/json", b'"\\ud83d"'),
    "xml": ("text/xml", b'<?xml version="1.0" encoding="iso-8859-1"?><a>caf\xe9</a>'),
    "form": ("application/x-www-form-urlencoded", b"a=%E9&b=\xe9"),
    "no such charset": ("text/plain; charset=rot13", b"x"),
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("under", ["", "/streamed"])
async def test_what_is_read_of_a_text(places: Places, name: str, under: str) -> None:
    """Bytes are bytes, and `text()` decodes UTF-8 (Fetch, 5.3)."""
    media_type, body = TEXTS[name]
    places.backend.answers[f"{under}/text"] = whole(body, media_type)
    read = """async url => {
      const ask = () => fetch(url), blob = await (await ask()).blob();
      const json = await (await ask()).json().then(JSON.stringify, (error) => error.name);
      const type = (await ask()).headers.get("content-type");
      return [await (await ask()).text(), [...new Uint8Array(await blob.arrayBuffer())], blob.type, json, type];
    }"""
    assert (await places.same(read, f"{under}/text"))[1] == list(body)


MOVED = {
    status: f"HTTP/1.1 {status} Moved\r\nLocation: /only/there?{status}\r\nContent-Length: 2\r\n\r\nhi".encode()
    for status in (301, 302, 303, 307, 308)
}
OTHERS = {
    "an empty place": b"HTTP/1.1 302 Moved\r\nLocation:\r\nContent-Length: 2\r\n\r\nhi",
    "no place": b"HTTP/1.1 302 Moved\r\nContent-Length: 2\r\n\r\nhi",
    "the same place twice": b"HTTP/1.1 302 M\r\nLocation: /only/a\r\nLocation: /only/a\r\nContent-Length: 0\r\n\r\n",
    "two places": b"HTTP/1.1 302 M\r\nLocation: /only/a\r\nLocation: /only/b\r\nContent-Length: 0\r\n\r\n",
    "an empty name": b"HTTP/1.1 302 M\r\nLocation: http://:@HOST/only/a\r\nContent-Length: 0\r\n\r\n",
    "a fragment": b"HTTP/1.1 302 M\r\nLocation: /only/a#b\r\nContent-Length: 0\r\n\r\n",
    "no scheme": b"HTTP/1.1 302 M\r\nLocation: //HOST/only/a\r\nContent-Length: 0\r\n\r\n",
    "a whole address": b"HTTP/1.1 302 M\r\nLocation: http://HOST/only/a?b\r\nContent-Length: 0\r\n\r\n",
    "one that is broken": b"HTTP/1.1 302 M\r\nLocation: http://[\r\nContent-Length: 0\r\n\r\n",
    "data:": b"HTTP/1.1 302 M\r\nLocation: data:,x\r\nContent-Length: 0\r\n\r\n",
    "javascript:": b"HTTP/1.1 302 M\r\nLocation: javascript:1\r\nContent-Length: 0\r\n\r\n",
    "a name and a password": b"HTTP/1.1 302 M\r\nLocation: http://u:p@HOST/only/a\r\nContent-Length: 0\r\n\r\n",
    "itself": b"HTTP/1.1 302 M\r\nLocation: ?\r\nContent-Length: 0\r\n\r\n",
}
FOLLOW = """async ([url, init]) => {
  const own = (at) => (at.startsWith("http") ? new URL(at).pathname + new URL(at).search : at);
  const response = await fetch(url, { ...init, cache: "no-store" }).catch(() => undefined);
  if (!response) return "failed";
  if (response.headers.has("gateway-reason")) return "failed";
  return [response.status, own(response.url), response.redirected, response.type, await response.text()];
}"""


@pytest.mark.parametrize("status", MOVED)
@pytest.mark.parametrize("redirect", ["follow", "error", "manual"])
async def test_redirects_as_a_page_asks_for_them(places: Places, status: int, redirect: str) -> None:
    """Method, body and URL change as in Fetch."""
    path = f"/moved{status}"
    places.backend.answers[path] = MOVED[status]
    for method in ("GET", "HEAD"):
        places.backend.asked.clear()
        await places.same(FOLLOW, [path, {"method": method, "redirect": redirect}])
        asked = [(one.method, one.target) for one in places.backend.asked]
        assert asked == asked[: len(asked) // 3] * 3
    if status in (301, 302, 303):
        places.backend.asked.clear()
        await places.same(FOLLOW, [path, {"method": "POST", "redirect": redirect, "body": "sent"}])
        sent = [(one.method, one.target, one.headers.get("content-type"), one.body) for one in places.backend.asked]
        assert sent == sent[: len(sent) // 3] * 3


@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize("redirect", ["follow", "error", "manual"])
async def test_redirects_of_a_change_within_its_route(places: Places, status: int, redirect: str) -> None:
    """It is sent once more, with its body, or the page gets the redirect or an error."""
    moved = b"HTTP/1.1 %d Moved\r\nLocation: /moving/there\r\nContent-Length: 0\r\n\r\n" % status
    places.backend.answers["/moving/go"] = moved
    places.backend.asked.clear()
    await places.same(FOLLOW, ["/moving/go", {"method": "POST", "redirect": redirect, "body": "sent"}])
    sent = [(one.method, one.target, one.body) for one in places.backend.asked]
    assert sent == sent[: len(sent) // 3] * 3
    assert len(sent) == (6 if redirect == "follow" else 3)


@pytest.mark.parametrize("method", ["patch", "Patch", "PATCH"])
async def test_a_method_in_any_case(places: Places, method: str) -> None:
    """The gateway sends it in capitals; servers that know no other see the same from all places."""
    places.backend.asked.clear()
    read = "async (method) => (await fetch('/x', { method, body: 'a' })).text()"
    assert await places.same(read, method) == "/x"
    assert [one.method.upper() for one in places.backend.asked] == ["PATCH"] * 3
    assert [one.body for one in places.backend.asked] == [b"a"] * 3


@pytest.mark.parametrize("name", OTHERS)
async def test_redirects_to_odd_places(places: Places, name: str) -> None:
    """Each leads to the same target, is returned as an answer, or fails."""
    host = f"127.0.0.1:{places.port}".encode()
    places.backend.answers["/odd"] = OTHERS[name].replace(b"HOST", host)
    seen = await places.seen(FOLLOW, ["/odd", {}])
    assert seen == dict.fromkeys(seen, seen["backend"]), seen
