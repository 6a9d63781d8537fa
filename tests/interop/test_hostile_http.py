"""Upstreams over Streamable HTTP that send garbage, flood, lie, fall silent or die; nobody else notices."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from aiohttp import web
from mcp import Client

from gateway.bulk import AT_ONCE
from tests.interop.probe import Probe, text
from tests.interop.serving import gateway, over_http
from tests.world import Server, bound

MODES = ["legacy", "2026-07-28"]
GOOD = {"content": [{"type": "text", "text": "fine"}], "resultType": "complete"}
HUGE = 50_000_000


def tool(name: str, **more: Any) -> dict[str, Any]:
    """A tool."""
    return {"name": name, "description": "Does it.", "inputSchema": {"type": "object"}, **more}


def event(message: Any) -> bytes:
    """One event of a stream."""
    return b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n"


@dataclass
class Hostile:
    """A server that answers `tools/call` and `tools/list` in the way of its `mode`, and all else as it should.

    `called` is set when a call has arrived; a silent one waits for `go`.
    """

    mode: str
    called: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)
    lists: int = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One message."""
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
        return answer(id, listed(self.mode, params, self.lists))


def listed(mode: str, params: dict[str, Any], number: int) -> dict[str, Any]:
    """The tools in the way of the mode, when they are listed for the `number`th time."""
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
    """A result, as JSON."""
    return web.json_response({"jsonrpc": "2.0", "id": id, "result": result})


Way = Callable[[Hostile, web.Request, Any], Awaitable[web.StreamResponse]]


def body(content: bytes, kind: str = "application/json", status: int = 200) -> Way:
    """Answers with these bytes."""

    async def way(_: Hostile, __: web.Request, ___: Any) -> web.StreamResponse:
        return web.Response(body=content, status=status, content_type=kind)

    return way


def stream(write: Callable[[Hostile, web.StreamResponse, Any], Awaitable[None]]) -> Way:
    """Answers with a stream of events that `write` writes."""

    async def way(hostile: Hostile, request: web.Request, id: Any) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        with suppress(ConnectionError):  # the gateway has heard enough
            await write(hostile, response, id)
        return response

    return way


async def plain(_: Hostile, __: web.Request, id: Any) -> web.StreamResponse:
    """As it should be."""
    return answer(id, GOOD)


async def nothing(_: Hostile, __: web.Request, id: Any) -> web.StreamResponse:
    """A result in which nothing stands."""
    return answer(id, {})


async def silent(hostile: Hostile, _: web.Request, id: Any) -> web.StreamResponse:
    """Nothing, until it is let go."""
    await hostile.go.wait()
    return answer(id, GOOD)


async def cut(hostile: Hostile, response: web.StreamResponse, id: Any) -> None:
    """Dies in the middle of an event."""
    await response.write(event({"jsonrpc": "2.0", "id": id, "result": GOOD})[:40])
    transport = response._req.transport if response._req is not None else None  # there is no public way to die
    assert transport is not None
    transport.abort()


async def dead(hostile: Hostile, request: web.Request, id: Any) -> web.StreamResponse:
    """Dies before it answers."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def unanswered(_: Hostile, response: web.StreamResponse, id: Any) -> None:
    """Ends its stream without an answer."""
    await response.write(event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": 1}}))


async def flood(_: Hostile, response: web.StreamResponse, id: Any) -> None:
    """Says what nobody asked for, without end."""
    line = event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": 1}}) * 1000
    for _number in range(200):
        await response.write(line)


async def asks(_: Hostile, response: web.StreamResponse, id: Any) -> None:
    """Asks whether the gateway is there, without end, and takes every answer."""
    while True:
        await response.write(event({"jsonrpc": "2.0", "id": 1, "method": "ping"}) * 100)


async def fraction(_: Hostile, __: web.Request, id: Any) -> web.StreamResponse:
    """As servers do that know but one kind of numbers."""
    return answer(float(id), GOOD)


async def fraction_event(_: Hostile, response: web.StreamResponse, id: Any) -> None:
    """The same, after what only looks like it."""
    for other in (True, [id], str(id), id + 0.5):
        await response.write(event({"jsonrpc": "2.0", "id": other, "result": {"content": []}}))
    await response.write(event({"jsonrpc": "2.0", "id": float(id), "result": GOOD}))


async def fraction_progress(_: Hostile, response: web.StreamResponse, id: Any) -> None:
    """How far it is, with the token written so, and its answer."""
    params = {"progressToken": float(id), "progress": 1}
    await response.write(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))
    await response.write(event({"jsonrpc": "2.0", "id": id, "result": GOOD}))


async def idle(_: Hostile, response: web.StreamResponse, id: Any) -> None:
    """Says nothing without end, and that in many lines."""
    with suppress(ConnectionError):
        while True:
            await response.write(b"\n:\r" * 2**16)


async def garbage(_: Hostile, response: web.StreamResponse, id: Any) -> None:
    """Says much that is no answer, then the answer."""
    for wrong in (None, [], "text", 7, {"id": id}, {"jsonrpc": "2.0", "id": str(id), "result": {}}, [{"id": id}]):
        if wrong != {"id": id}:
            await response.write(event(wrong))
    await response.write(b": a comment\n\nevent: other\ndata: }{\n\n")
    await response.write(event({"jsonrpc": "2.0", "id": id, "result": GOOD}))
    await response.write(event({"jsonrpc": "2.0", "id": id, "result": {"content": []}}))


async def broken(_: Hostile, response: web.StreamResponse, id: Any) -> None:
    """An event that is no JSON."""
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
    """All of it, with its length."""
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
    "never": silent,
    "garbage": stream(garbage),
    "broken": stream(broken),
    "cut": stream(cut),
    "dead": dead,
    "unanswered": stream(unanswered),
    "flood": stream(flood),
    "asks": stream(asks),
    "fraction": fraction,
    "fraction event": stream(fraction_event),
    "fraction progress": stream(fraction_progress),
    "idle": stream(idle),
    "huge": body(b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"' + b"x" * HUGE + b'"}]}}'),
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
    """The server; its URL."""
    made, http = Hostile(mode), Server(bound())
    app = web.Application()
    app.router.add_route("*", "/mcp", made.handle)
    await http.start(app)
    try:
        yield f"http://localhost:{http.port}/mcp", made
    finally:
        made.go.set()
        await http.stop()


@asynccontextmanager
async def behind(folder: Path, mode: str, more: str = "") -> AsyncIterator[tuple[str, Hostile, Probe]]:
    """A gateway in front of the hostile server and of a good one; the URL of its `/mcp`."""
    probe = Probe("good")
    async with AsyncExitStack() as stack:
        bad_url, made = await stack.enter_async_context(hostile(mode))
        good_url = await stack.enter_async_context(over_http(probe.server))
        lines = f'bad: {{url: "{bad_url}", network: private{more}}}\ngood: {{url: "{good_url}", network: private}}'
        yield await stack.enter_async_context(gateway(folder, lines)), made, probe


async def said(client: Client, tool: str = "ok") -> str:
    """What a call is answered with, or how it fails."""
    try:
        return text(await client.call_tool(tool))
    except Exception as error:  # noqa: BLE001  # either way of saying no is good, if it says why
        return str(error)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("way", "why"),
    [
        ("garbage", "fine"),
        ("cut", "in the middle of its answer"),
        ("dead", "connection to the upstream broke"),
        ("unanswered", "before its answer"),
        ("broken", "the upstream sent"),
        ("flood", "nobody asked for"),
        ("asks", "nobody asked for"),
        ("fraction", "fine"),
        ("fraction event", "fine"),
        ("idle", "lines at once that are of no message"),
        ("huge", "1048576"),
        ("huge event", "1048576"),
        ("html", "text/html"),
        ("not json", "no JSON"),
        ("bulky", "with JSON that is too large: more than 100000 commas"),
        ("another id", "another request"),
        ("batch", "another request"),
        ("nested", "nested"),
        ("error 500", "HTTP status 500"),
        ("redirect", "HTTP status 302"),
        ("empty", "no JSON"),
        ("no id", "mute"),
        ("no content", "The upstream bad answered tools/call with what is no result of it: content: it is missing."),
        ("never", "did not answer within"),
    ],
)
async def test_a_call_ends_with_words(tmp_path: Path, way: str, why: str, mode: str) -> None:
    """Every way of answering badly, in both eras; the next call, and the neighbour, are answered."""
    more = ", message: 1MiB" + (", timeout: 1s" if way == "never" else "")
    async with (
        behind(tmp_path, way, more) as (mcp, _, __),
        Client(f"{mcp}/bad", mode=mode) as client,
        Client(f"{mcp}/good", mode=mode) as other,
    ):
        bad, good = await asyncio.gather(said(client), other.call_tool("plain"))
        assert why in bad
        assert text(good).startswith("plain of good")
        assert {tool.name for tool in (await tools_again(client)).tools} == {"ok"}


@pytest.mark.parametrize("way", ["at once", "bit by bit"])
async def test_long_events_keep_their_place(tmp_path: Path, way: str) -> None:
    """They are read beside all else, and what comes after them waits."""
    heard: list[Any] = []

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        heard.append(params.data)

    async with (
        behind(tmp_path, way) as (mcp, _, __),
        Client(f"{mcp}/bad", mode="legacy", logging_callback=log) as client,
    ):
        await client.list_tools()
        for _number in range(2):
            heard.clear()
            assert await said(client) == "x" * 600_000
            assert heard == LONG


@pytest.mark.parametrize("mode", MODES)
async def test_progress_is_told_however_its_token_is_written(tmp_path: Path, mode: str) -> None:
    """`7.0` is the number 7: it comes to the call that asked for it."""
    heard = asyncio.Queue[float]()

    async def told(progress: float, total: float | None, message: str | None) -> None:
        heard.put_nowait(progress)

    async with (
        behind(tmp_path, "fraction progress") as (mcp, _, __),
        Client(f"{mcp}/bad", mode=mode) as client,
        asyncio.timeout(20),
    ):
        assert text(await client.call_tool("ok", progress_callback=told)) == "fine"
        assert await heard.get() == 1


async def tools_again(client: Client) -> types.ListToolsResult:
    """The tools, once the gateway has reached the upstream again."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await client.list_tools()
            except Exception:  # noqa: BLE001  # it rests for a moment after it was cut off
                await asyncio.sleep(0.1)


@pytest.mark.parametrize(("way", "most"), [("loop", 3), ("endless", 101), ("many", 5000), ("lies", 1)])
async def test_lists_come_to_an_end(tmp_path: Path, way: str, most: int) -> None:
    """On `/mcp`, which reads them whole, they are cut; what is no tool is left out."""
    async with behind(tmp_path, way) as (mcp, made, _), Client(mcp) as client:
        async with asyncio.timeout(30):
            while not (names := [tool.name for tool in (await client.list_tools()).tools if tool.name[:4] == "bad_"]):
                await asyncio.sleep(0.1)
        assert 1 <= len(names) <= most
        assert made.lists <= 110 * 2
        assert text(await client.call_tool("good_plain")).startswith("plain of good")


async def test_a_silent_upstream_holds_nobody_up(tmp_path: Path) -> None:
    """While its calls wait, on the same mount and the same session, everything else is answered: in this order."""
    order: list[str] = []

    async def bad(client: Client, tool: str) -> None:
        order.append(text(await client.call_tool(tool)))

    async with (
        behind(tmp_path, "never") as (mcp, made, _),
        Client(mcp) as client,
        Client(mcp, mode="legacy") as session,
        asyncio.TaskGroup() as tasks,
    ):
        await client.list_tools()
        for one in (client, session):
            for _number in range(20):
                tasks.create_task(bad(one, "bad_ok"))
        await made.called.wait()
        for one in (client, session):
            assert text(await one.call_tool("good_plain")).startswith("plain of good")
            assert {tool.name for tool in (await one.list_tools()).tools} >= {"bad_ok", "good_plain"}
            assert (await one.read_resource("good://doc")).contents
        assert order == []
        made.go.set()
    assert order == ["fine"] * 40


async def test_one_principal_leaves_calls_to_others(tmp_path: Path) -> None:
    """Half of an upstream's calls is the most that one gets; the rest is refused at once, and runs later."""
    async with behind(tmp_path, "never", ", calls: 4") as (mcp, made, _), Client(f"{mcp}/bad") as client:
        waiting = {asyncio.ensure_future(said(client)) for _ in range(5)}
        refused: list[str] = []
        while len(refused) < 3:
            done, waiting = await asyncio.wait(waiting, timeout=20, return_when=asyncio.FIRST_COMPLETED)
            refused += [task.result() for task in done]
        assert all("rate-limited" in one for one in refused)
        made.go.set()
        assert await asyncio.gather(*waiting) == ["fine", "fine"]
        assert await said(client) == "fine"
