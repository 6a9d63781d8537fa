"""A server over Streamable HTTP that sends garbage, floods, lies, hangs or dies, depending on its mode."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from gateway.jsontext.sizes import AT_ONCE
from tests.world import Server

GOOD = {"content": [{"type": "text", "text": "fine"}], "resultType": "complete"}
HUGE = 50_000_000


def tool(name: str, **more: Any) -> dict[str, Any]:
    """Return a tool."""
    return {"name": name, "description": "Does it.", "inputSchema": {"type": "object"}, **more}


def event(message: Any) -> bytes:
    """Return one event of a stream."""
    return b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n"


@dataclass
class Hostile:
    """A server that answers `tools/call` and `tools/list` in the way of its `mode`, and everything else correctly.

    `called` is set when a call has arrived; a silent one waits for `go`.
    """

    mode: str
    called: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)
    lists: int = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one message."""
        if request.method != "POST":
            return web.Response(status=405)
        message = await request.json()
        id, method = message.get("id"), message.get("method")
        if id is None:
            return web.Response(status=202)
        match method:
            case "initialize":
                said = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "hostile", "version": "1"}}
                return answer(id, {**said, "capabilities": {"tools": {}}})
            case "tools/list":
                return self._listed(id, message.get("params") or {})
            case "tools/call":
                self.called.set()
                return await WAYS[self.mode](self, request, id)
            case _:
                return web.json_response({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}})

    def _listed(self, id: Any, params: dict[str, Any]) -> web.Response:
        self.lists += 1
        return answer(id, list_tools(self.mode, params, self.lists))


def list_tools(mode: str, params: dict[str, Any], number: int) -> dict[str, Any]:
    """Return the tools in the way of the mode, when they are listed for the `number`th time."""
    match mode:
        case "loop":
            return {"tools": [tool("ok"), tool(f"t{params.get('cursor', '')}")], "nextCursor": "again"}
        case "endless":
            return {"tools": [tool("ok"), tool(f"t{number}")], "nextCursor": str(number)}
        case "many":
            return {"tools": [tool(f"tool_{number}") for number in range(100_000)]}
        case "lies":
            wrong = [{"name": 7}, {"name": "x", "inputSchema": "none"}, None, [], tool("deep", annotations=7)]
            wrong += [tool("icons", icons="x"), tool("two\nlines"), tool("turned\u202e"), tool("\x1b[2Jcleared")]
            return {"tools": [*wrong, tool("ok")]}
        case _:
            return {"tools": [tool("ok")]}


def answer(id: Any, result: Any) -> web.Response:
    """Return a result as JSON."""
    return web.json_response({"jsonrpc": "2.0", "id": id, "result": result})


Way = Callable[[Hostile, web.Request, Any], Awaitable[web.StreamResponse]]


def body(content: bytes | Callable[[], bytes], kind: str = "application/json", status: int = 200) -> Way:
    """Return a handler that answers with these bytes."""

    async def way(_: Hostile, __: web.Request, ___: Any) -> web.StreamResponse:
        answer = content if isinstance(content, bytes) else content()
        return web.Response(body=answer, status=status, content_type=kind)

    return way


def huge_message(size: int) -> bytes:
    """Return a result whose text has so many characters."""
    return b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"' + b"x" * size + b'"}]}}'


def stream(write: Callable[[Hostile, web.StreamResponse, Any], Awaitable[None]]) -> Way:
    """Return a handler that answers with a stream of events that `write` writes."""

    async def way(hostile: Hostile, request: web.Request, id: Any) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        with suppress(ConnectionError):  # the gateway has closed the connection
            await write(hostile, response, id)
        return response

    return way


async def plain(_: Hostile, __: web.Request, id: Any) -> web.StreamResponse:
    """A correct answer."""
    return answer(id, GOOD)


async def nothing(_: Hostile, __: web.Request, id: Any) -> web.StreamResponse:
    """An empty result."""
    return answer(id, {})


async def wait_silently(hostile: Hostile, _: web.Request, id: Any) -> web.StreamResponse:
    """No answer until `go` is set."""
    await hostile.go.wait()
    return answer(id, GOOD)


async def send_half_event(hostile: Hostile, response: web.StreamResponse, id: Any) -> None:
    """Die in the middle of an event."""
    await response.write(event({"jsonrpc": "2.0", "id": id, "result": GOOD})[:40])
    transport = response._req.transport if response._req is not None else None  # there is no public way to die
    assert transport is not None
    transport.abort()


async def dead(hostile: Hostile, request: web.Request, id: Any) -> web.StreamResponse:
    """Die before answering."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def end_unanswered(_: Hostile, response: web.StreamResponse, id: Any) -> None:
    """End the stream without an answer."""
    await response.write(event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": 1}}))


async def flood(_: Hostile, response: web.StreamResponse, id: Any) -> None:
    """Endless unsolicited messages."""
    line = event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": 1}}) * 1000
    for _number in range(200):
        await response.write(line)


async def asks(_: Hostile, response: web.StreamResponse, id: Any) -> None:
    """Endless pings; every answer is accepted."""
    while True:
        await response.write(event({"jsonrpc": "2.0", "id": 1, "method": "ping"}) * 100)


async def fraction(_: Hostile, __: web.Request, id: Any) -> web.StreamResponse:
    """The id as a float, as from servers with a single number type."""
    return answer(float(id), GOOD)


async def fraction_event(_: Hostile, response: web.StreamResponse, id: Any) -> None:
    """The same, after answers with similar ids."""
    for other in (True, [id], str(id), id + 0.5):
        await response.write(event({"jsonrpc": "2.0", "id": other, "result": {"content": []}}))
    await response.write(event({"jsonrpc": "2.0", "id": float(id), "result": GOOD}))


async def fraction_progress(_: Hostile, response: web.StreamResponse, id: Any) -> None:
    """Progress with the token as a float, and the answer."""
    params = {"progressToken": float(id), "progress": 1}
    await response.write(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))
    await response.write(event({"jsonrpc": "2.0", "id": id, "result": GOOD}))


async def idle(_: Hostile, response: web.StreamResponse, id: Any) -> None:
    """Endless comments of many lines."""
    with suppress(ConnectionError):
        while True:
            await response.write(b"\n:\r" * 2**16)


async def garbage(_: Hostile, response: web.StreamResponse, id: Any) -> None:
    """Many messages that are no answer, then the answer."""
    for wrong in (None, [], "text", 7, {"id": id}, {"jsonrpc": "2.0", "id": str(id), "result": {}}, [{"id": id}]):
        if wrong != {"id": id}:
            await response.write(event(wrong))
    await response.write(b": a comment\n\nevent: other\ndata: }{\n\n")
    await response.write(event({"jsonrpc": "2.0", "id": id, "result": GOOD}))
    await response.write(event({"jsonrpc": "2.0", "id": id, "result": {"content": []}}))


async def broken(_: Hostile, response: web.StreamResponse, id: Any) -> None:
    """An event that is not JSON."""
    await response.write(b"data: }{\n\n")


async def long_event(_: Hostile, response: web.StreamResponse, id: Any) -> None:
    """One event of 50 MB."""
    await response.write(b"data: ")
    for _number in range(50):
        await response.write(b"x" * (HUGE // 50))


LONG = ["a" * 600_000, "b", "c" * 300_000, "d", "e" * 400_000, "f"]


def long_ones(id: Any) -> bytes:
    """Notifications, short and long by turns, then a long answer, and one more."""
    told = [{"level": "info", "data": text} for text in LONG]
    before = b"".join(event({"jsonrpc": "2.0", "method": "notifications/message", "params": one}) for one in told)
    for answered in ("x" * 600_000, "too late"):
        result = {**GOOD, "content": [{"type": "text", "text": answered}]}
        before += event({"jsonrpc": "2.0", "id": id, "result": result})
    return before


async def at_once(_: Hostile, __: web.Request, id: Any) -> web.StreamResponse:
    """All in one body, with its length."""
    return web.Response(body=long_ones(id), headers={"content-type": "text/event-stream"})


async def bit_by_bit(hostile: Hostile, response: web.StreamResponse, id: Any) -> None:
    """The same in pieces, on a stream that stays open."""
    whole = long_ones(id)
    for start in range(0, len(whole), 200_000):
        await response.write(whole[start : start + 200_000])
    await hostile.go.wait()


WAYS: dict[str, Way] = {
    "at once": at_once,
    "bit by bit": stream(bit_by_bit),
    "loop": plain,
    "endless": plain,
    "many": plain,
    "lies": plain,
    "never": wait_silently,
    "garbage": stream(garbage),
    "broken": stream(broken),
    "cut": stream(send_half_event),
    "dead": dead,
    "unanswered": stream(end_unanswered),
    "flood": stream(flood),
    "asks": stream(asks),
    "fraction": fraction,
    "fraction event": stream(fraction_event),
    "fraction progress": stream(fraction_progress),
    "idle": stream(idle),
    "huge": body(lambda: huge_message(HUGE)),
    "huge event": stream(long_event),
    "html": body(b"<!doctype html><title>Login</title>", "text/html"),
    "not json": body(b"}{"),
    "bulky": body(b'{"jsonrpc":"2.0","id":1,"result":{"content":[' + b"{}," * AT_ONCE + b"{}]}}"),
    "another id": body(json.dumps({"jsonrpc": "2.0", "id": 999, "result": GOOD}).encode()),
    "batch": body(json.dumps([{"jsonrpc": "2.0", "id": 1, "result": GOOD}]).encode()),
    "nested": body(b'{"jsonrpc":"2.0","id":1,"result":' + b'{"a":' * 5000 + b"1" + b"}" * 5001),
    "error 500": body(b"sorry", "text/plain", 500),
    "redirect": body(b"", "text/plain", 302),
    "empty": body(b""),
    "no content": nothing,
    "no id": body(json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "mute"}}).encode()),
}


@asynccontextmanager
async def hostile(mode: str) -> AsyncIterator[tuple[str, Hostile]]:
    """Run the server; yield its URL."""
    made, http = Hostile(mode), Server()
    app = web.Application()
    app.router.add_route("*", "/mcp", made.handle)
    await http.start(app)
    try:
        yield f"http://localhost:{http.port}/mcp", made
    finally:
        made.go.set()
        await http.stop()
