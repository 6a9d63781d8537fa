"""Upstreams over WebSocket and the older SSE that send garbage, flood, lie, hang or die; others are not affected."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import pytest
from aiohttp import web
from mcp import Client

from tests.interop.hostile_http import GOOD, HUGE, list_tools
from tests.interop.probe import Probe, text
from tests.interop.serving import gateway, over_http
from tests.interop.test_hostile_http import MODES, call_outcome, tools_again
from tests.world import Server

KINDS = ["websocket", "sse"]


class Out(Protocol):
    """The connection to the gateway."""

    async def say(self, text: str) -> None:
        """Send one frame, or one event, with this text."""
        ...

    async def die(self) -> None:
        """Cut the connection in the middle of one."""
        ...

    async def close(self) -> None:
        """Close the connection properly."""
        ...


@dataclass
class Socket:
    """A WebSocket."""

    socket: web.WebSocketResponse
    request: web.Request

    async def say(self, text: str) -> None:
        """Send one frame."""
        await self.socket.send_str(text)

    async def die(self) -> None:
        """Cut it after half a frame."""
        assert self.request.transport is not None
        self.request.transport.write(b'\x81\x7e\x10\x00{"jsonrpc": "2.0"')
        self.request.transport.abort()

    async def close(self) -> None:
        """Send a close frame."""
        await self.socket.close()


@dataclass
class Events:
    """The older event stream."""

    response: web.StreamResponse
    request: web.Request
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def say(self, text: str) -> None:
        """Send one event."""
        await self.response.write(b"event: message\ndata: " + text.encode() + b"\n\n")

    async def die(self) -> None:
        """Cut it after half an event."""
        assert self.request.transport is not None
        await self.response.write(b'event: message\ndata: {"jsonrpc": "2.0"')
        self.request.transport.abort()

    async def close(self) -> None:
        """End the stream."""
        self.ended.set()

    async def idle(self) -> None:
        """Send endless lines that belong to no event."""
        with suppress(ConnectionError):
            while True:
                await self.response.write(b"\r" * 2**18)


Way = Callable[[Out, Any], Awaitable[None]]


def message(id: Any, **more: Any) -> str:
    """Return a JSON-RPC message."""
    return json.dumps({"jsonrpc": "2.0", **({} if id is None else {"id": id}), **more})


async def plain(out: Out, id: Any) -> None:
    """A correct answer."""
    await out.say(message(id, result=GOOD))


async def never(_: Out, __: Any) -> None:
    """No answer."""


async def garbage(out: Out, id: Any) -> None:
    """Many messages that are no answer, then the answer, twice."""
    for wrong in ("}{", "[1, 2]", '"text"', "null", '{"id": [1]}', '[{"jsonrpc": "2.0"}]', "NaN", "[" * 100_000):
        await out.say(wrong)
    for other in (str(id), 1.5, True, [id], {"a": 1}, 10**30):
        await out.say(message(other, result={"content": []}))
    await out.say(message(None, method="notifications/message", params={"data": "\udc80"}))
    for number in range(1000):
        await out.say(message(number, method="roots/list"))
    await plain(out, id)
    await out.say(message(id, result={"content": []}))


async def send_nested(out: Out, id: Any) -> None:
    """An answer nested too deeply."""
    await out.say('{"jsonrpc":"2.0","id":' + str(id) + ',"result":' + '{"a":' * 100_000 + "1" + "}" * 100_001)


async def flood(out: Out, id: Any) -> None:
    """Endless unsolicited messages."""
    for number in range(50_000):
        await out.say(message(None, method="notifications/message", params={"data": number}))


async def asks(out: Out, id: Any) -> None:
    """Endless pings."""
    with suppress(ConnectionError):
        while True:
            await out.say(message(id, method="ping"))


async def heavy(out: Out, id: Any) -> None:
    """The same in megabytes."""
    for _ in range(100):
        await out.say(message(None, method="notifications/message", params={"data": "x" * 10**6}))


async def huge(out: Out, id: Any) -> None:
    """An answer of 50 MB."""
    await out.say(message(id, result={"content": [{"type": "text", "text": "x" * HUGE}]}))


async def noresult(out: Out, id: Any) -> None:
    """An invalid answer."""
    await out.say(message(id))


async def die(out: Out, _: Any) -> None:
    """Die in the middle."""
    await out.die()


async def close(out: Out, _: Any) -> None:
    """Close the connection."""
    await out.close()


async def idle(out: Out, _: Any) -> None:
    """Endless comments of many lines."""
    assert isinstance(out, Events)
    await out.idle()


async def binary(out: Out, _: Any) -> None:
    """A binary frame."""
    assert isinstance(out, Socket)
    await out.socket.send_bytes(b"\x00\xff")


async def pings(out: Out, _: Any) -> None:
    """Endless WebSocket pings, without reading an answer."""
    assert isinstance(out, Socket)
    transport = out.request.transport
    assert transport is not None
    while not transport.is_closing():
        if transport.get_write_buffer_size() < 2**20:
            transport.write(b"\x89\x00\x8a\x00" * 5_000)
        await asyncio.sleep(0)


async def leaves(out: Out, _: Any) -> None:
    """WebSocket pings, and closed before they are answered."""
    assert isinstance(out, Socket)
    assert out.request.transport is not None
    out.request.transport.write(b"\x89\x00" * 5_000)
    await asyncio.sleep(0.05)
    out.request.transport.abort()


async def rubbish(out: Out, _: Any) -> None:
    """An invalid frame."""
    assert isinstance(out, Socket)
    assert out.request.transport is not None
    out.request.transport.write(b"\xff\xff\xff\xff")


WAYS: dict[str, Way] = {
    "garbage": garbage,
    "nested": send_nested,
    "flood": flood,
    "asks": asks,
    "heavy": heavy,
    "huge": huge,
    "noresult": noresult,
    "never": never,
    "die": die,
    "close": close,
    "idle": idle,
    "binary": binary,
    "pings": pings,
    "leaves": leaves,
    "rubbish": rubbish,
}


class Hostile:
    """A server that answers calls and `tools/list` in the way of its `mode`, and everything else correctly."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.lists = 0
        self.go = asyncio.Event()
        self.out: Out | None = None

    async def websocket(self, request: web.Request) -> web.StreamResponse:
        """Serve one message per frame."""
        if self.mode == "no socket":
            return web.Response(text="<title>Login</title>", content_type="text/html")
        socket = web.WebSocketResponse(protocols=("mcp",))
        await socket.prepare(request)
        with suppress(ConnectionError):  # the gateway has closed the connection
            async for frame in socket:
                await self.take(json.loads(frame.data), Socket(socket, request))
        return socket

    async def sse(self, request: web.Request) -> web.StreamResponse:
        """Serve the stream of answers."""
        if self.mode == "no stream":
            return web.Response(text="<title>Login</title>", content_type="text/html")
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        self.out = out = Events(response, request)
        endpoint = "http://other.example/post" if self.mode == "elsewhere" else "/post"
        await response.write(f"event: endpoint\ndata: {endpoint}\n\nevent: other\ndata: }}{{\n\n".encode())
        if self.mode == "two endpoints":
            await response.write(b"event: endpoint\ndata: http://other.example/post\n\n")
        await out.ended.wait()
        return response

    async def post(self, request: web.Request) -> web.StreamResponse:
        """Accept one message."""
        said = await request.json()
        if said.get("method") == "tools/call":
            match self.mode:
                case "error 500":
                    return web.Response(status=500)
                case "redirect":
                    return web.Response(status=307, headers={"location": "http://other.example/post"})
                case "dead post":
                    assert request.transport is not None
                    request.transport.abort()
                    return web.Response()
                case "silent post":
                    await self.go.wait()
                case _:
                    pass
        assert self.out is not None
        with suppress(ConnectionError):
            await self.take(said, self.out)
        return web.Response(status=202)

    async def take(self, said: dict[str, Any], out: Out) -> None:
        """Handle one message of the gateway."""
        id = said.get("id")
        match said.get("method"):
            case "initialize":
                about = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "hostile", "version": "1"}}
                await out.say(message(id, result={**about, "capabilities": {"tools": {}}}))
            case "tools/list":
                self.lists += 1
                await out.say(message(id, result=list_tools(self.mode, said.get("params") or {}, self.lists)))
            case "tools/call":
                await WAYS.get(self.mode, plain)(out, id)
            case _ if id is not None and "method" in said:
                await out.say(message(id, error={"code": -32601, "message": "no"}))


@asynccontextmanager
async def behind(folder: Path, kind: str, mode: str, more: str = "") -> AsyncIterator[tuple[str, Hostile]]:
    """Yield the `/mcp` of a gateway in front of the hostile server and of a good one."""
    made, http = Hostile(mode), Server()
    app = web.Application()
    app.router.add_get("/websocket", made.websocket)
    app.router.add_get("/sse", made.sse)
    app.router.add_post("/post", made.post)
    scheme = "ws" if kind == "websocket" else "http"
    bad = f"bad: {{{kind}: '{scheme}://localhost:{http.port}/{kind}', network: private{more}}}"
    async with AsyncExitStack() as stack:
        await http.start(app)
        stack.push_async_callback(http.stop)
        stack.callback(made.go.set)
        good = await stack.enter_async_context(over_http(Probe("good").server))
        lines = f'{bad}\ngood: {{url: "{good}", network: private}}'
        yield await stack.enter_async_context(gateway(folder, lines)), made
        if isinstance(made.out, Events):
            made.out.ended.set()


EITHER = [
    ("garbage", "fine"),
    ("flood", "unsolicited messages"),
    ("asks", "unsolicited messages"),
    ("heavy", "unsolicited bytes"),
    ("huge", "1048576"),
    ("noresult", "not a JSON-RPC response"),
    ("nested", "its response is invalid: nested too deep"),
    ("never", "did not answer within"),
]
ENDS = [
    *((kind, *one) for kind in KINDS for one in EITHER),
    ("websocket", "die", "closed the connection"),
    ("websocket", "close", "closed the connection"),
    ("websocket", "binary", "not text"),
    ("websocket", "pings", "unsolicited messages"),
    ("websocket", "leaves", "closed the connection"),
    ("websocket", "rubbish", "an invalid WebSocket frame"),
    ("sse", "die", "in the middle of its answer"),
    ("sse", "close", "closed the connection"),
    ("sse", "idle", "lines at once that are of no message"),
    ("sse", "error 500", "HTTP status 500"),
    ("sse", "redirect", "another origin"),
    ("sse", "dead post", "connection to the upstream broke"),
    ("sse", "silent post", "did not answer within"),
    ("sse", "two endpoints", "fine"),
]


@pytest.mark.parametrize(
    ("kind", "way", "why", "mode"),
    [(*end, mode) for end in ENDS for mode in MODES if mode == "legacy" or "nobody" not in end[2]],
)
async def test_a_call_ends_with_words(tmp_path: Path, kind: str, way: str, why: str, mode: str) -> None:
    """For every kind of bad answer, in both eras; the next list, and the other upstream's call, are answered."""
    more = ", message: 1MiB" + (", timeout: 1s" if why.startswith("did not") else "")
    async with (
        behind(tmp_path, kind, way, more) as (mcp, _),
        Client(f"{mcp}/bad", mode=mode) as client,
        Client(f"{mcp}/good", mode=mode) as other,
    ):
        bad, good = await asyncio.gather(call_outcome(client), other.call_tool("plain"))
        assert why in bad
        assert text(good).startswith("plain of good")
        assert {tool.name for tool in (await tools_again(client)).tools} == {"ok"}


@pytest.mark.parametrize(
    ("kind", "way", "why"),
    [
        ("websocket", "no socket", "refused the WebSocket with HTTP status"),
        ("sse", "no stream", "not with an event stream"),
        ("sse", "elsewhere", "an endpoint of another origin"),
    ],
)
async def test_an_upstream_that_is_none_is_named(tmp_path: Path, kind: str, way: str, why: str) -> None:
    """Its clients are refused with the reason; on `/mcp` the other upstream's tools are listed all the same."""
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about}
    accept = {"accept": "application/json, text/event-stream"}
    async with behind(tmp_path, kind, way) as (mcp, _), Client(mcp) as client, aiohttp.ClientSession() as http:
        assert text(await client.call_tool("good_plain")).startswith("plain of good")
        async with http.post(f"{mcp}/bad", json=hello, headers=accept) as answer:
            assert why in await answer.text()


@pytest.mark.parametrize(
    ("kind", "way", "most"),
    [(kind, *one) for kind in KINDS for one in (("loop", 3), ("endless", 101), ("lies", 1), ("many", 5000))],
)
async def test_lists_come_to_an_end(tmp_path: Path, kind: str, way: str, most: int) -> None:
    """On `/mcp`, which reads them whole, they are cut; invalid tools are left out."""
    async with behind(tmp_path, kind, way) as (mcp, made), Client(mcp) as client:
        async with asyncio.timeout(60):
            while not (names := [tool.name for tool in (await client.list_tools()).tools if tool.name[:4] == "bad_"]):
                await asyncio.sleep(0.1)
        assert 1 <= len(names) <= most
        assert made.lists <= 110 * 2
        assert text(await client.call_tool("bad_ok" if "bad_ok" in names else names[0])) == "fine"
