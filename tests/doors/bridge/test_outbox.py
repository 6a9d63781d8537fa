"""Messages for a host page are written in order, whichever of their writers are cancelled meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.doors.bridge.host_page import Outbox

LARGE = "x" * 8 * 1024 * 1024
"""More than a connection buffers while its peer reads nothing."""


@asynccontextmanager
async def page() -> AsyncIterator[tuple[Outbox, aiohttp.ClientWebSocketResponse]]:
    """Yield an outbox and the page that it writes to."""
    boxes: asyncio.Queue[Outbox] = asyncio.Queue()

    async def handle(request: web.Request) -> web.StreamResponse:
        wire = web.WebSocketResponse()
        await wire.prepare(request)
        boxes.put_nowait(Outbox(wire, request))
        async for _ in wire:
            pass
        return wire

    app = web.Application()
    app.router.add_get("/", handle)
    async with (
        TestServer(app) as server,
        aiohttp.ClientSession() as http,
        http.ws_connect(server.make_url("/"), max_msg_size=2 * len(LARGE)) as socket,
    ):
        yield await boxes.get(), socket


@pytest.mark.parametrize("others", [0, 2])
async def test_what_was_said_is_written_though_its_writer_was_given_up(others: int) -> None:
    """The writer is cancelled between its two texts, with or without others queued behind it."""
    async with page() as (box, socket):
        writing = asyncio.create_task(box.put([LARGE, "second"]))
        behind = [asyncio.create_task(box.put([f"behind {number}"])) for number in range(others)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not writing.done()
        for task in (writing, *behind):
            task.cancel()
        await asyncio.wait((writing, *behind))
        async with asyncio.timeout(60):
            told = [await socket.receive_str() for _ in range(2 + others)]
    assert told == [LARGE, "second", *(f"behind {number}" for number in range(others))]
