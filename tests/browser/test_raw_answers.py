"""Answers at the edges of HTTP/1.1, byte by byte, are the same for a view, the app's site and the backend's page.

Where RFC 9112 requires an intermediary to refuse what browsers repair, the gateway refuses, with a reason.
"""

from asyncio import StreamWriter
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser

from tests.browser.three_places import Asked, Places, Serve, three_places, whole

READ = """async ([url, method]) => {
  const response = await fetch(url, { method, cache: "no-store" }).catch(() => undefined);
  if (!response) return "failed";
  const refused = response.headers.get("gateway-reason");
  if (refused) return refused === "backend-protocol" || refused === "backend-unreachable" ? "failed" : refused;
  const fields = ["content-type", "etag", "link", "x-a", "x-b", "x-!#$%&'*+.^`|~", "set-cookie"];
  if (method === "HEAD") fields.push("content-length");
  const headers = fields.map((name) => response.headers.get(name));
  const body = await response.bytes().then((bytes) => [...bytes], (error) => error.name);
  return [response.status, response.statusText, response.ok, response.type, headers, body];
}"""


@pytest.fixture(scope="module")
async def places(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Places]:
    """The three places, loaded once."""
    async with three_places(browser, tmp_path_factory.mktemp("world")) as found:
        yield found


def ok(fields: bytes, body: bytes = b"hi") -> bytes:
    """An answer with its length."""
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%b\r\n%b" % (len(body), fields, body)


def response_beginning(line: bytes) -> bytes:
    """An answer that begins with `line`."""
    return line + b"\r\nContent-Length: 2\r\n\r\nhi"


def chunked_response(rest: bytes, fields: bytes = b"") -> bytes:
    """An answer in chunks."""
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n%b\r\n%b" % (fields, rest)


def framed_response(field: bytes) -> bytes:
    """An answer that `field` frames."""
    return b"HTTP/1.1 200 OK\r\n%b\r\n\r\nhi" % field


SAME: dict[str, bytes] = {
    # header fields
    "folded": ok(b"X-A: one\r\n two\r\n\tthree\r\nX-B:\r\n two\r\n"),
    "folded by an empty line": ok(b"X-A: one\r\n \r\nX-B: two\r\n"),
    "folded before the first": b"HTTP/1.1 200 OK\r\n X-A: one\r\nContent-Length: 2\r\n\r\nhi",
    "a folded type": ok(b"Content-Type: text/plain;\r\n charset=utf-8\r\n"),
    "empty values": ok(b"X-A:\r\nX-B: \t \r\n"),
    "repeated": ok(b"X-A: 1\r\nX-A: 2\r\nx-a:\r\nX-A: 2, 3\r\n"),
    "latin-1": ok(b"X-A: caf\xe9\r\nX-B: \x80\x9f\xa0\xff\r\n"),
    "utf-8": ok(b"X-A: caf\xc3\xa9\r\n"),
    "white space": ok(b"X-A: \t a \t b \t\r\nX-B:\xa0a\xa0\r\n"),
    "white space before the colon": ok(b"X-A : 1\r\nX-B\t: 2\r\n"),
    "lines that are no fields": ok(b"X-A\r\n: 1\r\nX-A(b): 1\r\nX A: 1\r\nX-\xe9: 1\r\nX/A: 1\r\nX\x01A: 1\r\n"),
    "odd names": ok(b"X-!#$%&'*+.^`|~: 1\r\n"),
    "lines that end with LF": b"HTTP/1.1 200 OK\nX-A: 1\r\nContent-Length: 2\n\nhi",
    "a head that ends with LF": b"HTTP/1.1 200 OK\r\nX-A: 1\r\nContent-Length: 2\r\n\nhi",
    "a head that ends with LF, before CRLF": b"HTTP/1.1 200 OK\r\nContent-Length: 2\n\r\n\r\n",
    "a long value": ok(b"X-A: " + b"a" * 60_000 + b"\r\n"),
    "too long a value": ok(b"X-A: " + b"a" * 300_000 + b"\r\n"),
    "NUL in a value": ok(b"X-A: a\0b\r\n"),
    "cookies": ok(b"Set-Cookie: a=b\r\nSet-Cookie: =; =\r\nSet-Cookie2: c=d\r\nX-A: 1\r\n"),
    "two types": ok(b"Content-Type: text/plain\r\nContent-Type: text/html\r\n"),
    "an empty type": ok(b"Content-Type:\r\n"),
    "an odd type": ok(b'Content-Type: text/plain;;charset=;x="a;b"; charset=utf-8\r\n'),
    "no type": ok(b"", b"plain"),
    "no media type": ok(b"Content-Type: plain\r\n"),
    "two types in one": ok(b"Content-Type: application/json, text/html\r\n", b'{"a":1}'),
    # before the answer
    "100": b"HTTP/1.1 100 Continue\r\n\r\n" + ok(b"X-A: 1\r\n"),
    "103": b"HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\nX-B: 1\r\n\r\n" + ok(b"X-A: 1\r\n"),
    "many of 102": b"HTTP/1.1 102 P\r\n\r\n" * 20 + ok(b"X-A: 1\r\n"),
    "199, with a length": b"HTTP/1.1 199 P\r\nContent-Length: 3\r\nbroken\r\n\r\n" + ok(b"X-A: 1\r\n"),
    # statuses
    "no reason": response_beginning(b"HTTP/1.1 200 "),
    "no reason, and no space": response_beginning(b"HTTP/1.1 404"),
    "a reason in latin-1": response_beginning(b"HTTP/1.1 200 caf\xe9"),
    "a reason in utf-8": response_beginning(b"HTTP/1.1 200 caf\xc3\xa9"),
    "a reason between spaces": response_beginning(b"HTTP/1.1 200   a  b  "),
    "a reason between tabs": response_beginning(b"HTTP/1.1 200 \ta\tb\t"),
    "a long reason": response_beginning(b"HTTP/1.1 200 " + b"a" * 3000),
    "a wrong reason": response_beginning(b'HTTP/1.1 200 Not <b>"Found"\\'),
    "a later version": response_beginning(b"HTTP/1.2 200 OK"),
    "no HTTP": b"hi there\r\n\r\nand more",
    "nothing at all": b"",
    "101 of nothing": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    "100 and no more": b"HTTP/1.1 100 Continue\r\n\r\n",
    **{
        f"status {status}": response_beginning(b"HTTP/1.1 %d Odd" % status)
        for status in (201, 206, 299, 300, 302, 305, 306, 400)
    },
    **{
        f"status {status}": response_beginning(b"HTTP/1.1 %d Odd" % status)
        for status in (401, 408, 416, 421, 425, 500, 511, 599)
    },
    "a redirect that is none": b"HTTP/1.1 300 Odd\r\nLocation: /ok\r\nContent-Length: 2\r\n\r\nhi",
    # bodies
    "204": b"HTTP/1.1 204 No\r\nX-A: 1\r\nContent-Type: text/plain\r\n\r\n",
    "204 with a length": b"HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\n",
    "204 with a body": response_beginning(b"HTTP/1.1 204 No"),
    "204 in chunks": b"HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    "205": b"HTTP/1.1 205 Reset\r\nContent-Length: 0\r\n\r\n",
    "205 with a body": response_beginning(b"HTTP/1.1 205 Reset"),
    "304": b'HTTP/1.1 304 Not\r\nETag: "x"\r\n\r\n',
    "304 with a length": b"HTTP/1.1 304 Not\r\nContent-Length: 5\r\n\r\n",
    "304 with a body": response_beginning(b"HTTP/1.1 304 Not"),
    "HTTP/1.0": response_beginning(b"HTTP/1.0 200 OK"),
    "HTTP/1.0 without a length": b"HTTP/1.0 200 OK\r\n\r\nhi",
    "HTTP/1.0 that is kept": b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi",
    "without a length": b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\nhi",
    "chunks with extensions": chunked_response(b'2;a="x;y"\r\nhi\r\n0;c\r\n\r\n'),
    "chunks with spaces": chunked_response(b"2 ; a = b\r\nhi\r\n2  \r\nho\r\n0\r\n\r\n"),
    "chunks with zeros": chunked_response(b"0" * 30 + b"2\r\nhi\r\n00\r\n\r\n"),
    "chunks in capitals": chunked_response(b"A\r\n0123456789\r\n0\r\n\r\n"),
    "chunks, and more behind": chunked_response(b"2\r\nhi\r\n0\r\n\r\nmore"),
    "trailers": chunked_response(b"2\r\nhi\r\n0\r\nX-A: 1\r\n\r\n"),
    "a broken trailer": chunked_response(b"2\r\nhi\r\n0\r\nbroken\r\n\r\n"),
    "no transfer coding": framed_response(b"Transfer-Encoding:\r\nContent-Length: 2"),
    "identity": framed_response(b"Transfer-Encoding: identity\r\nContent-Length: 2"),
    "the same length twice": framed_response(b"Content-Length: 2\r\nContent-Length: 2"),
    "the same length in a list": framed_response(b"Content-Length: 2, 2"),
    "a length with zeros": framed_response(b"Content-Length: " + b"0" * 30 + b"2"),
    "two lengths": framed_response(b"Content-Length: 2\r\nContent-Length: 3"),
    "two lengths in a list": framed_response(b"Content-Length: 2, 3"),
    "a length that is too short": framed_response(b"Content-Length: 1"),
}

EARLY: dict[str, bytes] = {
    "nothing of it": framed_response(b"Content-Length: 9")[:-2],
    "cut off": framed_response(b"Content-Length: 9"),
    "no chunk": chunked_response(b""),
    "in a chunk": chunked_response(b"5\r\nhi"),
    "behind a chunk": chunked_response(b"2\r\nhi\r\n"),
    "before the end of the trailers": chunked_response(b"2\r\nhi\r\n0\r\n"),
    "a size that is none": chunked_response(b"zz\r\nhi\r\n0\r\n\r\n"),
    "a size with a sign": chunked_response(b"+2\r\nhi\r\n0\r\n\r\n"),
    "a size behind a space": chunked_response(b" 2\r\nhi\r\n0\r\n\r\n"),
    "a size like 0x2": chunked_response(b"0x2\r\nhi\r\n0\r\n\r\n"),
    "too large a size": chunked_response(b"ffffffffffffffffff\r\nhi\r\n0\r\n\r\n"),
    "a chunk that is longer": chunked_response(b"2\r\nhixx0\r\n\r\n"),
}

REFUSED: dict[str, bytes] = {
    # RFC 9112, 6.3: an intermediary sends 502
    **{
        f"length {text}": framed_response(f"Content-Length: {text}".encode()) for text in ("+2", "-2", "two", "", "2.0")
    },
    # 6.1, 6.3 and 7: another recipient could interpret these differently
    "chunks and a length": chunked_response(b"2\r\nhi\r\n0\r\n\r\n", b"Content-Length: 2\r\n"),
    "chunks in HTTP/1.0": chunked_response(b"2\r\nhi\r\n0\r\n\r\n").replace(b"1.1", b"1.0"),
    "chunks twice": chunked_response(b"2\r\nhi\r\n0\r\n\r\n", b"Transfer-Encoding: chunked\r\n"),
    "gzip in chunks": framed_response(b"Transfer-Encoding: gzip, chunked"),
    "another transfer coding": framed_response(b"Transfer-Encoding: xchunked\r\nContent-Length: 2"),
    # 2.2, RFC 9110, 5.5
    "CR in a value": ok(b"X-A: a\rX-B: 1\r\n"),
    # 4, 8; RFC 9110, 15
    "cut off in the head": b"HTTP/1.1 200 OK\r\nX-A: 1\r\n",
    "cut off in the first line": b"HTTP/1.1 200",
    "two spaces": response_beginning(b"HTTP/1.1  200 OK"),
    "small letters": response_beginning(b"http/1.1 200 OK"),
    "HTTP/2.0": response_beginning(b"HTTP/2.0 200 OK"),
    "a status of two digits": response_beginning(b"HTTP/1.1 99 X"),
    "a status with a zero": response_beginning(b"HTTP/1.1 099 X"),
    "a status above 599": response_beginning(b"HTTP/1.1 600 X"),
    "a status of four digits": response_beginning(b"HTTP/1.1 2000 X"),
    "no status": response_beginning(b"HTTP/1.1"),
    "junk before": b"junk" + ok(b""),
}


def serves(data: bytes) -> Serve:
    """Send `data`, and close the connection."""

    async def answer(_: Asked, writer: StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        writer.close()

    return answer


@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize(("under", "method"), [("", "GET"), ("/streamed", "GET"), ("", "POST")])
async def test_answers_at_the_edges(places: Places, name: str, under: str, method: str) -> None:
    """All three places see the same."""
    places.backend.answers[f"{under}/raw"] = serves(SAME[name])
    seen = await places.same(READ, [f"{under}/raw", method])
    if under == "" and name == "latin-1":
        assert seen[4][3:5] == ["café", "\x80\x9f\xa0ÿ"]


@pytest.mark.parametrize("name", EARLY)
async def test_answers_that_end_too_early(places: Places, name: str) -> None:
    """On a streaming route the body fails after its head; else there is no answer."""
    places.backend.answers |= {"/streamed/early": serves(EARLY[name]), "/early": serves(EARLY[name])}
    assert (await places.same(READ, ["/streamed/early", "GET"]))[-1] == "TypeError"
    assert await places.seen(READ, ["/early", "GET"]) | {"backend": ""} == {
        "backend": "",
        "site": "failed",
        "view": "failed",
    }


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("under", ["", "/streamed"])
async def test_answers_that_are_refused(places: Places, name: str, under: str) -> None:
    """A browser repairs these, and an intermediary must not."""
    places.backend.answers[f"{under}/raw"] = serves(REFUSED[name])
    seen = await places.seen(READ, [f"{under}/raw", "GET"])
    assert (seen["site"], seen["view"], seen["backend"] != "failed") == ("failed", "failed", True)


HEADS = {
    "a length": b"Content-Length: 5",
    "no length": b"X-A: 1",
    "chunks": b"Transfer-Encoding: chunked",
    "a coding": b"Content-Encoding: gzip\r\nContent-Length: 5",
    "no type, no length": b"X-B: 1",
    "a type": b"Content-Type: application/json\r\nContent-Length: 5",
}


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("behind", [b"", b"12345"])
async def test_answers_to_head(places: Places, name: str, behind: bytes) -> None:
    """A body is ignored."""
    places.backend.answers["/head"] = serves(b"HTTP/1.1 200 OK\r\n%b\r\n\r\n%b" % (HEADS[name], behind))
    seen = await places.seen(READ, ["/head", "HEAD"])
    if name == "a coding":  # a decoded body has another length
        seen["backend"][4][-1] = None
    assert seen == dict.fromkeys(seen, seen["backend"])


@pytest.mark.parametrize("status", [b"204 No", b"304 Not"])
async def test_what_follows_an_answer_without_body_is_none(places: Places, status: bytes) -> None:
    """It is not the answer to the next request, either."""

    async def kept(_: Asked, writer: StreamWriter) -> None:
        writer.write(b"HTTP/1.1 %b\r\n\r\n%b" % (status, whole(b"wrong")))

    places.backend.answers["/kept"] = kept
    read = "async () => { await fetch('/kept'); return (await fetch('/next')).text(); }"
    for name in ("site", "view"):
        assert await places.places[name].evaluate(read) == "/next"


@pytest.mark.parametrize("name", ["204", "204 with a body", "205 with a body", "status 201", "no type", "status 500"])
async def test_what_ends_an_event_source(places: Places, name: str) -> None:
    """It fails, and does not reconnect (HTML, 9.2.3)."""
    places.backend.answers["/streamed/events"] = serves(SAME[name])
    listen = """async () => {
      const source = new EventSource("/streamed/events");
      await new Promise((go) => { source.onerror = source.onopen = go; });
      return [source.readyState, source.CLOSED];
    }"""
    assert await places.same(listen) == [2, 2]
