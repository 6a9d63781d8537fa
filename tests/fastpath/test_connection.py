"""The fast path in front of aiohttp: taken for what is plainly a call of `http_request`, and for nothing else."""

import asyncio
import gc
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import cast
from urllib.parse import urlsplit

import pytest

from gateway.doors.client_connection import HEAD_BYTES, is_one_request
from gateway.doors.client_limits import Unread
from gateway.doors.runner import ClientConnections
from gateway.fastpath import connection as fast
from gateway.fastpath.connection import AHEAD, HEADS, HEADS_SIZE, FastConnection, FastRequest, KnownHead
from gateway.fastpath.http1 import read_head
from gateway.fastpath.routes import HOLDING
from gateway.jsontext.writing import SIZE
from gateway.mcp.fast import FastCall, FastPath
from gateway.model import Principal, Response
from tests.attacks.wire import raw_exchange
from tests.mcp.fakes import ANSWERS
from tests.mcp.fast_cases import HEAD, HOST, message
from tests.mcp.mounts import Mount, Served

CALL = message(arguments={"url": "/", "_view": "proof"}).encode()


def request(body: bytes = CALL, *more: str, target: str = "/mcp") -> bytes:
    """Return a call as clients with keep-alive write it."""
    fields = [f"{name}: {value}" for name, value in HEAD.items()]
    return (
        "\r\n".join([f"POST {target} HTTP/1.1", *fields, f"content-length: {len(body)}", *more, "", ""]).encode() + body
    )


OTHER = f"GET /nowhere HTTP/1.1\r\nhost: {HOST}\r\n\r\n".encode()


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Served, asyncio.StreamReader, asyncio.StreamWriter]]:
    """Yield a mount behind the fast path, and a connection to it."""
    async with Mount(app="cart", front=True).serve() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(served.url).port)
        try:
            yield served, reader, writer
        finally:
            writer.close()


async def answer(reader: asyncio.StreamReader) -> bytes:
    """Return the next whole answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return head + await reader.readexactly(int(length.partition(b":")[2]))


@pytest.mark.parametrize("gone", [False, True])
async def test_a_long_answer_is_written_as_it_is_taken(monkeypatch: pytest.MonkeyPatch, *, gone: bool) -> None:
    """Its write buffer stays small, and nothing waits for a client that is gone; the next call is answered."""
    body = b"x" * 24 * 1024 * 1024
    monkeypatch.setitem(ANSWERS, "/answer/long", Response(200, (("content-type", "text/plain"),), body, "/answer/long"))
    buffered: list[int] = []
    ended = asyncio.Event()
    write = FastConnection.write_parts

    async def watched(connection: FastConnection, pieces: Iterable[bytes], person: str, count: int) -> None:
        def counted() -> Iterator[bytes]:
            for piece in pieces:
                buffered.append(connection.transport.get_write_buffer_size())
                yield piece

        try:
            await write(connection, counted(), person, count)
        finally:
            ended.set()

    monkeypatch.setattr(FastConnection, "write_parts", watched)
    call = message(arguments={"url": "/answer/long", "_view": "proof"}).encode()
    async with connected() as (_, reader, writer), asyncio.timeout(60):
        writer.write(request(call))
        head = await reader.readuntil(b"\r\n\r\n")
        if gone:
            await reader.readexactly(SIZE)
            writer.transport.abort()
            await ended.wait()
            assert len(buffered) < 2 * len(body) // SIZE
            return
        end = b"0\r\n\r\n" if b"chunked" in head else b"}"
        taken, last = 0, b""
        while not ended.is_set() or not last.endswith(end):
            last = await reader.read(2**20)
            taken += last.count(b"x")
        assert taken >= 2 * len(body)
        writer.write(request())
        assert b"200" in await reader.readuntil(b"\r\n\r\n")
    assert max(buffered) < 4 * SIZE


async def test_the_fast_path_can_be_switched_off() -> None:
    """Then aiohttp reads every request, also after one that it has answered."""
    async with Mount(app="cart", front=True, server_fast_path=False).serve() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(served.url).port)
        for data, status in ((request(), b"200"), (OTHER, b"404"), (request(), b"200")):
            writer.write(data)
            assert (await answer(reader)).split(b" ")[1] == status
        writer.close()
        assert served.seen == ["/mcp", "/nowhere", "/mcp"]


@pytest.mark.parametrize(
    "line",
    [
        "transfer-encoding: chunked",
        "te: trailers",
        "content-length: 5",
        "host: other",
        "x: a\tb",
        "x: \xe9",
        " folded: 1",
        "x : 1",
        "connection: upgrade",
        "x:",
    ],
)
def test_a_head_that_could_be_read_in_two_ways_is_not_read(line: str) -> None:
    """It is left to aiohttp."""
    plain = request().partition(b"\r\n\r\n")[0]
    assert read_head(plain + b"\r\n\r\n") is not None
    assert read_head(plain + b"\r\n" + line.encode("latin-1") + b"\r\n\r\n") is None


@pytest.mark.parametrize(
    "target", ["/mcp/%61", "http://gateway.test/mcp", "//mcp", "/mcp/../mcp", "/mcp/./a", "/a//b", "*", "/a#b", "mcp"]
)
def test_only_plain_targets_are_read(target: str) -> None:
    """A target that must be decoded or normalised first is left to aiohttp."""
    assert read_head(request(target=target).partition(b"\r\n\r\n")[0] + b"\r\n\r\n") is None


def test_a_request_is_whole_only_to_its_last_byte() -> None:
    """If more bytes may follow, or did, the connection stays where it is."""
    assert is_one_request(request())
    assert is_one_request(OTHER)
    assert not is_one_request(request() + b"P")
    assert not is_one_request(request()[:-1])
    assert not is_one_request(OTHER[:-2])
    assert not is_one_request(request(CALL, "transfer-encoding: chunked"))


@pytest.mark.parametrize(
    ("more", "body", "one"),
    [
        ("", b"", True),
        ("connection: keep-alive\r\n", b"", True),
        ("content-length: 2\r\n", b"ab", True),
        ("x-a: \u00e9\r\n", b"", True),
        ("content-length: 2\r\n", b"", False),
        ("content-length:  2\r\n", b"", False),
        ("content-length: 2\r\ncontent-length: 2\r\n", b"ab", False),
        ("content-length: 2\r\n", b"abGET", False),
        ("transfer-encoding: chunked\r\n", b"", False),
        ("upgrade: websocket\r\n", b"", False),
        ("x-a: b\r\n c: d\r\n", b"", False),
        ("x-a: b\n", b"", False),
    ],
)
def test_where_the_next_request_begins_is_known_of_plain_ones(more: str, body: bytes, *, one: bool) -> None:
    """Only then a head is rewritten on its way to aiohttp, never within a body."""
    assert is_one_request(f"GET / HTTP/1.1\r\nhost: {HOST}\r\n{more}\r\n".encode() + body) is one


async def test_a_connection_goes_to_aiohttp_and_comes_back() -> None:
    """Every request is answered in order, whichever reads it."""
    async with connected() as (served, reader, writer):
        for data, status in ((request(), b"200"), (OTHER, b"404"), (request(), b"200"), (OTHER, b"404")):
            writer.write(data)
            assert (await answer(reader)).split(b" ")[1] == status
        assert served.seen == ["/nowhere", "/nowhere"]


async def test_a_connection_that_aiohttp_has_not_answered_stays_with_it() -> None:
    """Pipelined requests are answered in order; afterwards the connection comes back."""
    async with connected() as (served, reader, writer):
        for data in (OTHER, OTHER, request()):
            writer.write(data)
        assert [(await answer(reader)).split(b" ")[1] for _ in range(3)] == [b"404", b"404", b"200"]
        writer.write(request())
        assert b" 200 " in await answer(reader)
        assert served.seen[:2] == ["/nowhere", "/nowhere"]


async def test_requests_ahead_of_their_turn_are_answered_in_order() -> None:
    """Also if they arrive in pieces, and in one piece with a request for aiohttp."""
    async with connected() as (_, reader, writer):
        data = request() + request() + OTHER + request()
        for at in range(0, len(data), 100):
            writer.write(data[at : at + 100])
            await writer.drain()
        assert [(await answer(reader)).split(b" ")[1] for _ in range(4)] == [b"200", b"200", b"404", b"200"]


async def test_a_slow_body_is_read_where_that_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes to aiohttp, which has timeouts; a body that follows its head in time does not."""
    monkeypatch.setattr(fast, "WHOLE_WITHIN", 60.0)
    async with connected() as (served, reader, writer), asyncio.timeout(60):
        head, _, body = request().partition(b"\r\n\r\n")
        writer.write(head + b"\r\n\r\n")
        await wait_read(served)
        writer.write(body)
        assert b" 200 " in await answer(reader)
        assert served.seen == []
        monkeypatch.setattr(fast, "WHOLE_WITHIN", 0.05)
        writer.write(head + b"\r\n\r\n" + body[:9])
        while not served.seen:
            await asyncio.sleep(0.01)
        writer.write(body[9:])
        assert b" 200 " in await answer(reader)
        assert served.seen == ["/mcp"]


async def test_a_body_that_comes_after_its_answer_is_no_head() -> None:
    """However long it is: the answer came before the body was read."""
    async with connected() as (_, reader, writer):
        size = 3 * HEAD_BYTES
        writer.write(f"POST /nowhere HTTP/1.1\r\nhost: {HOST}\r\ncontent-length: {size}\r\n\r\n".encode())
        assert b" 404 " in await answer(reader)
        for _ in range(3):
            writer.write(b"y" * HEAD_BYTES)
            await writer.drain()
        writer.write(OTHER)
        async with asyncio.timeout(60):
            assert b" 404 " in await answer(reader)


async def wait_read(served: Served) -> None:
    """Wait until earlier bytes are read: a connection made later was answered."""
    port = urlsplit(served.url).port or 0
    await raw_exchange(port, b"POST /mcp HTTP/1.1\r\n\r\n", 2.0)


async def test_a_client_that_goes_away_ends_its_call() -> None:
    """As behind aiohttp."""
    async with connected() as (served, _, writer):
        writer.write(request(message(arguments={"url": "/held", "_view": "proof"}).encode()))
        await served.exchange.held.wait()
        writer.close()
        await served.exchange.cancelled.wait()


async def test_connections_take_turns_and_leave_nothing_behind() -> None:
    """Each has one task for all of its calls, with or without other connections, and none once it is closed."""
    async with Mount(app="cart", front=True).serve() as served, asyncio.timeout(60):
        before = asyncio.all_tasks()
        port = urlsplit(served.url).port
        connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        for beside in (1, 4, 2, 1):
            for _ in range(3):
                for _, writer in connections[:beside]:
                    writer.write(request())
                for reader, _ in connections[:beside]:
                    assert (await answer(reader)).startswith(b"HTTP/1.1 200")
        assert len(asyncio.all_tasks() - before) == len(connections)
        for _, writer in connections:
            writer.close()
        while asyncio.all_tasks() - before:
            await asyncio.sleep(0.01)


async def test_what_has_no_host_is_refused() -> None:
    """Requests off the fast path are answered by aiohttp."""
    async with connected() as (served, _, __):
        port = urlsplit(served.url).port or 0
        assert (await raw_exchange(port, b"POST /mcp HTTP/1.1\r\n\r\n", 2.0)).status == 400


async def test_a_plain_call_needs_no_aiohttp() -> None:
    """On the fast path the application behind it sees nothing of the call."""
    async with connected() as (served, reader, writer):
        writer.write(request())
        assert b" 200 " in await answer(reader)
        assert served.seen == []
        writer.write(OTHER)
        assert b" 404 " in await answer(reader)
        assert served.seen == ["/nowhere"]


async def test_what_was_taken_before_the_end_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a drain; also the first request of a connection, which has not started yet."""
    drains: list[asyncio.Task[None]] = []
    start = FastConnection._start

    def started(connection: FastConnection, request: FastRequest) -> None:
        drains.append(asyncio.ensure_future(cast(ClientConnections, connection._server).drain(5.0)))
        start(connection, request)

    monkeypatch.setattr(FastConnection, "_start", started)
    async with connected() as (_, reader, writer), asyncio.timeout(60):
        writer.write(request())
        assert b" 200 " in await answer(reader)
        assert await reader.read() == b""
        await asyncio.gather(*drains)


async def test_a_connection_that_cannot_be_handed_over_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """No reader is left for it."""

    async def nobody(_: FastConnection, __: object) -> None:
        return None

    def failing(_: FastConnection, __: bytes) -> None:
        raise OSError

    async with connected() as (_, reader, writer), asyncio.timeout(60):
        monkeypatch.setattr(FastConnection, "_identify", nobody)
        monkeypatch.setattr(FastConnection, "_hand_over", failing)
        writer.write(request())
        with suppress(ConnectionError):
            assert await reader.read() == b""


@pytest.mark.bound("bytes of responses that clients have not read")
@pytest.mark.parametrize("fast", [True, False])
async def test_who_does_not_read_answers_keeps_so_many(monkeypatch: pytest.MonkeyPatch, *, fast: bool) -> None:
    """The connection that waits longest is closed, on the fast path or not; others continue."""
    body = b"x" * 4 * 1024 * 1024
    monkeypatch.setitem(ANSWERS, "/answer/long", Response(200, (("content-type", "text/plain"),), body, "/answer/long"))
    call = message(arguments={"url": "/answer/long", "_view": "proof"}).encode()
    more = () if fast else ("x-odd: \xe9",)
    unread = Unread(20 * 2**20)
    async with Mount(app="cart", front=True, unread=unread).serve() as served, asyncio.timeout(60):
        wires = []
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(served.url).port, limit=2**16)
            writer.write(request(call, *more))
            await reader.readuntil(b"\r\n\r\n")
            wires.append((reader, writer))
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await wires[0][0].readexactly(2 * len(body))
        assert len(await wires[1][0].readexactly(2 * len(body))) == 2 * len(body)
        for _, writer in wires:
            writer.close()
            with suppress(ConnectionResetError):
                await writer.wait_closed()
    assert unread.total_bytes == 0


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[FastConnection]:
    """The connections that are accepted."""
    found: list[FastConnection] = []
    made = FastConnection.connection_made

    def seen(connection: FastConnection, transport: asyncio.BaseTransport) -> None:
        found.append(connection)
        made(connection, transport)

    monkeypatch.setattr(FastConnection, "connection_made", seen)
    return found


@pytest.mark.bound("cached request heads of a connection")
async def test_a_connection_remembers_few_heads(connections: list[FastConnection]) -> None:
    """However many clients send on it, and however long their heads are."""
    async with connected() as (_, reader, writer), asyncio.timeout(60):
        for number in range(3 * HEADS):
            writer.write(request(CALL, f"x-number: {number}" + "x" * (4000 if number % 2 else 10)))
            assert b" 200 " in await answer(reader)
            assert 0 < len(connections[0]._heads) <= HEADS
            assert sum(map(len, connections[0]._heads)) <= HEADS_SIZE


@pytest.mark.bound("cached request heads of a connection")
async def test_idle_connections_remember_no_heads(connections: list[FastConnection]) -> None:
    """Only the connections used last do; the others parse theirs again."""
    async with connected() as (served, reader, writer), AsyncExitStack() as stack, asyncio.timeout(60):
        writer.write(request(CALL))
        assert b" 200 " in await answer(reader)
        assert len(connections[0]._heads) == 1
        for _ in range(HOLDING):
            other_reader, other = await asyncio.open_connection("127.0.0.1", urlsplit(served.url).port)
            stack.callback(other.close)
            other.write(request(CALL))
            assert b" 200 " in await answer(other_reader)
        assert [len(connection._heads) for connection in connections] == [0] + [1] * HOLDING
        writer.write(request(CALL))
        assert b" 200 " in await answer(reader)
        assert [len(connection._heads) for connection in connections[:2]] == [1, 0]


async def test_a_call_that_waits_holds_no_head(
    monkeypatch: pytest.MonkeyPatch, connections: list[FastConnection]
) -> None:
    """Thousands of polls wait at once: the head, its parsed form and the received bytes are freed meanwhile."""
    waiting, go, message_of = asyncio.Event(), asyncio.Event(), FastPath.message

    async def waits(path: FastPath, call: FastCall, principal: Principal) -> tuple[str | list[bytes], int]:
        waiting.set()
        await go.wait()
        return await message_of(path, call, principal)

    def heads() -> int:
        gc.collect()
        return sum(isinstance(one, KnownHead) for one in gc.get_objects())

    monkeypatch.setattr(FastPath, "message", waits)
    before = heads()
    async with connected() as (_, reader, writer), asyncio.timeout(60):
        for _ in range(2):
            writer.write(request())
            await waiting.wait()
            assert heads() == before + 1
            connections[0].forget_heads()
            assert heads() == before
            waiting.clear()
            go.set()
            assert b" 200 " in await answer(reader)
            go.clear()


@pytest.mark.bound("pipelined bytes of a connection")
async def test_what_comes_ahead_of_its_turn_is_read_later(
    monkeypatch: pytest.MonkeyPatch, connections: list[FastConnection]
) -> None:
    """A client may send any amount: while it waits for an answer little of it is read, and afterwards all."""
    go, message_of = asyncio.Event(), FastPath.message

    async def waits(path: FastPath, call: FastCall, principal: Principal) -> tuple[str | list[bytes], int]:
        await go.wait()
        return await message_of(path, call, principal)

    monkeypatch.setattr(FastPath, "message", waits)
    count = 3 * AHEAD // len(request())
    async with connected() as (_, reader, writer), asyncio.timeout(60):
        writer.write(request())
        while not connections or not connections[0].busy:
            await asyncio.sleep(0.01)
        writer.write(request() * count)
        while len(connections[0]._ahead) <= AHEAD:
            await asyncio.sleep(0.01)
        assert len(connections[0]._ahead) <= AHEAD + 256 * 1024
        go.set()
        for _ in range(1 + count):
            assert b" 200 " in await answer(reader)
