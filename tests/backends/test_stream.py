"""Tests of streaming in `gateway.backends.http`: parts are passed on at once, under the limits of whole answers."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from contextlib import AsyncExitStack

import pytest

from gateway.backends.connect import CONNECTIONS_PER_HOST
from gateway.backends.http import BUFFER_BYTES, HttpBackend
from gateway.errors import Reason, Refusal
from gateway.model import Outbound
from tests.backends.peers import OK, raw_peer

BODY = b"x" * 300_000
"""Too large for one write."""


async def test_a_stream_comes_as_it_is_sent(backend: HttpBackend) -> None:
    """Each part is passed on when it arrives, decompressed; the head before all of them."""
    go_on = asyncio.Event()
    packer = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)

    async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n")
        for number in (b"one", b"two"):
            await go_on.wait()
            go_on.clear()
            data = packer.compress(number) + packer.flush(zlib.Z_SYNC_FLUSH)
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        data = packer.flush()
        writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data))

    async with raw_peer(script) as peer, backend.stream(Outbound("GET", peer.url())) as arriving:
        assert (arriving.head.status, arriving.head.body) == (200, b"")
        assert "content-encoding" not in dict(arriving.head.headers)
        go_on.set()
        assert await anext(arriving.parts) == b"one"
        go_on.set()
        assert [part async for part in arriving.parts] == [b"two"]


async def test_streams_and_other_requests_do_not_wait_for_each_other(backend: HttpBackend) -> None:
    """More event streams than connections for other requests all start and flow, beside a large body."""
    news = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if b"/events" in peer.requests[-1]:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
            await news.wait()
            writer.write(b"data: 1\n\n")
            writer.close()
        else:
            await reader.readexactly(len(BODY))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    async with raw_peer(script) as peer, AsyncExitStack() as held:
        events = Outbound("GET", peer.url("/events"))
        streams = [await held.enter_async_context(backend.stream(events)) for _ in range(2 * CONNECTIONS_PER_HOST + 1)]
        assert (await backend.send(Outbound("POST", peer.url("/other"), body=BODY))).body == b"ok"
        news.set()
        assert {await anext(stream.parts) for stream in streams} == {b"data: 1\n\n"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"content-length: 100\r\n\r\nhalf", Reason.BACKEND_PROTOCOL),
        (b"\r\n" + b"x" * 2000, Reason.RESPONSE_TOO_LARGE),
        (b"content-encoding: gzip\r\n\r\n" + gzip.compress(b"x" * 2000, mtime=0), Reason.RESPONSE_TOO_LARGE),
        (b"content-encoding: gzip\r\n\r\n" + gzip.compress(b"x" * 500, mtime=0)[:-9], Reason.BACKEND_PROTOCOL),
        (b"content-encoding: gzip\r\n\r\nnot gzip", Reason.BACKEND_PROTOCOL),
    ],
)
async def test_what_breaks_a_stream(backend: HttpBackend, body: bytes, said: Reason) -> None:
    """The limits of whole answers apply to the sum of the parts."""
    async with raw_peer(b"HTTP/1.1 200 OK\r\n" + body) as peer:
        asked = Outbound("GET", peer.url(), response_limit=1000)
        with pytest.raises(Refusal) as refused:
            async with backend.stream(asked) as arriving:
                _ = [part async for part in arriving.parts]
    assert refused.value.reason is said


async def test_a_stream_that_is_told_to_be_too_large_never_begins(backend: HttpBackend) -> None:
    """A stream with too large a content-length is refused before its head is sent; HEAD may declare any length."""
    long = b"content-length: 2000\r\n\r\n"
    async with raw_peer(b"HTTP/1.1 200 OK\r\n" + long) as peer:
        with pytest.raises(Refusal) as refused:
            async with backend.stream(Outbound("GET", peer.url(), response_limit=1000)):
                pass
        async with backend.stream(Outbound("HEAD", peer.url(), response_limit=1000)) as arriving:
            assert arriving.head.length == 2000
        async with backend.stream(Outbound("GET", peer.url(), response_limit=2000)) as arriving:
            assert arriving.head.status == 200
    assert refused.value.reason is Reason.RESPONSE_TOO_LARGE
    async with (
        raw_peer(b"HTTP/1.1 304 Not Modified\r\n" + long) as peer,
        backend.stream(Outbound("GET", peer.url(), response_limit=1000)) as arriving,
    ):
        assert arriving.head.status == 304


async def test_a_stream_that_falls_silent(backend: HttpBackend) -> None:
    """The timeout applies to each wait between two parts."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
        await reader.read()

    async with raw_peer(script) as peer, backend.stream(Outbound("GET", peer.url(), timeout=1.5)) as arriving:
        assert await anext(arriving.parts) == b"one"
        with pytest.raises(Refusal) as refused:
            await anext(arriving.parts)
    assert refused.value.reason is Reason.BACKEND_TIMEOUT


@pytest.mark.parametrize("kind", ["text/event-stream; charset=utf-8", "application/x-ndjson"])
async def test_events_may_be_far_apart(backend: HttpBackend, kind: str) -> None:
    """Browsers do not end a silent event stream; the timeout applies to the head only."""
    go_on = asyncio.Event()

    async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n".encode())
        await go_on.wait()
        writer.write(b"data: 1\n\n")

    async with raw_peer(script) as peer, backend.stream(Outbound("GET", peer.url(), timeout=0.2)) as arriving:
        coming = asyncio.ensure_future(anext(arriving.parts))
        await asyncio.wait({coming}, timeout=0.5)
        go_on.set()
        assert await coming == b"data: 1\n\n"


async def test_a_stream_without_a_head(backend: HttpBackend) -> None:
    """It is refused as a whole answer is."""

    async def script(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with raw_peer(script) as peer:
        with pytest.raises(Refusal) as refused:
            async with backend.stream(Outbound("GET", peer.url(), timeout=0.1)):
                raise AssertionError("there is no head")
    assert refused.value.reason is Reason.BACKEND_TIMEOUT


async def test_a_stream_that_is_left_ends_at_the_backend(backend: HttpBackend) -> None:
    """Its connection is closed, and not reused."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
        await reader.read()

    async with raw_peer(script) as peer:
        async with backend.stream(Outbound("GET", peer.url())) as arriving:
            assert await anext(arriving.parts) == b"one"
        async with asyncio.timeout(60):
            await peer.closed.wait()


async def test_a_stream_that_is_read_leaves_its_connection(backend: HttpBackend) -> None:
    """The next request reuses the connection."""

    async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\none")

    async with raw_peer(script) as peer:
        for _ in range(2):
            async with backend.stream(Outbound("GET", peer.url())) as arriving:
                assert b"".join([part async for part in arriving.parts]) == b"one"
        assert (len(peer.requests), peer.connections) == (2, 1)


FIELDS = [("last-event-id", "a\x01\xc3\xa9"), ("x-a", "\xe9"), ("x-b", "\xc3\xa9")]


@pytest.mark.parametrize(("name", "value"), FIELDS)
async def test_a_stream_is_asked_for_with_the_bytes_of_its_header(
    backend: HttpBackend, http_client: str, name: str, value: str
) -> None:
    """Header bytes that aiohttp's client does not write are sent by the gateway's own; the answer is streamed."""
    if http_client == "aiohttp" and value != "\xc3\xa9":
        with pytest.raises(Refusal, match="cannot send"):
            async with raw_peer(OK) as peer, backend.stream(Outbound("GET", peer.url(), ((name, value),))):
                pass
        return
    go_on = asyncio.Event()

    async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n"
        )
        await go_on.wait()
        writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY))

    async with raw_peer(script) as peer, backend.stream(Outbound("GET", peer.url(), ((name, value),))) as arriving:
        assert f"\r\n{name}: {value}\r\n".encode("latin-1") in peer.requests[0]
        assert dict(arriving.head.headers)["content-type"] == "text/event-stream"
        assert await anext(arriving.parts) == b"first"
        go_on.set()
        assert b"".join([part async for part in arriving.parts]) == BODY


async def test_who_leaves_such_a_stream_ends_its_connection(backend: HttpBackend) -> None:
    """A stream that still sends is closed, too; only a little is read ahead."""

    async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    async with raw_peer(script) as peer:
        asked = Outbound("GET", peer.url(), (("last-event-id", "\xc3\xa9"),), response_limit=1 << 40)
        async with backend.stream(asked) as arriving:
            assert len(await anext(arriving.parts)) <= 2 * BUFFER_BYTES
        await peer.closed.wait()


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"", Reason.BACKEND_UNREACHABLE),
        (b"HTTP/1.1 200 OK\r\nno field\0\r\n\r\n", Reason.BACKEND_PROTOCOL),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf", Reason.BACKEND_PROTOCOL),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 2000, Reason.RESPONSE_TOO_LARGE),
    ],
)
async def test_what_breaks_such_a_stream(backend: HttpBackend, said: bytes, reason: Reason) -> None:
    """The same limits apply as to other streams."""
    async with raw_peer(said) as peer:
        asked = Outbound("GET", peer.url(), (("last-event-id", "\xc3\xa9"),), response_limit=1000)
        with pytest.raises(Refusal) as refused:
            async with backend.stream(asked) as arriving:
                _ = [part async for part in arriving.parts]
        assert refused.value.reason == reason
