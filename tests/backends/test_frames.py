"""Frames of a WebSocket that are read by turns, by a real client of a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiohttp import WSMsgType, web
from aiohttp.test_utils import TestClient, TestServer

from gateway.backends.frames import read_in_turn
from gateway.backends.in_turn import InTurn

COUNT = 100_000

FRAGMENTS = 1_000_000


class Counted(InTurn):
    """Tells how often somebody went on."""

    times = 0

    def add(self, go_on: Callable[[], None]) -> None:
        """One more."""
        self.times += 1
        super().add(go_on)


@pytest.mark.parametrize(
    ("frames", "said"),
    [
        (b"\x01\x01a" + b"\x00\x01b" * FRAGMENTS + b"\x80\x01c", [f"a{'b' * FRAGMENTS}c"]),
        (b"".join(b"\x81\x06%06d" % number for number in range(COUNT)), [f"{n:06d}" for n in range(COUNT)]),
    ],
    ids=["one message in fragments", "many messages"],
)
@pytest.mark.parametrize("end", ["client", "server"])
async def test_what_came_at_once_is_read_in_many_turns(frames: bytes, said: list[str], end: str) -> None:
    """And all of it in its order, at either end, with the end that comes after it."""
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
    async with TestClient(TestServer(app)) as client, client.ws_connect("/", max_msg_size=0) as other:
        connection = other._response.connection
        assert connection is not None
        assert connection.transport is not None
        if end == "client":
            read_in_turn(connection.protocol, in_turn)
            heard.extend([str(one.data) async for one in other])
        else:
            connection.transport.write(frames)  # without a mask, which aiohttp does not miss
            await other.send_frame(b"\x03\xe8", WSMsgType.CLOSE)
            await asyncio.wait_for(over.wait(), 30)
    assert heard == said
    assert in_turn.times > 5
