"""Tests of `gateway.backends.http`: exact requests out, bounded answers back, every failure a refusal."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.backends.connect import USER_AGENT, Connections
from gateway.backends.http import HttpBackend
from gateway.backends.http1 import Reading
from gateway.errors import Reason, Refusal
from gateway.model import Headers, Outbound, Response
from tests.backends.peers import Peer, Script, Shop, raw_peer, read_head

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


@pytest.fixture
async def backend() -> AsyncIterator[HttpBackend]:
    """A backend that may reach loopback."""
    async with Connections() as connections:
        yield HttpBackend(Shop(), connections)


async def refused(backend: HttpBackend, script: Script | bytes, request: Outbound | None = None) -> Reason:
    """The reason why a request to a peer with this script has no answer."""
    async with raw_peer(script) as peer:
        request = request or Outbound("GET", "")
        with pytest.raises(Refusal) as caught:
            await backend.send(
                Outbound(
                    request.method,
                    peer.url("/x"),
                    request.headers,
                    request.body,
                    timeout=request.timeout,
                    response_limit=request.response_limit,
                )
            )
    return caught.value.reason


async def sent(backend: HttpBackend, target: str = "/", headers: Headers = (), method: str = "GET") -> bytes:
    """The head of the request as the backend sees it."""
    async with raw_peer(OK) as peer:
        await backend.send(Outbound(method, peer.url(target), headers))
        return peer.requests[0].replace(b":%d" % peer.port, b":PORT")


async def answered(backend: HttpBackend, script: Script | bytes, method: str = "GET") -> Response:
    """The answer of a peer with this script."""
    async with raw_peer(script) as peer:
        return await backend.send(Outbound(method, peer.url()))


async def echo(request: web.Request) -> web.Response:
    """Answers with the body that came in."""
    return web.Response(body=await request.read(), content_type="application/octet-stream")


# what goes out


@pytest.mark.parametrize(
    "target",
    [
        "/api/%2e%2e/admin",
        "/a/../b",
        "/%61?q=%61&r=a+b%20c",
        "/caf%c3%a9?%C3%A9=1",
        "//double/",
        '/a;b=c,d|e?x={"y":[1]}\'',
        "/?a=1&&b=&",
        "/%zz?%",
    ],
)
async def test_url_byte_for_byte(backend: HttpBackend, target: str) -> None:
    """The request line holds the target exactly as it was given."""
    assert (await sent(backend, target)).split(b"\r\n")[0] == b"GET " + target.encode() + b" HTTP/1.1"


async def test_nothing_of_our_own_but_what_must_be(backend: HttpBackend) -> None:
    """A bare request carries host, our user-agent and the codings that we take, and nothing else."""
    head = await sent(backend)
    assert sorted(head.lower().split(b"\r\n")[1:-2]) == [
        b"accept-encoding: gzip, deflate",
        b"host: 127.0.0.1:port",
        f"user-agent: {USER_AGENT}".encode(),
    ]


async def test_framing_headers_are_ours(backend: HttpBackend) -> None:
    """Headers that frame a message or belong to a connection are not taken from the request; others are."""
    theirs = (
        ("host", "evil.example"),
        ("content-length", "99"),
        ("transfer-encoding", "chunked"),
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("expect", "100-continue"),
        ("accept-encoding", "br"),
        ("user-agent", "app/1"),
        ("x-a", "1"),
        ("x-a", "2"),
        ("authorization", "Bearer t"),
    )
    head = (await sent(backend, headers=theirs)).lower()
    assert sorted(head.split(b"\r\n")[1:-2]) == [
        b"accept-encoding: gzip, deflate",
        b"authorization: bearer t",
        b"host: 127.0.0.1:port",
        b"user-agent: app/1",
        b"x-a: 1",
        b"x-a: 2",
    ]


@pytest.mark.parametrize(
    "pair", [("x-a", "a\r\nx-b: 1"), ("x-a", "a\0"), ("x a", "1"), ("x-a:", "1"), ("x-a", "é"), ("", "1")]
)
async def test_headers_that_cannot_be_sent(backend: HttpBackend, pair: tuple[str, str]) -> None:
    """A header that would change the message, or itself, on the wire is refused."""
    assert await refused(backend, OK, Outbound("GET", "", (pair,))) is Reason.BAD_REQUEST


@pytest.mark.parametrize(
    "url",
    [
        "/api",
        "http://127.0.0.1",
        "http://127.0.0.1:1?x",
        "http://user:pass@127.0.0.1:1/",
        "http://127.0.0.1:1/a#b",
        "http://127.0.0.1:1/a b",
        "http://127.0.0.1:1/é",
        "http://127.0.0.1:1/a\r\nx: y",
        "http://127.0.0.1:99999/",
        "http://127.0.0.1:x/",
        "http://127.0.0.1\\@evil.example/",
        "ftp://127.0.0.1/",
        "http://127.0.0.1:1/a?",
        "",
    ],
)
async def test_urls_that_cannot_be_sent(backend: HttpBackend, url: str) -> None:
    """A URL that is not absolute and encoded, or that would be rewritten, is refused."""
    with pytest.raises(Refusal) as caught:
        await backend.send(Outbound("GET", url))
    assert caught.value.reason is Reason.BAD_REQUEST


@pytest.mark.parametrize("method", ["CONNECT", "TRACE", "TRACK", "get", "GE T", "GET\r\n", ""])
async def test_methods_that_cannot_be_sent(backend: HttpBackend, method: str) -> None:
    """A method that is none, or that means the connection itself, is refused."""
    assert await refused(backend, OK, Outbound(method, "")) is Reason.BAD_REQUEST


@pytest.mark.parametrize("body", [b"", b"{}", bytes(range(256)) * 20_000])
async def test_body_exact(backend: HttpBackend, body: bytes) -> None:
    """The body arrives byte for byte, small or large, and without a content-type of our own."""
    seen = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.headers.get("content-type"))
        return await echo(request)

    app = web.Application(client_max_size=10**8)
    app.router.add_post("/", handler)
    async with TestServer(app) as server:
        answer = await backend.send(Outbound("POST", str(server.make_url("/")), body=body, response_limit=10**8))
    assert answer.body == body
    assert seen == [None]


# what comes back


async def test_answer(backend: HttpBackend) -> None:
    """Status, phrase, headers in lower case and in order, repeated ones apart, framing removed."""
    answer = await answered(
        backend,
        b"HTTP/1.1 404 Not Here\r\nX-B: 1\r\nX-A: \xe9\r\nx-b: 2\r\nSet-Cookie: a=b\r\nConnection: close, X-Hop\r\n"
        b"X-Hop: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    )
    assert (answer.status, answer.reason_phrase, answer.body) == (404, "Not Here", b"ok")
    assert answer.headers == (("x-b", "1"), ("x-a", "é"), ("x-b", "2"), ("set-cookie", "a=b"))


async def test_interim_answers_are_passed_over(backend: HttpBackend) -> None:
    """1xx answers are not the answer."""
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    assert (await answered(backend, interim + OK)).body == b"ok"


@pytest.mark.parametrize(
    ("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304), ("POST", 204), ("HEAD", 404), ("GET", 205)]
)
async def test_answers_without_body(backend: HttpBackend, method: str, status: int) -> None:
    """HEAD, 204 and 304 end after their head, whatever content-length or content-encoding says."""
    length = 0 if status == 205 else 5
    head = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\nContent-Encoding: gzip\r\n\r\n" % (status, length)
    answer = await answered(backend, head, method)
    assert (answer.status, answer.body) == (status, b"")


@pytest.mark.parametrize(
    ("method", "head"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 45\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 45\r\n\r\n"),
        ("GET", b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n"),
    ],
)
async def test_a_body_where_there_is_none_answers_nobody_else(backend: HttpBackend, method: str, head: bytes) -> None:
    """A server that sends it late, behind such a head, must not have it taken for the next caller's answer."""

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        await writer.drain()
        await read_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nanother")
        await writer.drain()

    async with raw_peer(late) as peer:
        await backend.send(Outbound(method, peer.url()))
        await backend.send(Outbound(method, peer.url()))
        assert peer.connections == 2


async def test_many_small_pieces_are_one_body(backend: HttpBackend) -> None:
    """However an answer is cut into chunks, and its bytes into packets."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"1\r\nx\r\n" * 50_000 + b"0\r\na: b\r\n\r\n"
    assert (await answered(backend, head + body)).body == b"x" * 50_000
    reading = Reading("GET", 1000)
    whole = b"HTTP/1.1 103 E\r\na: b\r\n\r\n" + head + b"2\r\nab\r\n1;x\r\nc\r\n0\r\n\r\n"
    assert [reading.feed(whole[at : at + 1]) for at in range(len(whole))] == [False] * (len(whole) - 1) + [True]
    assert (reading.body(), reading.reusable) == (b"abc", True)


async def test_redirects_are_not_followed(backend: HttpBackend) -> None:
    """A redirect is an answer like any other, and cookies are not kept."""
    async with raw_peer(b"HTTP/1.1 302 F\r\nLocation: /next\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n") as peer:
        url = f"http://localhost:{peer.port}/"
        answer = await backend.send(Outbound("GET", url))
        await backend.send(Outbound("GET", url))
        assert (answer.status, answer.header("location")) == (302, "/next")
        assert b"cookie" not in peer.requests[1].lower()


async def test_compressed_answer(backend: HttpBackend) -> None:
    """A gzip answer arrives decompressed, without content-encoding and content-length."""
    packed = gzip.compress(b"hello")
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\nETag: x\r\n\r\n" % len(packed)
    answer = await answered(backend, head + packed)
    assert (answer.body, answer.headers) == (b"hello", (("etag", "x"),))


@pytest.mark.parametrize("status", [b"000", b"099", b"101", b"600", b"999", b"20", b"abc", b"-200"])
async def test_status_outside_http(backend: HttpBackend, status: bytes) -> None:
    """A status that no client could be given is a broken protocol."""
    answer = b"HTTP/1.1 %s X\r\nContent-Length: 0\r\n\r\n" % status
    assert await refused(backend, answer) is Reason.BACKEND_PROTOCOL


@pytest.mark.parametrize(
    "answer",
    [
        b"\x16\x03\x01garbage\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nnot gzip",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"cut off")[:-4],
        b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * 20_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-A: 1\r\n" * 1000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: a\x01b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: a\x00b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX A: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunke\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\na",
        b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0x1\r\n\r\na",
        b"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\na\n0\n\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * 9000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nbroken trailer\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * 2000 + b"\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 1\n\na",
        b"HTTP/1.1 200 OK\r\n X-A: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A : 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.2 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\x00\r\n\r\n",
        b"HTTP/1.1  200 OK\r\n\r\n",
        b"HTTP/1.1 200 " + b"x" * 9000 + b"\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
    ],
)
async def test_broken_answers(backend: HttpBackend, answer: bytes) -> None:
    """What is not HTTP, or not whole, is never given on as an answer."""
    assert await refused(backend, answer) is Reason.BACKEND_PROTOCOL


async def test_bare_carriage_return(backend: HttpBackend) -> None:
    """A bare CR in a header never reaches the caller."""
    assert await refused(backend, b"HTTP/1.1 200 OK\r\nX-A: a\rX-B: 1\r\n\r\n") is Reason.BACKEND_PROTOCOL


async def test_no_answer_at_all(backend: HttpBackend) -> None:
    """A backend that takes the request and closes is unreachable."""
    assert await refused(backend, b"") is Reason.BACKEND_UNREACHABLE


async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Half an answer, then a reset."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    await writer.drain()
    await asyncio.sleep(0.05)
    writer.transport.abort()


async def test_reset_in_the_body(backend: HttpBackend) -> None:
    """A connection that is reset in the middle of a body gives no half answer."""
    assert await refused(backend, reset) is Reason.BACKEND_PROTOCOL


# bounds


async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A body without end."""
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        await writer.drain()


async def test_endless_body(backend: HttpBackend) -> None:
    """A body without end is cut at the limit, and the connection closed."""
    async with raw_peer(endless) as peer:
        with pytest.raises(Refusal) as caught:
            await backend.send(Outbound("GET", peer.url(), response_limit=1_000_000))
        await asyncio.wait_for(peer.closed.wait(), 5)
    assert caught.value.reason is Reason.RESPONSE_TOO_LARGE


@pytest.mark.parametrize(("size", "fits"), [(1000, True), (1001, False)])
async def test_limit_is_exact(backend: HttpBackend, size: int, fits: bool) -> None:
    """A body of the limit passes, one byte more does not."""
    async with raw_peer(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size) as peer:
        request = Outbound("GET", peer.url(), response_limit=1000)
        if fits:
            assert len((await backend.send(request)).body) == size
        else:
            with pytest.raises(Refusal):
                await backend.send(request)


async def test_gzip_bomb(backend: HttpBackend) -> None:
    """A bomb is refused by its ratio, though its size would pass."""
    bomb = gzip.compress(bytes(200_000_000), 9)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    assert await refused(backend, head + bomb, Outbound("GET", "", response_limit=10**9)) is Reason.RESPONSE_TOO_LARGE


async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A byte every now and then."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.05)


async def interim(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Interim answers for ever."""
    while True:
        writer.write(b"HTTP/1.1 102 Processing\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.01)


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Nothing at all."""
    await asyncio.sleep(3600)


async def head_then_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A head, and no body."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    await asyncio.sleep(3600)


@pytest.mark.parametrize("script", [drip, interim, silent, head_then_nothing])
async def test_timeout_covers_the_whole_answer(backend: HttpBackend, script: Script) -> None:
    """However slowly a backend answers, the timeout ends it."""
    assert await refused(backend, script, Outbound("GET", "", timeout=0.3)) is Reason.BACKEND_TIMEOUT


async def test_backend_that_does_not_read(backend: HttpBackend) -> None:
    """An answer that comes before the request's body was read is an answer."""
    early = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(early)
        await writer.drain()
        await asyncio.sleep(0.5)

    async with raw_peer(script) as peer:
        request = Outbound("POST", peer.url(), body=bytes(20_000_000), timeout=3)
        assert (await backend.send(request)).status == 413


# connections


async def keep_alive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A good answer; the connection stays open."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    await writer.drain()


async def test_connections_are_kept(backend: HttpBackend) -> None:
    """Requests one after the other share a connection."""
    async with raw_peer(keep_alive) as peer:
        for _ in range(5):
            await backend.send(Outbound("GET", peer.url()))
        assert peer.connections == 1


async def test_a_connection_that_says_too_much_is_not_kept(backend: HttpBackend) -> None:
    """What follows an answer never becomes the beginning of the next one."""

    async def talkative(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        await writer.drain()

    async with raw_peer(talkative) as peer:
        bodies = [(await backend.send(Outbound("GET", peer.url()))).body for _ in range(2)]
        assert (bodies, peer.connections) == ([b"ok", b"ok"], 2)


async def test_an_answer_in_single_bytes(backend: HttpBackend) -> None:
    """However an answer is cut, chunk extensions and trailers passed over, it is the same."""
    whole = (
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 \r\nX-A:  b \r\nTransfer-Encoding: Chunked\r\n\r\n"
        b'2;a="b"\r\nok\r\n3\r\n, 2\r\n0\r\nTrailer: x\r\n\r\n'
    )

    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in whole:
            writer.write(bytes((byte,)))
            await writer.drain()
            await asyncio.sleep(0)

    async with raw_peer(slowly) as peer:
        answer = await backend.send(Outbound("GET", peer.url()))
    assert (answer.body, answer.headers, answer.reason_phrase) == (b"ok, 2", (("x-a", "b"),), "")


async def test_many_at_once(backend: HttpBackend) -> None:
    """Answers do not get mixed up among many requests at once."""
    app = web.Application()
    app.router.add_post("/", echo)
    async with TestServer(app) as server:
        url = str(server.make_url("/"))
        bodies = [b"%d" % number * 1000 for number in range(300)]
        answers = await asyncio.gather(*(backend.send(Outbound("POST", url, body=body)) for body in bodies))
    assert [answer.body for answer in answers] == bodies


async def test_cancel_closes_the_connection(backend: HttpBackend) -> None:
    """A cancelled request ends at the backend, too."""
    async with raw_peer(silent_until_closed) as peer:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(backend.send(Outbound("GET", peer.url(), timeout=60)))
            await until(lambda: bool(peer.requests))
            task.cancel()
        await asyncio.wait_for(peer.closed.wait(), 5)


async def silent_until_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Says nothing and leaves when the client does."""
    await reader.read()


@pytest.mark.parametrize(("method", "tries"), [("GET", 2), ("HEAD", 2), ("POST", 1), ("PUT", 1), ("DELETE", 1)])
async def test_only_safe_requests_are_repeated(backend: HttpBackend, method: str, tries: int) -> None:
    """A request that may have run is sent again only where it is safe, and only once."""
    async with raw_peer(b"") as peer:
        with pytest.raises(Refusal) as caught:
            await backend.send(Outbound(method, peer.url()))
        assert caught.value.reason is Reason.BACKEND_UNREACHABLE
        assert len(peer.requests) == tries


async def test_recovery(backend: HttpBackend) -> None:
    """A backend that comes back is reached again."""
    peers: list[Peer] = []

    async def first_time_closes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if peers[0].connections <= 2:
            writer.close()
        else:
            await keep_alive(reader, writer)

    async with raw_peer(first_time_closes) as peer:
        peers.append(peer)
        with pytest.raises(Refusal):
            await backend.send(Outbound("GET", peer.url()))
        assert (await backend.send(Outbound("GET", peer.url()))).body == b"ok"


async def until(condition: object, seconds: float = 5) -> None:
    """Wait until `condition()` holds."""
    assert callable(condition)
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)
