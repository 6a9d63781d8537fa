"""Tests of `gateway.backends.http`: exact requests out, bounded answers back, every failure a refusal."""

from __future__ import annotations

import asyncio
import gzip

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.backends.codings import Body
from gateway.backends.connect import CONNECTIONS_PER_HOST, USER_AGENT
from gateway.backends.http import HttpBackend
from gateway.backends.http1 import CHUNKS_SLICE, CODED_SLICE, INTERIM, MalformedResponse, ResponseReader
from gateway.errors import Reason, Refusal
from gateway.model import Headers, Outbound
from tests.backends.peers import OK, Peer, fetch_from, raw_peer, read_head, refusal_reason


async def received_head(backend: HttpBackend, target: str = "/", headers: Headers = (), method: str = "GET") -> bytes:
    """The head of the request that the backend receives."""
    async with raw_peer(OK) as peer:
        await backend.send(Outbound(method, peer.url(target), headers))
        return peer.requests[0].replace(b":%d" % peer.port, b":PORT")


async def echo(request: web.Request) -> web.Response:
    """Answer with the request's body."""
    return web.Response(body=await request.read(), content_type="application/octet-stream")


# requests


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
    """The request line contains the target byte for byte."""
    assert (await received_head(backend, target)).split(b"\r\n")[0] == b"GET " + target.encode() + b" HTTP/1.1"


async def test_nothing_of_our_own_but_what_must_be(backend: HttpBackend) -> None:
    """A bare request has host, our user-agent and the accepted codings, and no other field."""
    head = await received_head(backend)
    assert sorted(head.lower().split(b"\r\n")[1:-2]) == [
        b"accept-encoding: gzip, deflate, br, zstd",
        b"host: 127.0.0.1:port",
        f"user-agent: {USER_AGENT}".encode(),
    ]


async def test_framing_headers_are_ours(backend: HttpBackend) -> None:
    """Framing and hop-by-hop fields are not taken from the request; others are."""
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
    head = (await received_head(backend, headers=theirs)).lower()
    assert sorted(head.split(b"\r\n")[1:-2]) == [
        b"accept-encoding: gzip, deflate, br, zstd",
        b"authorization: bearer t",
        b"host: 127.0.0.1:port",
        b"user-agent: app/1",
        b"x-a: 1",
        b"x-a: 2",
    ]


@pytest.mark.parametrize(
    "pair",
    [("x-a", "a\r\nx-b: 1"), ("x-a", "a\0"), ("x a", "1"), ("x-a:", "1"), ("x-a", "€"), ("x-a", "a\x01"), ("", "1")],
)
async def test_headers_that_cannot_be_sent(backend: HttpBackend, pair: tuple[str, str]) -> None:
    """A header that would change the message, or itself, on the wire is refused."""
    assert await refusal_reason(backend, OK, Outbound("GET", "", (pair,))) is Reason.BAD_REQUEST


@pytest.mark.parametrize("pair", [("x-a", "\xe9"), ("x-a", "\xc3\xa9"), ("last-event-id", "a\x01\xc3\xa9")])
async def test_a_character_of_a_header_is_a_byte(backend: HttpBackend, http_client: str, pair: tuple[str, str]) -> None:
    """Isomorphic encoding as in `fetch` (Fetch, "isomorphic encode"); an event ID may have control characters too.

    aiohttp's client writes UTF-8 without control characters: other bytes are refused, not changed.
    """
    if http_client == "aiohttp" and pair[1] != "\xc3\xa9":
        assert await refusal_reason(backend, OK, Outbound("GET", "", (pair,))) is Reason.BAD_REQUEST
    else:
        assert f"{pair[0]}: {pair[1]}".encode("latin-1") in (await received_head(backend, headers=(pair,))).split(
            b"\r\n"
        )


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
    """An invalid method, or one for the connection itself, is refused."""
    assert await refusal_reason(backend, OK, Outbound(method, "")) is Reason.BAD_REQUEST


@pytest.mark.parametrize("body", [b"", b"{}", bytes(range(256)) * 20_000])
async def test_body_exact(backend: HttpBackend, body: bytes) -> None:
    """The body arrives byte for byte, small or large, and no content-type is added."""
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


# answers


async def test_answer(backend: HttpBackend) -> None:
    """Status, phrase and headers (lower case, in order, repeated ones separate) are kept; framing is removed."""
    answer = await fetch_from(
        backend,
        b"HTTP/1.1 404 Not Here\r\nX-B: 1\r\nX-A: \xe9\r\nx-b: 2\r\nSet-Cookie: a=b\r\nConnection: close, X-Hop\r\n"
        b"X-Hop: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    )
    assert (answer.status, answer.reason_phrase, answer.body) == (404, "Not Here", b"ok")
    assert answer.headers == (("x-b", "1"), ("x-a", "é"), ("x-b", "2"), ("set-cookie", "a=b"))


async def test_interim_answers_are_passed_over(backend: HttpBackend) -> None:
    """1xx answers are skipped."""
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    assert (await fetch_from(backend, interim + OK)).body == b"ok"


@pytest.mark.parametrize(
    ("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304), ("POST", 204), ("HEAD", 404), ("GET", 205)]
)
async def test_answers_without_body(backend: HttpBackend, method: str, status: int) -> None:
    """HEAD, 204 and 304 end after their head, regardless of content-length and content-encoding."""
    length = 0 if status == 205 else 5
    head = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\nContent-Encoding: gzip\r\n\r\n" % (status, length)
    answer = await fetch_from(backend, head, method)
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
    """A body after such a head must not be taken for the answer to the next request."""

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


def test_interim_answers_come_to_an_end() -> None:
    """The number of interim answers is bounded: each takes processing time from other requests."""
    interim = b"HTTP/1.1 103 E\r\n\r\n"
    assert ResponseReader("GET", 1000).feed(interim * INTERIM + b"HTTP/1.1 204 N\r\n\r\n")
    with pytest.raises(MalformedResponse, match="too many interim answers"):
        ResponseReader("GET", 1000).feed(interim * (INTERIM + 1))


async def test_many_small_pieces_are_one_body(backend: HttpBackend) -> None:
    """The body does not depend on its split into chunks and packets."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"1\r\nx\r\n" * 50_000 + b"0\r\na: b\r\n\r\n"
    assert (await fetch_from(backend, head + body)).body == b"x" * 50_000
    reading = ResponseReader("GET", 1000)
    whole = b"HTTP/1.1 103 E\r\na: b\r\n\r\n" + head + b"2\r\nab\r\n1;x\r\nc\r\n0\r\n\r\n"
    assert [reading.feed(whole[at : at + 1]) for at in range(len(whole))] == [False] * (len(whole) - 1) + [True]
    assert (reading.body(), reading.reusable) == (b"abc", True)


async def test_others_have_their_turn_between_many_small_chunks(
    backend: HttpBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other tasks run meanwhile, even if all chunks come in one packet."""
    seen, longest = 0, 0
    feed = Body.feed

    def counted(body: Body, data: bytes) -> None:
        nonlocal seen
        seen += 1
        feed(body, data)

    async def others() -> None:
        nonlocal seen, longest
        while True:
            longest, seen = max(longest, seen), 0
            await asyncio.sleep(0)

    monkeypatch.setattr(Body, "feed", counted)
    beside = asyncio.create_task(others())
    whole = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 30_000 + b"0\r\n\r\n"
    assert (await fetch_from(backend, whole)).body == b"x" * 30_000
    beside.cancel()
    assert 0 < longest <= CHUNKS_SLICE


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
async def test_others_have_their_turn_while_much_is_decompressed(backend: HttpBackend, framing: str) -> None:
    """Other tasks run meanwhile, even if one packet decompresses to two hundred times its size."""
    body = b"".join(number.to_bytes(4, "big") for number in range(100_000))
    packed = gzip.compress(body)
    head, sent = {
        "length": (b"Content-Length: %d" % len(packed), packed),
        "chunked": (b"Transfer-Encoding: chunked", b"%x\r\n%b\r\n0\r\n\r\n" % (len(packed), packed)),
        "close": (b"Connection: close", packed),
    }[framing]
    whole = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n" + head + b"\r\n\r\n" + sent
    reading, rounds = ResponseReader("GET", 2**20), 1
    complete = reading.feed(whole)
    while reading.paused:
        reading.resume()
        complete, rounds = reading.feed(b""), rounds + 1
    assert (complete or reading.eof(), reading.body()) == (True, body)
    assert rounds >= len(packed) / CODED_SLICE > 5
    assert (await fetch_from(backend, whole)).body == body


async def test_redirects_are_not_followed(backend: HttpBackend) -> None:
    """A redirect is passed on like any answer, and cookies are not stored."""
    async with raw_peer(b"HTTP/1.1 302 F\r\nLocation: /next\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n") as peer:
        url = f"http://localhost:{peer.port}/"
        answer = await backend.send(Outbound("GET", url))
        await backend.send(Outbound("GET", url))
        assert (answer.status, answer.header("location")) == (302, "/next")
        assert b"cookie" not in peer.requests[1].lower()


async def test_compressed_answer(backend: HttpBackend) -> None:
    """A gzip answer is decompressed, without content-encoding and content-length."""
    packed = gzip.compress(b"hello")
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\nETag: x\r\n\r\n" % len(packed)
    answer = await fetch_from(backend, head + packed)
    assert (answer.body, answer.headers) == (b"hello", (("etag", "x"),))


# connections


async def keep_alive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send a valid answer, and keep the connection open."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    await writer.drain()


async def test_connections_are_kept(backend: HttpBackend) -> None:
    """Successive requests share a connection."""
    async with raw_peer(keep_alive) as peer:
        for _ in range(5):
            await backend.send(Outbound("GET", peer.url()))
        assert peer.connections == 1


async def test_a_connection_that_says_too_much_is_not_kept(backend: HttpBackend) -> None:
    """Bytes after an answer are never taken for the beginning of the next one."""

    async def talkative(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        await writer.drain()

    async with raw_peer(talkative) as peer:
        bodies = [(await backend.send(Outbound("GET", peer.url()))).body for _ in range(2)]
        assert (bodies, peer.connections) == ([b"ok", b"ok"], 2)


async def test_an_answer_in_single_bytes(backend: HttpBackend) -> None:
    """The answer does not depend on how it is split; chunk extensions and trailers are skipped."""
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
    """Many concurrent requests each get their own answer."""
    app = web.Application()
    app.router.add_post("/", echo)
    async with TestServer(app) as server:
        url = str(server.make_url("/"))
        bodies = [b"%d" % number * 1000 for number in range(300)]
        answers = await asyncio.gather(*(backend.send(Outbound("POST", url, body=body)) for body in bodies))
    assert [answer.body for answer in answers] == bodies


async def test_cancel_closes_the_connection(backend: HttpBackend) -> None:
    """A cancelled request closes its connection to the backend."""
    async with raw_peer(silent_until_closed) as peer:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(backend.send(Outbound("GET", peer.url(), timeout=60)))
            await until(lambda: bool(peer.requests))
            task.cancel()
        await asyncio.wait_for(peer.closed.wait(), 20)


async def test_who_waits_for_a_connection_gets_the_next_one(backend: HttpBackend) -> None:
    """All connections of an origin are in use; a cancelled waiter leaves its place to the next."""
    go = asyncio.Event()

    async def answers_then(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        await keep_alive(reader, writer)

    async with raw_peer(answers_then) as peer, asyncio.TaskGroup() as group:
        request = Outbound("GET", peer.url(), timeout=60)
        tasks = [group.create_task(backend.send(request)) for _ in range(CONNECTIONS_PER_HOST + 10)]
        await until(lambda: len(peer.requests) == CONNECTIONS_PER_HOST)
        for waiting in tasks[-5:]:
            waiting.cancel()
        go.set()
        bodies = [(await task).body for task in tasks[:-5]]
        again = await asyncio.gather(*(backend.send(request) for _ in range(CONNECTIONS_PER_HOST)))
    assert bodies == [b"ok"] * (CONNECTIONS_PER_HOST + 5)
    assert len(again) == CONNECTIONS_PER_HOST
    assert peer.connections == CONNECTIONS_PER_HOST


async def test_each_request_has_its_own_time(backend: HttpBackend) -> None:
    """Each request has its own timeout, also on a reused connection and beside others with the same timeout."""

    async def first_answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await keep_alive(reader, writer)
        await silent_until_closed(reader, writer)

    async with raw_peer(first_answers) as peer:
        request = Outbound("GET", peer.url(), timeout=1.5)
        assert (await backend.send(request)).body == b"ok"
        with pytest.raises(Refusal) as caught:
            await backend.send(request)
    assert caught.value.reason is Reason.BACKEND_TIMEOUT


async def silent_until_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send nothing, and close when the client does."""
    await reader.read()


@pytest.mark.parametrize(("method", "tries"), [("GET", 2), ("HEAD", 2), ("POST", 1), ("PUT", 1), ("DELETE", 1)])
async def test_only_safe_requests_are_repeated(backend: HttpBackend, method: str, tries: int) -> None:
    """A request that may have run is repeated only if it is safe, and only once."""
    async with raw_peer(b"") as peer:
        with pytest.raises(Refusal) as caught:
            await backend.send(Outbound(method, peer.url()))
        assert caught.value.reason is Reason.BACKEND_UNREACHABLE
        assert len(peer.requests) == tries


async def test_recovery(backend: HttpBackend) -> None:
    """A backend that is back is reached again."""
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


async def until(condition: object, seconds: float = 20) -> None:
    """Wait until `condition()` holds."""
    assert callable(condition)
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_long_body_goes_as_the_backend_takes_it(backend: HttpBackend) -> None:
    """Other tasks run meanwhile; after an early answer the rest of the body is not sent."""
    body = bytes(range(256)) * 64 * 1024
    taken: list[bytes] = []

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while sum(map(len, taken)) < len(body):
            taken.append(await reader.read(1 << 16))
        writer.write(OK)

    async with raw_peer(slow) as peer:
        assert (await backend.send(Outbound("POST", peer.url(), body=body))).body == b"ok"
    assert b"".join(taken) == body

    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        await writer.drain()

    async with raw_peer(early) as peer, asyncio.timeout(60):
        for number in (1, 2):
            assert (await backend.send(Outbound("POST", peer.url(), body=body))).status == 413
            assert peer.connections == number
        async with backend.stream(Outbound("POST", peer.url(), body=body)) as arriving:
            assert [part async for part in arriving.parts] == [b"no"]
