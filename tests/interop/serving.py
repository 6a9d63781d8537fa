"""Servers of the MCP SDK as upstreams on free ports, and a gateway in front of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from aiohttp import web
from mcp.server import Server as McpServer
from mcp.server.runner import serve_dual_era_loop
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.message import SessionMessage
from mcp_types import METHOD_NOT_FOUND, PROTOCOL_VERSION_META_KEY, JSONRPCMessage
from mcp_types.jsonrpc import jsonrpc_message_adapter
from starlette.types import Receive, Scope, Send

from gateway.app import build_app
from gateway.backends.connect import Connections
from gateway.config import load_config
from gateway.exchange.authenticate import Authenticator
from gateway.mcp.asgi import Ending, User, serve
from gateway.mcp.upstreams.upstream import Upstream
from gateway.model import LOCAL
from tests.world import Server, serving

Admit = Callable[[web.Request], Awaitable[web.Response | None]]
"""Gives the refusal of a request, None to admit it."""


async def everybody(_: web.Request) -> None:
    """Admit every request."""


SECURITY = TransportSecuritySettings(allowed_hosts=["localhost:*"], allowed_origins=["http://localhost:*"])


class Events(EventStore):
    """An event store that keeps every event, so that a stream can be resumed."""

    def __init__(self) -> None:
        self._events: list[tuple[str, JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Store an event; return its number."""
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send the later events of the same stream."""
        number = int(last_event_id)
        stream = self._events[number - 1][0]
        for later, (other, message) in enumerate(self._events[number:], number + 1):
            if other == stream and message is not None:
                await send_callback(EventMessage(message, str(later)))
        return stream


@asynccontextmanager
async def over_http(
    server: McpServer[Any], *, json_response: bool = False, only: str = "", admit: Admit = everybody
) -> AsyncIterator[str]:
    """Serve `server` by Streamable HTTP, in both eras or `only` one of `MODES`; yield its URL."""
    manager = StreamableHTTPSessionManager(
        server, event_store=Events(), retry_interval=50, security_settings=SECURITY, json_response=json_response
    )

    async def handle(request: web.Request) -> web.StreamResponse:
        if (refused := await admit(request)) is not None:
            return refused
        modern = request.headers.get("mcp-protocol-version", "").startswith("2026")
        if only and modern is (only == "legacy"):
            return web.Response(status=400)
        return await serve(manager.handle_request, request, User(LOCAL), Ending())

    async with manager.run():
        app = web.Application()
        app.router.add_route("*", "/mcp", handle)
        async with serving(app) as port:
            yield f"http://localhost:{port}/mcp"


@asynccontextmanager
async def over_sse(server: McpServer[Any], *, admit: Admit = everybody) -> AsyncIterator[str]:
    """Serve `server` by the older HTTP with SSE; yield its URL."""
    transport = SseServerTransport("/messages/", security_settings=SECURITY)

    async def connect(scope: Scope, receive: Receive, send: Send) -> None:
        async with transport.connect_sse(scope, receive, send) as (read, write), server.lifespan(server) as state:
            await serve_dual_era_loop(server, read, write, lifespan_state=state)

    async def standing(request: web.Request) -> web.StreamResponse:
        return await admit(request) or await serve(connect, request, User(LOCAL), Ending())

    async def message(request: web.Request) -> web.StreamResponse:
        return await admit(request) or await serve(transport.handle_post_message, request, User(LOCAL), Ending())

    app = web.Application()
    app.router.add_get("/sse", standing)
    app.router.add_post("/messages/", message)
    async with serving(app) as port:
        yield f"http://localhost:{port}/sse"


@asynccontextmanager
async def over_websocket(server: McpServer[Any], *, only: str = "", admit: Admit = everybody) -> AsyncIterator[str]:
    """Serve `server` by WebSocket, a message per text frame, in both eras or `only` one of `MODES`; yield its URL."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if (refused := await admit(request)) is not None:
            return refused
        socket = web.WebSocketResponse(protocols=("mcp",))
        await socket.prepare(request)
        to_server, from_us = anyio.create_memory_object_stream[SessionMessage | Exception](16)
        to_us, from_server = anyio.create_memory_object_stream[SessionMessage](16)

        async def write() -> None:
            async for item in from_server:
                await socket.send_str(item.message.model_dump_json(by_alias=True, exclude_unset=True))

        streams = (to_server, from_us, to_us, from_server)
        async with AsyncExitStack() as stack:
            for stream in streams:
                await stack.enter_async_context(stream)
            tasks = await stack.enter_async_context(anyio.create_task_group())
            state = await stack.enter_async_context(server.lifespan(server))
            tasks.start_soon(partial(serve_dual_era_loop, server, from_us, to_us, lifespan_state=state))
            tasks.start_soon(write)
            async for frame in socket:
                if only and (refusal := _refusal(frame.json(), only)) is not None:
                    await socket.send_json(refusal)
                    continue
                await to_server.send(SessionMessage(jsonrpc_message_adapter.validate_json(frame.data)))
            tasks.cancel_scope.cancel()
        return socket

    app = web.Application()
    app.router.add_get("/mcp", handle)
    async with serving(app) as port:
        yield f"ws://localhost:{port}/mcp"


def _refusal(message: dict[str, Any], only: str) -> dict[str, Any] | None:
    """Return the answer of a server with `only` one era to a request of the other."""
    method, meta = message.get("method"), message.get("params", {}).get("_meta", {})
    other = PROTOCOL_VERSION_META_KEY in meta if only == "legacy" else method == "initialize"
    if "id" not in message or not other:
        return None
    return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": METHOD_NOT_FOUND, "message": "Method not found"}}


@asynccontextmanager
async def gateway(
    folder: Path,
    upstreams: str,
    more: str = "",
    *,
    environ: Mapping[str, str] | None = None,
    at: Server | None = None,
    http_client: str = "gateway",
) -> AsyncIterator[str]:
    """Run a gateway with these lines under `upstreams`, and `more` in its configuration; yield its `/mcp` URL."""
    door = at or Server()
    lines = "".join(f"  {line}\n" for line in upstreams.strip().splitlines())
    (folder / "gateway.yaml").write_text(
        f"server: {{listen: 127.0.0.1:{door.port}, http_client: {http_client}}}\n{more}\nupstreams:\n{lines}", "utf-8"
    )
    await door.start(build_app(load_config(folder / "gateway.yaml", environ or {})))
    try:
        yield f"http://localhost:{door.port}/mcp"
    finally:
        await door.stop()


@asynccontextmanager
async def alone(folder: Path, url: str, more: str) -> AsyncIterator[Upstream]:
    """Yield the upstream at `url`, with `more` in its configuration, without a gateway around it."""
    lines = f"upstreams:\n  up: {{url: '{url}', network: private, {more}}}\n"
    (folder / "gateway.yaml").write_text(lines, "utf-8")
    async with Connections() as connections, asyncio.TaskGroup() as tasks:
        made = Upstream(
            load_config(folder / "gateway.yaml", {}).upstreams["up"],
            connections=connections,
            authenticator=Authenticator({}),
            tasks=tasks,
            echoed=print,
            fingerprints=lambda _: pytest.fail("nothing is listed here"),
        )
        try:
            yield made
        finally:
            await made.close()
