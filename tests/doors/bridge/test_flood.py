"""Endless frames on one connection of the bridge: other tasks run between every few of them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSMsgType, web

from gateway import mux
from gateway.doors.bridge import bridge_state, host_page
from gateway.doors.bridge.host_page import BATCH
from tests.doors.bridge.test_bridge import PROTOCOL, connected, console
from tests.world import World, running

MANY = 1000


async def test_pings_leave_others_their_turns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each ping is answered before the next frame is read."""
    seen = longest = total = 0
    pong = web.WebSocketResponse.pong

    async def counted(socket: web.WebSocketResponse, message: bytes = b"") -> None:
        nonlocal seen, total
        seen, total = seen + 1, total + 1
        await pong(socket, message)

    async def others() -> None:
        nonlocal seen, longest
        while True:
            longest, seen = max(longest, seen), 0
            await asyncio.sleep(0)

    monkeypatch.setattr(web.WebSocketResponse, "pong", counted)
    async with console(world) as client, connected(world, client) as host:
        beside = asyncio.create_task(others())
        for _ in range(MANY):
            await host.socket.ping()
        await host.open()
        beside.cancel()
    assert total == MANY
    assert longest <= BATCH


async def test_what_comes_before_the_greeting_ends_the_connection(world: World) -> None:
    """Also a ping: before the greeting nothing is answered."""
    async with (
        asyncio.timeout(20),
        console(world) as client,
        client.ws_connect(f"{world.console}/bridge", protocols=[PROTOCOL]) as socket,
    ):
        await socket.ping()
        assert (await socket.receive()).type in (WSMsgType.CLOSE, WSMsgType.CLOSED)
        assert socket.close_code == 1000


@pytest.mark.bound("bridge connections without a ticket")
async def test_who_does_not_greet_is_not_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection ends after a period of silence."""
    monkeypatch.setattr(host_page, "GREETING", 0.1)
    async with (
        asyncio.timeout(20),
        console(world) as client,
        client.ws_connect(f"{world.console}/bridge", protocols=[PROTOCOL]) as socket,
    ):
        assert (await socket.receive()).type in (WSMsgType.CLOSE, WSMsgType.CLOSED)


@pytest.mark.bound("bridge frames")
@pytest.mark.parametrize("more", [1, 1000])
async def test_a_frame_too_large_ends_the_connection(world: World, more: int) -> None:
    """Whether aiohttp's WebSocket or the frame reader detects it."""
    async with asyncio.timeout(20), console(world) as client, connected(world, client) as host:
        await host.socket.send_str("x" * (mux.FRAME_LIMIT + more))
        while (await host.socket.receive()).type not in (WSMsgType.CLOSE, WSMsgType.CLOSED, WSMsgType.ERROR):
            pass


async def test_who_does_not_end_the_connection_is_heard_no_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway does not wait for the closing handshake: until then it would read everything that a flood sends."""
    begin = web.WebSocketResponse.__init__

    def patient(socket: web.WebSocketResponse, **options: Any) -> None:
        begin(socket, **{**options, "timeout": 3600.0})

    monkeypatch.setattr(web.WebSocketResponse, "__init__", patient)  # aiohttp's close would wait for that long
    async with (
        asyncio.timeout(60),
        console(world) as client,
        client.ws_connect(f"{world.console}/bridge", protocols=[PROTOCOL], autoclose=False) as socket,
    ):
        connection = socket._response.connection
        assert connection is not None
        await socket.ping()
        while connection.transport is not None and not connection.transport.is_closing():
            await asyncio.sleep(0.01)


@pytest.mark.bound("bridge connections")
async def test_a_person_has_so_many_host_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One too many is closed with a reason; a page that closes frees its place."""
    monkeypatch.setattr(bridge_state, "EACH", 2)
    async with running(tmp_path) as world, console(world) as client, AsyncExitStack() as pages:
        first = await pages.enter_async_context(connected(world, client))
        await first.open()
        async with connected(world, client) as second:
            await second.open()
            async with connected(world, client) as third:
                refused = await third.hear()
                assert isinstance(refused, mux.ErrorFrame)
                assert refused.code == "too-many"
                assert (await third.socket.receive()).type in (WSMsgType.CLOSE, WSMsgType.CLOSED)
        async with asyncio.timeout(20):
            while True:
                async with connected(world, client) as later:
                    await later.say(mux.Open("r", "cart"))
                    if isinstance(await later.hear(), mux.Opened):
                        break
        await first.open()
