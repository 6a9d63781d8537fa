"""WebSocket frames are read in turns, by a real client of a real server."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from hashlib import sha1
from typing import cast

import pytest
from aiohttp import WSMsgType, web
from aiohttp.http import WebSocketReader
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st

from gateway.backends import websocket_frames as reading
from gateway.backends.connect import Connections
from gateway.backends.websocket_frames import Handler, MaskedFrames, read_in_turn
from gateway.eventloop import fair_share as turns
from gateway.eventloop.fair_share import RoundRobin
from gateway.policy import Network

COUNT = 100_000

FRAGMENTS = 1_000_000

ANYWHERE = Network(private=True)


class Counted(RoundRobin):
    """Counts how often reading continued."""

    times = 0

    def add(self, go_on: Callable[[], object], worked: float = 0.0) -> None:
        """Count, and schedule."""
        self.times += 1
        super().add(go_on, worked)


def connections(in_turn: RoundRobin) -> Connections:
    """Client connections whose frames are read in turns."""
    connections = Connections()
    connections.in_turn = in_turn
    return connections


class Fed:
    """A parser that remembers what it got."""

    def __init__(self) -> None:
        self.data = b""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Take bytes."""
        self.data += data
        return False, b""

    def feed_eof(self) -> None:
        """Take the end."""


def _frame(size: int, masked: bool) -> bytes:
    """A frame that contains what could be heads."""
    length = bytes([size]) if size < 126 else b"\x7e" + size.to_bytes(2) if size < 2**16 else b"\x7f" + size.to_bytes(8)
    mask = b"\x81\x01\x81\x01" if masked else b""
    return (
        b"\x82"
        + bytes([length[0] | masked << 7])
        + length[1:]
        + mask
        + b"\x81\x01" * (size // 2)
        + b"\x81" * (size % 2)
    )


_SIZES = st.one_of(st.integers(0, 300), st.sampled_from((65_535, 65_536, 70_000)))


@given(st.lists(_SIZES, max_size=6), st.one_of(st.none(), _SIZES), st.lists(st.integers(1, 40), max_size=40))
def test_frames_pass_as_long_as_they_are_masked(masked: list[int], unmasked: int | None, cuts: list[int]) -> None:
    """However they are cut; an unmasked one ends what passes."""
    before = b"".join(_frame(size, True) for size in masked)
    data = before if unmasked is None else before + _frame(unmasked, False)
    fed, start = Fed(), 0
    frames = MaskedFrames(cast(WebSocketReader, fed))
    for cut in [*cuts, len(data)]:
        if not fed.data.endswith(reading._INVALID):
            frames.feed_data(data[start : start + cut])
            start += cut
    assert fed.data == (before if unmasked is None else before + reading._INVALID)


@pytest.mark.parametrize(
    ("frames", "said"),
    [
        (b"\x01\x01a" + b"\x00\x01b" * FRAGMENTS + b"\x80\x01c", [f"a{'b' * FRAGMENTS}c"]),
        (b"".join(b"\x81\x06%06d" % number for number in range(COUNT)), [f"{n:06d}" for n in range(COUNT)]),
    ],
    ids=["one message in fragments", "many messages"],
)
@pytest.mark.parametrize("end", ["client", "server"])
async def test_what_came_at_once_is_read_in_many_turns(
    monkeypatch: pytest.MonkeyPatch, frames: bytes, said: list[str], end: str
) -> None:
    """All messages arrive in order, at client and server, with the close frame; a client may stay for days."""
    monkeypatch.setattr(reading, "LONGEST", 30.0 if end == "client" else 0.01)
    in_turn, heard, over = Counted(), list[str](), asyncio.Event()

    async def socket(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)
        assert request.transport is not None
        if end == "client":
            request.transport.write(frames)
            await socket.close()
        else:
            read_in_turn(request.protocol, in_turn)
            heard.extend([str(one.data) async for one in socket])
        over.set()
        return socket

    app = web.Application()
    app.router.add_get("/", socket)
    async with (
        connections(in_turn) as connected,
        TestServer(app) as server,
        connected.open(ANYWHERE).ws_connect(server.make_url("/"), max_msg_size=0) as other,
    ):
        connection = other._response.connection
        assert connection is not None
        assert connection.transport is not None
        if end == "client":
            heard.extend([str(one.data) async for one in other])
        else:
            connection.transport.write(frames)  # unmasked, which aiohttp does not check
            await other.send_frame(b"\x03\xe8", WSMsgType.CLOSE)
            await asyncio.wait_for(over.wait(), 30)
    assert heard == said
    assert in_turn.times > 5


@asynccontextmanager
async def raw_server(frames: bytes) -> AsyncIterator[str]:
    """A server that sends `frames` in one write with the answer to the handshake."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = (await reader.readuntil(b"\r\n\r\n")).decode()
        key = next(line[19:] for line in asked.split("\r\n") if line.lower().startswith("sec-websocket-key: "))
        accept = b64encode(sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()).decode()
        head = f"HTTP/1.1 101 \r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: {accept}\r\n\r\n"
        with suppress(ConnectionError):
            writer.write(head.encode() + frames)
            await reader.read(1)  # the client closes, or leaves
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


async def test_what_comes_with_the_opening_is_read_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """All frames that a server sends with its handshake are read, though not in one turn."""
    monkeypatch.setattr(turns, "IDLE", -1.0)  # the reader pauses after each time slice
    monkeypatch.setattr(reading, "MOMENT", 0.00005)  # of which a fast machine needs several, too
    in_turn, fragments = Counted(), 80_000
    frames = b"\x01\x01a" + b"\x00\x01b" * fragments + b"\x80\x01c"
    async with (
        connections(in_turn) as connected,
        raw_server(frames) as url,
        connected.open(ANYWHERE).ws_connect(url, max_msg_size=0) as socket,
    ):
        assert in_turn.times == 1  # nothing beyond one time slice was read
        assert await socket.receive_str() == f"a{'b' * fragments}c"
    assert in_turn.times > 5


async def test_a_message_of_too_many_fragments_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Endless fragments of one message would keep the gateway busy without delivering anything."""
    monkeypatch.setattr(reading, "LONGEST", 0.01)
    async with (
        connections(RoundRobin()) as connected,
        raw_server(b"\x01\x01a" + b"\x00\x01b" * FRAGMENTS) as url,
        connected.open(ANYWHERE).ws_connect(url, max_msg_size=0) as socket,
    ):
        connection = socket._response.connection
        assert connection is not None
        handler = connection.protocol
        assert (await socket.receive()).type is WSMsgType.CLOSED
    assert isinstance(handler, Handler)
    assert handler.flooded
