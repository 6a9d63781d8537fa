"""Upstreams that lose a session, or change their version: the call that detects it runs in a new session."""

from __future__ import annotations

import asyncio
import json
import warnings
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from aiohttp import web
from mcp import Client, MCPError

from tests.interop.probe import text
from tests.interop.serving import gateway
from tests.world import serving

LOST = {
    "404": (404, {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "Session not found"}}),
    "404 without a word": (404, None),
    "410": (410, None),
    "400 of the TypeScript examples": (
        400,
        {
            "jsonrpc": "2.0",
            "id": None,
            "error": {"code": -32000, "message": "Bad Request: No valid session ID provided"},
        },
    ),
    "400 of a transport that was made anew": (
        400,
        {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "Bad Request: Server not initialized"}},
    ),
}
"""The ways in which servers refuse an unknown session."""


@dataclass
class Sessions:
    """A server of the handshake, with sessions that `forget` ends; `ran` counts the calls that it carried out.

    `lost` is its answer for an unknown session, `versions` what it speaks, `accepts` whether it knows the sessions
    that it begins. While `held` is not set, a call of `slow` waits.
    """

    lost: tuple[int, Any] = LOST["404"]
    versions: tuple[str, ...] = ("2025-11-25", "2025-06-18")
    accepts: bool = True
    ran: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    known: set[str] = field(default_factory=set)
    streams: dict[str, web.StreamResponse] = field(default_factory=dict)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    held: asyncio.Event = field(default_factory=asyncio.Event)

    async def forget(self) -> None:
        """Forget every session, and end their streams."""
        self.known.clear()
        for stream in self.streams.values():
            with suppress(ConnectionError):
                await stream.write_eof()
        self.streams.clear()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """The aiohttp handler."""
        session = request.headers.get("mcp-session-id", "")
        if request.method == "POST":
            message = await request.json()
            method = message.get("method", "")
            self.asked[method] += 1
            if method == "initialize":
                return self._begun(message)
            if method == "server/discover":
                return _error(message, -32601, "Method not found")
            if session not in self.known:
                return self._unknown()
            return await self._answered(message)
        if session not in self.known:
            return self._unknown()
        if request.method == "DELETE":
            return web.Response(status=200)
        stream = self.streams[session] = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await stream.prepare(request)
        await stream.write(b"retry: 50\n\n")
        while session in self.known:
            await asyncio.sleep(0.01)
        return stream

    def _unknown(self) -> web.Response:
        status, body = self.lost
        if body is None:
            return web.Response(status=status)
        return web.json_response(body, status=status)

    def _begun(self, message: dict[str, Any]) -> web.Response:
        wanted = message["params"]["protocolVersion"]
        if wanted not in self.versions:
            data = {"supported": list(self.versions), "requested": wanted}
            return _error(message, -32022, "Unsupported protocol version", data)
        session = f"s{self.asked['initialize']}"
        if self.accepts:
            self.known.add(session)
        capabilities = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}
        result = {"protocolVersion": wanted, "capabilities": capabilities, "serverInfo": {"name": "s", "version": "1"}}
        return _result(message, result, {"mcp-session-id": session})

    async def _answered(self, message: dict[str, Any]) -> web.Response:
        method, params = message["method"], message.get("params", {})
        if "id" not in message:
            return web.Response(status=202)
        if method == "tools/list":
            return _result(message, {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]})
        if method == "resources/list":
            return _result(message, {"resources": [{"uri": "a://1", "name": "one"}]})
        if method != "tools/call":
            return _result(message, {})
        self.ran[params["name"]] += 1
        if params["name"] == "full":
            return _error(message, -32000, "This session may hold at most 5 items")
        if params["name"] == "slow":
            self.begun.set()
            await self.held.wait()
        return _result(message, {"content": [{"type": "text", "text": f"ran {params['name']}"}]})


TOOLS = ("quick", "slow", "full")


def _result(message: dict[str, Any], result: Any, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result}, headers=headers)


def _error(message: dict[str, Any], code: int, words: str, data: Any = None) -> web.Response:
    error = {"code": code, "message": words} | ({} if data is None else {"data": data})
    return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error}, status=400)


@asynccontextmanager
async def standing(server: Any) -> AsyncIterator[str]:
    """Serve the server on a free port, as an upstream in gateway.yaml."""
    app = web.Application()
    app.router.add_route("*", "/", server.handle)
    async with serving(app) as port:
        yield f'up: {{url: "http://localhost:{port}", network: private}}'


async def subscribe(client: Client, uri: str) -> None:
    """Subscribe as a client of the handshake."""
    with warnings.catch_warnings(action="ignore"):  # the SDK warns of what 2026-07-28 has no more
        await client.subscribe_resource(uri)


@pytest.mark.parametrize("lost", list(LOST))
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_call_that_finds_its_session_lost_runs_once_in_a_new_one(tmp_path: Path, lost: str, mode: str) -> None:
    """For every form of the server's refusal, again and again."""
    server = Sessions(LOST[lost])
    async with standing(server) as spec, gateway(tmp_path, spec) as mcp, Client(f"{mcp}/up", mode=mode) as client:
        for number in range(1, 4):
            assert text(await client.call_tool("quick")) == "ran quick"
            assert server.ran["quick"] == number
            await server.forget()


async def test_calls_side_by_side_begin_one_session(tmp_path: Path) -> None:
    """Each runs once."""
    server = Sessions()
    async with standing(server) as spec, gateway(tmp_path, spec) as mcp, Client(f"{mcp}/up", mode="legacy") as client:
        await client.call_tool("quick")
        begun = server.asked["initialize"]
        await server.forget()
        results = await asyncio.gather(*(client.call_tool("quick") for _ in range(20)))
        assert [text(result) for result in results] == ["ran quick"] * 20
        assert (server.ran["quick"], server.asked["initialize"]) == (21, begun + 1)


async def test_a_call_that_runs_already_keeps_its_answer(tmp_path: Path) -> None:
    """It is neither lost nor sent again when another call finds the session gone."""
    server = Sessions()
    async with standing(server) as spec, gateway(tmp_path, spec) as mcp, Client(f"{mcp}/up", mode="legacy") as client:
        slow = asyncio.ensure_future(client.call_tool("slow"))
        await server.begun.wait()
        await server.forget()
        assert text(await client.call_tool("quick")) == "ran quick"
        server.held.set()
        assert text(await slow) == "ran slow"
        assert server.ran == {"slow": 1, "quick": 1}


async def test_a_refused_call_that_names_a_session_is_not_repeated(tmp_path: Path) -> None:
    """Only an error which reports that the session is unknown begins another one."""
    server = Sessions()
    async with standing(server) as spec, gateway(tmp_path, spec) as mcp, Client(f"{mcp}/up", mode="legacy") as client:
        with pytest.raises(MCPError, match="at most 5 items"):
            await client.call_tool("full")
        assert server.ran["full"] == 1


async def test_a_server_that_knows_no_session_is_not_asked_without_end(tmp_path: Path) -> None:
    """The call ends with the reason, after one retry."""
    server = Sessions()
    async with standing(server) as spec, gateway(tmp_path, spec) as mcp, Client(f"{mcp}/up", mode="legacy") as client:
        await client.call_tool("quick")
        server.accepts = False
        await server.forget()
        begun = server.asked["initialize"]
        result = await client.call_tool("quick")
        assert "the upstream ended the session" in text(result)
        assert result.is_error
        assert server.asked["initialize"] <= begun + 2
        assert server.ran["quick"] == 1


ODD: list[Any] = [None, {}, {"supported": []}, {"supported": "2025-11-25"}, {"supported": [5, None]}, []]


@pytest.mark.parametrize("data", ODD)
async def test_a_refusal_of_the_version_that_names_none_ends_the_call(tmp_path: Path, data: Any) -> None:
    """With the reason, after a few attempts."""
    asked = []

    class Odd(Sessions):
        async def handle(self, request: web.Request) -> web.StreamResponse:
            message = await request.json()
            asked.append(message["method"])
            return _error(message, -32022, "Unsupported protocol version", data)

    async with (
        standing(Odd()) as spec,
        gateway(tmp_path, spec) as mcp,
        Client(f"{mcp}/up", mode="2026-07-28") as client,
    ):
        with pytest.raises(Exception, match="Unsupported protocol version"):
            await client.list_tools()
    assert 0 < len(asked) < 10


async def test_what_is_followed_is_followed_in_the_new_session(tmp_path: Path) -> None:
    """Followers hear that the lists may have changed, and a resource is subscribed to again."""
    server, heard = Sessions(), asyncio.Event()

    async def hear(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            heard.set()

    async with (
        standing(server) as spec,
        gateway(tmp_path, spec) as mcp,
        Client(f"{mcp}/up", mode="legacy", message_handler=hear) as client,
    ):
        await subscribe(client, "a://1")
        before = server.asked["resources/subscribe"]
        heard.clear()
        await server.forget()  # its stream ends, and cannot be resumed
        async with asyncio.timeout(60):
            await heard.wait()
            while server.asked["resources/subscribe"] == before:
                await asyncio.sleep(0.01)


async def test_a_resource_is_followed_although_the_session_was_lost(tmp_path: Path) -> None:
    """A subscription that detects the loss is made in the new session."""
    server = Sessions()
    async with standing(server) as spec, gateway(tmp_path, spec) as mcp, Client(f"{mcp}/up", mode="legacy") as client:
        await client.call_tool("quick")
        server.known.clear()
        await subscribe(client, "a://1")
        assert server.asked["resources/subscribe"] >= 2


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
@pytest.mark.parametrize("versions", [("2025-06-18",), ("2024-11-05", "2025-03-26"), ("2031-01-01", "2024-11-05")])
async def test_a_version_is_chosen_from_those_that_the_upstream_names(
    tmp_path: Path, mode: str, versions: tuple[str, ...]
) -> None:
    """An upstream that refuses the newest version of the handshake names those that it speaks."""
    server = Sessions(versions=versions)
    async with standing(server) as spec, gateway(tmp_path, spec) as mcp, Client(f"{mcp}/up", mode=mode) as client:
        assert text(await client.call_tool("quick")) == "ran quick"


async def test_an_upstream_of_unknown_versions_is_named_with_them(tmp_path: Path) -> None:
    """The client's error lists them."""

    class Strange(Sessions):
        async def handle(self, request: web.Request) -> web.StreamResponse:
            data = {"supported": ["2031-01-01", "2032-02-02"], "requested": "x"}
            return _error(await request.json(), -32022, "Unsupported protocol version", data)

    why = "it speaks protocol 2031-01-01, 2032-02-02, which the gateway does not"
    async with (
        standing(Strange()) as spec,
        gateway(tmp_path, spec) as mcp,
        Client(f"{mcp}/up", mode="2026-07-28") as client,
    ):
        with pytest.raises(Exception, match=why):
            await client.list_tools()


class Changing(Sessions):
    """Speaks 2026-07-28 until it is `older`, then only the handshake."""

    older = False

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if self.older or request.method != "POST":
            return await super().handle(request)
        message = await request.json()
        self.asked[message["method"]] += 1
        if message["method"] == "server/discover":
            found = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
            return _result(message, {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **found})
        if message["method"] in ("initialize", "subscriptions/listen"):
            return _error(message, -32601, "Method not found")
        return await self._answered(message)

    def _unknown(self) -> web.Response:
        data = {"supported": list(self.versions), "requested": "2026-07-28"}
        error = {"code": -32022, "message": "Unsupported protocol version", "data": data}
        return web.Response(
            status=400, text=json.dumps({"jsonrpc": "2.0", "id": 1, "error": error}), content_type="application/json"
        )


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_an_upstream_that_changes_its_version_is_spoken_to_in_the_new_one(tmp_path: Path, mode: str) -> None:
    """In the middle of a client's session: the call that is refused for it runs once."""
    server = Changing()
    async with standing(server) as spec, gateway(tmp_path, spec) as mcp, Client(f"{mcp}/up", mode=mode) as client:
        assert text(await client.call_tool("quick")) == "ran quick"
        server.older = True
        assert text(await client.call_tool("quick")) == "ran quick"
        assert server.ran["quick"] == 2


@pytest.mark.parametrize(
    ("status", "words"), [(404, "Could not find session"), (400, "No transport found for sessionId")]
)
async def test_the_older_transport_begins_anew_too(tmp_path: Path, status: int, words: str) -> None:
    """If the endpoint does not know the session, although its stream may still be open."""
    server = Sessions()
    streams: dict[str, web.StreamResponse] = {}

    async def stream(request: web.Request) -> web.StreamResponse:
        session = f"s{len(streams)}"
        streams[session] = response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(f"event: endpoint\ndata: /say?session={session}\n\n".encode())
        server.known.add(session)
        while True:
            await asyncio.sleep(1)

    async def say(request: web.Request) -> web.Response:
        session, message = request.query["session"], await request.json()
        if session not in server.known:
            return web.Response(status=status, text=words)
        if "id" in message:
            begins = message["method"] == "initialize"
            answer = server._begun(message) if begins else await server._answered(message)
            await streams[session].write(f"event: message\ndata: {answer.text}\n\n".encode())
        return web.Response(status=202)

    app = web.Application()
    app.router.add_get("/", stream)
    app.router.add_post("/say", say)
    async with serving(app) as port:
        spec = f'up: {{sse: "http://localhost:{port}", network: private}}'
        async with gateway(tmp_path, spec) as mcp, Client(f"{mcp}/up", mode="legacy") as client:
            for number in range(1, 4):
                assert text(await client.call_tool("quick")) == "ran quick"
                assert server.ran["quick"] == number
                server.known.clear()
