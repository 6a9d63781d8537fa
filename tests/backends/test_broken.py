"""Broken, endless or late answers are refused with a reason, within the limits of size and time."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from gateway.backends.http import HttpBackend
from gateway.errors import Reason, Refusal
from gateway.model import Outbound
from tests.backends.peers import Script, fetch_from, raw_peer, refusal_reason


@pytest.mark.parametrize("status", [b"000", b"099", b"101", b"600", b"999", b"20", b"abc", b"-200"])
async def test_status_outside_http(backend: HttpBackend, status: bytes) -> None:
    """A status that no client can receive is a protocol error."""
    answer = b"HTTP/1.1 %s X\r\nContent-Length: 0\r\n\r\n" % status
    assert await refusal_reason(backend, answer) is Reason.BACKEND_PROTOCOL


IN_THE_PHRASE = b"HTTP/1.1 200 OK\x00\r\n\r\n"
"""aiohttp's parser passes control characters in a reason phrase on; the phrase is dropped then."""

INTERIM_ALONE = b"HTTP/1.1 100 Continue\r\n\r\n"
OTHER_REASONS = {("aiohttp", INTERIM_ALONE): Reason.BACKEND_UNREACHABLE}
"""aiohttp's client does not say whether anything arrived before the end of a connection."""


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
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"cut off", mtime=0)[:-4],
        b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-A: 1\r\n" * 1000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2, 3\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2,\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length\x01: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nX: 1\rContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nContent-Length: 2\n\nab",
        b"HTTP/1.1 200 OK\r\nTransfer Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: a\x00b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunke\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0x1\r\n\r\na",
        b"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\na\n0\n\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * 9000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * 2000 + b"\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        IN_THE_PHRASE,
        b"HTTP/1.1  200 OK\r\n\r\n",
        b"HTTP/1.1 200 " + b"x" * 9000 + b"\r\n\r\n",
        INTERIM_ALONE,
    ],
)
async def test_broken_answers(backend: HttpBackend, http_client: str, answer: bytes) -> None:
    """A malformed or incomplete answer is never passed on."""
    if http_client == "aiohttp" and answer == IN_THE_PHRASE:
        assert (await fetch_from(backend, answer)).reason_phrase == ""
    else:
        assert await refusal_reason(backend, answer) is OTHER_REASONS.get(
            (http_client, answer), Reason.BACKEND_PROTOCOL
        )


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    "rest",
    [
        b"garbage",
        b"garbage\r\n",
        b"-1\r\n",
        b"0" * 9000,
        b"ffffffffffffffffffff\r\n",
        b"1\r\nab\r\n0\r\n\r\n",
        b"1\na\n0\n\n",
        b"",
        b"5\r\nab",
    ],
)
async def test_broken_after_a_part(backend: HttpBackend, rest: bytes, streams: bool) -> None:
    """A body that breaks after a part of it fails at once, not at the timeout."""
    read = asyncio.Event()

    async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n")
        await (read.wait() if streams else asyncio.sleep(0.05))  # else both may be read at once
        writer.write(rest)
        writer.close()

    async def ask(request: Outbound) -> object:
        if not streams:
            return await backend.send(request)
        async with backend.stream(request) as arriving:
            first = await anext(arriving.parts)
            read.set()
            return first, [part async for part in arriving.parts]

    async with raw_peer(script) as peer:
        with pytest.raises(Refusal) as caught:
            await ask(Outbound("GET", peer.url(), timeout=5))
    assert caught.value.reason is Reason.BACKEND_PROTOCOL


async def test_bare_carriage_return(backend: HttpBackend) -> None:
    """A bare CR in a header never reaches the caller."""
    assert await refusal_reason(backend, b"HTTP/1.1 200 OK\r\nX-A: a\rX-B: 1\r\n\r\n") is Reason.BACKEND_PROTOCOL


async def test_no_answer_at_all(backend: HttpBackend) -> None:
    """A backend that closes without an answer is unreachable."""
    assert await refusal_reason(backend, b"") is Reason.BACKEND_UNREACHABLE


async def send_half_and_reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send half an answer, then reset the connection."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    await writer.drain()
    await asyncio.sleep(0.05)
    writer.transport.abort()


async def test_reset_in_the_body(backend: HttpBackend) -> None:
    """A connection that is reset in the middle of a body yields no partial answer."""
    assert await refusal_reason(backend, send_half_and_reset) is Reason.BACKEND_PROTOCOL


# bounds


async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send a body without end."""
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        await writer.drain()


async def test_endless_body(backend: HttpBackend) -> None:
    """An endless body is cut at the limit, and the connection closed."""
    async with raw_peer(endless) as peer:
        with pytest.raises(Refusal) as caught:
            await backend.send(Outbound("GET", peer.url(), response_limit=1_000_000))
        await asyncio.wait_for(peer.closed.wait(), 20)
    assert caught.value.reason is Reason.RESPONSE_TOO_LARGE


@pytest.mark.parametrize(("size", "fits"), [(1000, True), (1001, False)])
async def test_limit_is_exact(backend: HttpBackend, size: int, fits: bool) -> None:
    """A body of exactly the limit passes, one byte more does not."""
    async with raw_peer(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size) as peer:
        request = Outbound("GET", peer.url(), response_limit=1000)
        if fits:
            assert len((await backend.send(request)).body) == size
        else:
            with pytest.raises(Refusal):
                await backend.send(request)


async def test_gzip_bomb(backend: HttpBackend) -> None:
    """A bomb is refused by its ratio, though its size would be allowed."""
    bomb = gzip.compress(bytes(200_000_000), 9)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    assert (
        await refusal_reason(backend, head + bomb, Outbound("GET", "", response_limit=10**9))
        is Reason.RESPONSE_TOO_LARGE
    )


async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send a byte at intervals."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.05)


async def interim(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send interim answers forever."""
    while True:
        writer.write(b"HTTP/1.1 102 Processing\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.01)


async def send_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send nothing."""
    await asyncio.sleep(3600)


async def head_then_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send a head without its body."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    await asyncio.sleep(3600)


@pytest.mark.parametrize("script", [drip, interim, send_nothing, head_then_nothing])
async def test_timeout_covers_the_whole_answer(backend: HttpBackend, script: Script) -> None:
    """The timeout ends an answer, however slowly it arrives."""
    assert await refusal_reason(backend, script, Outbound("GET", "", timeout=0.3)) is Reason.BACKEND_TIMEOUT


async def test_backend_that_does_not_read(backend: HttpBackend) -> None:
    """An answer that comes before the request's body was read is passed on."""
    early = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(early)
        await writer.drain()
        await asyncio.sleep(0.5)

    async with raw_peer(script) as peer:
        request = Outbound("POST", peer.url(), body=bytes(20_000_000), timeout=3)
        assert (await backend.send(request)).status == 413
