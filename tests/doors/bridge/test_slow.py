"""A host page that reads its answers slowly: the model's calls and their answers do not queue behind them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from mcp import Client

from gateway import mux
from gateway.doors.bridge.bridge import close_all as bridge_ends
from gateway.doors.bridge.host_page import Outbox
from gateway.model import Channel
from tests.doors.bridge.test_bridge import Host, connected, console
from tests.views.pages import until
from tests.world import World, running, serving

CALLS = 60
POLICY = """\
version: 1
backends:
  large:
    url: http://127.0.0.1:{port}
    network: [127.0.0.0/8]
limits: {{rate: 100000/second per view}}
routes:
  - {{path: /large, methods: [GET]}}
tools:
  ping: {{}}
"""


@dataclass
class Slow:
    """A host page whose view has the tool `ping`; it reads a frame only when the test calls for it."""

    world: World
    host: Host
    view: str
    given: list[None]
    ui: list[dict[str, Any]] = field(default_factory=list)

    async def webmcp(self) -> dict[str, Any]:
        """Read frames until one is on the webmcp channel; return its message."""
        while True:
            frame = await self.host.hear()
            assert isinstance(frame, mux.Message)
            if frame.channel is Channel.WEBMCP:
                return frame.message
            self.ui.append(frame.message)

    async def say(self, channel: Channel, **message: Any) -> None:
        """Send a message on one of the channels."""
        await self.host.say(mux.Message(self.view, channel, {"jsonrpc": "2.0", **message}))

    async def offer(self) -> None:
        """Answer the requests with which the gateway learns a page's tools."""
        info = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "page", "version": "1"}}
        await self.say(Channel.WEBMCP, id=(await self.webmcp())["id"], result=info)
        assert (await self.webmcp())["method"] == "notifications/initialized"
        ping = {"name": "ping", "inputSchema": {"type": "object"}}
        await self.say(Channel.WEBMCP, id=(await self.webmcp())["id"], result={"tools": [ping]})

    async def ask(self) -> None:
        """Queue many large answers for this page, in the gateway and in transit."""
        for number in range(CALLS):
            params = {"name": "http_request", "arguments": {"url": "/large"}}
            await self.say(Channel.UI, id=f"large-{number}", method="tools/call", params=params)
        await until(lambda: len(self.given) == CALLS)


@pytest.fixture
async def slow(tmp_path: Path) -> AsyncIterator[Slow]:
    """Yield a view whose backend gives large answers."""
    given: list[None] = []

    async def large(_: web.Request) -> web.Response:
        given.append(None)
        return web.Response(text="x" * 200_000)

    backend = web.Application()
    backend.router.add_get("/large", large)
    async with (
        serving(backend) as port,
        running(tmp_path, policy=POLICY.format(port=port)) as world,
        console(world) as client,
        connected(world, client) as host,
    ):
        taking: socket.socket = host.socket.get_extra_info("socket")
        taking.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        slow = Slow(world, host, (await host.open()).view, given)
        await slow.offer()
        yield slow


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """An event that is set when the gateway writes a message with priority."""
    written, put = asyncio.Event(), Outbox.put

    async def putting(self: Outbox, texts: Sequence[str], *, first: bool = False) -> None:
        if first:
            written.set()
        await put(self, texts, first=first)

    monkeypatch.setattr(Outbox, "put", putting)
    return written


async def test_a_models_call_overtakes_the_answers_that_wait(slow: Slow, hurried: asyncio.Event) -> None:
    """It comes before most of the queued answers; only data already in the system's buffers is not overtaken."""
    await slow.ask()
    hurried.clear()
    async with Client(f"{slow.world.url}/mcp", mode="2026-07-28") as client:
        calling = asyncio.create_task(client.call_tool("cart_ping", {}))
        async with asyncio.timeout(60):
            await hurried.wait()
        call = await slow.webmcp()
        assert (call["method"], len(slow.ui) < CALLS // 5) == ("tools/call", True)
        await slow.say(Channel.WEBMCP, id=call["id"], result={"content": []})
        assert not (await calling).is_error


async def test_a_pages_answer_is_heard_while_its_own_answers_wait(slow: Slow) -> None:
    """The gateway reads on although the page takes nothing."""
    async with Client(f"{slow.world.url}/mcp", mode="2026-07-28") as client:
        calling = asyncio.create_task(client.call_tool("cart_ping", {}))
        call = await slow.webmcp()
        await slow.ask()
        await slow.host.say(mux.Focus(slow.view))
        await slow.say(Channel.WEBMCP, id=call["id"], result={"content": []})
        assert not (await calling).is_error
    assert slow.ui == []


async def test_an_answer_whose_body_is_not_there_fails_the_call(slow: Slow) -> None:
    """The model receives the failure at once, not when the call's time is over."""
    async with Client(f"{slow.world.url}/mcp", mode="2026-07-28") as client:
        calling = asyncio.create_task(client.call_tool("cart_ping", {}))
        call = await slow.webmcp()
        await slow.say(Channel.WEBMCP, id=call["id"], result={"$body": "A" * 22})
        async with asyncio.timeout(60):
            answer = await calling
    assert answer.is_error
    assert "unknown-body" in str(answer.content)


async def test_a_page_that_does_not_answer_keeps_no_other_one_open() -> None:
    """At a logout, or when the gateway stops, connections are closed concurrently."""
    hung, closed = asyncio.Event(), asyncio.Event()

    class Page(web.WebSocketResponse):
        def __init__(self, act: Callable[[], Awaitable[object]]) -> None:
            super().__init__()
            self._act = act

        async def close(self, **_: Any) -> bool:
            await self._act()
            return True

    async def fails() -> None:
        raise ConnectionResetError

    async def closes() -> None:
        closed.set()

    ending = asyncio.create_task(bridge_ends([Page(hung.wait), Page(fails), Page(closes)], 1008, b"logged out"))
    async with asyncio.timeout(60):
        await closed.wait()
        assert not ending.done()
        hung.set()
        await ending
