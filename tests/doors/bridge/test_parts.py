"""Answers of the bridge outside and before their frames: large bytes, and the parts of a stream."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from gateway import mux
from gateway.exchange.streams import BESIDE
from gateway.mcp.results import BYTES
from gateway.mcp.view_server import PART
from gateway.model import Channel
from tests.doors.bridge.test_bridge import Host, connected, console
from tests.world import Server, World, running

POLICY = """\
version: 1
backends:
  parts:
    url: http://127.0.0.1:{port}
    network: [127.0.0.0/8]
routes:
  - {{path: /news, methods: [GET], stream: true}}
  - {{path: /bytes, methods: [GET], stream: true}}
  - {{path: /long, methods: [GET], stream: true, response: 64MiB}}
"""
BODY = bytes(range(256)) * 1024
LONG = BODY * 32
"""8 MiB."""


@dataclass
class Backend:
    """A backend that sends an event stream which the test feeds, and bytes."""

    news: asyncio.Queue[str | None] = field(default_factory=asyncio.Queue)
    missing: int = 0

    def app(self) -> web.Application:
        async def stream(request: web.Request) -> web.StreamResponse:
            answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await answer.prepare(request)
            while (text := await self.news.get()) is not None:
                await answer.write(text.encode())
            return answer

        async def whole(_: web.Request) -> web.Response:
            return web.Response(body=BODY, content_type="image/png")

        async def long(request: web.Request) -> web.StreamResponse:
            answer = web.StreamResponse()
            answer.content_length = len(LONG)
            await answer.prepare(request)
            for start in range(0, len(LONG) - self.missing, 65_536):
                await answer.write(LONG[start : start + 65_536])
            if self.missing and request.transport is not None:
                request.transport.abort()
            return answer

        app = web.Application()
        app.router.add_get("/long", long)
        app.router.add_get("/news", stream)
        app.router.add_get("/bytes", whole)
        return app


@dataclass
class Place:
    """A view on the bridge."""

    backend: Backend
    client: aiohttp.ClientSession
    world: World
    host: Host
    view: str
    token: str
    calls: int = 0

    async def ask(self, tool: str, token: int | None = None, **arguments: Any) -> int:
        """Call a tool of the gateway; return the call's id."""
        self.calls += 1
        id = 1000 + self.calls
        meta = {} if token is None else {"_meta": {"progressToken": token}}
        params: dict[str, Any] = {"name": tool, "arguments": arguments, **meta}
        await self.host.say(
            mux.Message(self.view, Channel.UI, {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
        )
        return id

    async def message(self) -> dict[str, Any]:
        """Return the next message on the ui channel."""
        while True:
            frame = await self.host.hear()
            if isinstance(frame, mux.Message) and frame.channel is Channel.UI:
                return frame.message

    async def opened(self) -> str:
        """Open the stream of news; return its id."""
        await self.ask("http_request", url="/news", stream=True, _bytes=True)
        return str((await self.message())["result"]["structuredContent"]["stream"])


@asynccontextmanager
async def _place(folder: Path) -> AsyncIterator[Place]:
    backend, server = Backend(), Server()
    await server.start(backend.app())
    try:
        async with (
            running(folder, policy=POLICY.format(port=server.port)) as world,
            console(world) as client,
            connected(world, client) as host,
        ):
            opened = await host.open()
            yield Place(backend, client, world, host, opened.view, opened.resume)
            backend.news.put_nowait(None)
    finally:
        await server.stop()


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    """Yield a view of an app whose backend streams."""
    async with _place(tmp_path) as place:
        yield place


async def test_parts_come_before_the_call_is_answered(place: Place) -> None:
    """One call returns as many parts as the backend sends; its answer ends the stream."""
    id = await place.opened()
    call = await place.ask("http_stream", 7, id=id, _bytes=True)
    for text in ("one", "two"):
        place.backend.news.put_nowait(text)
        pushed = await place.message()
        assert (pushed["method"], pushed["params"]["progressToken"]) == ("notifications/progress", 7)
        assert pushed["params"]["_meta"][PART]["body"] == text
    place.backend.news.put_nowait(None)
    last = await place.message()
    assert (last["id"], "stream" in last["result"]["structuredContent"]) == (call, False)


@pytest.mark.parametrize(("token", "said"), [(None, {"_bytes": True}), (7, {})])
async def test_who_did_not_ask_for_it_is_told_one_part_as_the_answer(
    place: Place, token: int | None, said: dict[str, bool]
) -> None:
    """The page's own client names a progress token with each call, and does not know about parts."""
    id = await place.opened()
    call = await place.ask("http_stream", token, id=id, **said)
    place.backend.news.put_nowait("one")
    answer = await place.message()
    assert (answer["id"], answer["result"]["structuredContent"]["body"]) == (call, "one")


async def test_a_call_is_answered_after_so_many_parts(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that does not read is not sent an endless stream."""
    monkeypatch.setattr("gateway.mcp.catalog.MOST_PUSHED", 1)
    id = await place.opened()
    call = await place.ask("http_stream", 7, id=id, _bytes=True)
    place.backend.news.put_nowait("one")
    assert "method" in await place.message()
    place.backend.news.put_nowait("two")
    answer = await place.message()
    assert (answer["id"], answer["result"]["structuredContent"]["stream"]) == (call, id)


async def test_large_bytes_come_beside_the_answer(place: Place) -> None:
    """Byte for byte, to the page that they are for, and once."""
    await place.ask("http_request", url="/bytes", stream=True, _bytes=True)
    result = (await place.message())["result"]
    assert result["structuredContent"]["body"] is None
    url = f"{place.world.console}/bridge/bodies/{result['_meta'][BYTES]}"
    async with place.client.get(url) as answer:
        assert await answer.read() == BODY
    async with place.client.get(url) as answer:
        assert answer.status == 404


async def _taken(place: Place, result: dict[str, Any]) -> bytes:
    """Return the bytes beside a result, as they arrive."""
    name = result["_meta"][BYTES]
    async with place.client.get(f"{place.world.console}/bridge/bodies/{name}") as answer:
        assert answer.status == 200
        return await answer.read()


async def test_a_part_grows_while_it_is_sent(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has more bytes than the gateway reads ahead, and so many at most; the parts together are the body."""
    monkeypatch.setattr("gateway.doors.bridge.bridge.OPEN_BYTES", 3 * 1024 * 1024)
    monkeypatch.setattr("gateway.doors.bridge.bridge.OPEN_SECONDS", 60.0)
    monkeypatch.setattr("gateway.exchange.streams.AT_ONCE", 60.0)
    await place.ask("http_request", url="/long", stream=True, _bytes=True)
    result = (await place.message())["result"]
    parts = []
    while "stream" in result["structuredContent"]:
        parts.append(await _taken(place, result))
        await place.ask("http_stream", id=result["structuredContent"]["stream"], _bytes=True)
        result = (await place.message())["result"]
    assert b"".join(parts) == LONG
    assert BESIDE < max(map(len, parts)) <= 3 * 1024 * 1024


async def test_a_body_that_breaks_off_in_a_part_says_so_in_the_next(place: Place) -> None:
    """What arrived is given, and is no whole body."""
    place.backend.missing = len(BODY)
    await place.ask("http_request", url="/long", stream=True, _bytes=True)
    result, size = (await place.message())["result"], 0
    while "stream" in result["structuredContent"]:
        size += len(await _taken(place, result)) if "_meta" in result else 0
        await place.ask("http_stream", id=result["structuredContent"]["stream"], _bytes=True)
        result = (await place.message())["result"]
    assert size <= len(LONG) - len(BODY)
    assert result["structuredContent"]["headers"]["gateway-reason"] == "backend-protocol"


async def test_who_did_not_ask_for_bytes_reads_base64(place: Place) -> None:
    """The contract of `http_request` also holds on the bridge."""
    await place.ask("http_request", url="/bytes")
    name = mux.named_body(await place.message())
    async with place.client.get(f"{place.world.console}/bridge/bodies/{name}") as answer:
        content = (await answer.json())["structuredContent"]
    assert base64.b64decode(content["body"]) == BODY


async def test_a_view_that_waits_for_a_part_is_taken_up_again(place: Place) -> None:
    """Its call ends some turns of the loop after its connection: the server may time out before."""
    await place.ask("http_stream", 7, id=await place.opened(), _bytes=True)
    place.backend.news.put_nowait("one")
    await place.message()  # the call waits for the next part
    await place.host.socket.close()
    async with connected(place.world, place.client) as host:
        await host.say(mux.Resume(place.view, place.token))
        assert isinstance(await host.hear(), mux.Resume)
