"""Servers of the MCP SDK as upstreams on free ports, and a gateway in front of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from mcp.server import Server as McpServer
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import JSONRPCMessage

from gateway.app import build_app
from gateway.config import load_config
from gateway.mcp.asgi import Ending, serve
from gateway.mcp.identity import User
from gateway.model import LOCAL
from tests.world import Server, bound

SECURITY = TransportSecuritySettings(allowed_hosts=["localhost:*"], allowed_origins=["http://localhost:*"])


class Events(EventStore):
    """Keeps every event, so that a stream can be taken up again."""

    def __init__(self) -> None:
        self._events: list[tuple[str, JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """The number of the event."""
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send the events of the same stream that came after."""
        number = int(last_event_id)
        stream = self._events[number - 1][0]
        for later, (other, message) in enumerate(self._events[number:], number + 1):
            if other == stream and message is not None:
                await send_callback(EventMessage(message, str(later)))
        return stream


@asynccontextmanager
async def over_http(server: McpServer[Any], *, json_response: bool = False, only: str = "") -> AsyncIterator[str]:
    """`server` by Streamable HTTP, in both eras or `only` one of `MODES`; its URL."""
    manager = StreamableHTTPSessionManager(
        server, event_store=Events(), retry_interval=50, security_settings=SECURITY, json_response=json_response
    )

    async def handle(request: web.Request) -> web.StreamResponse:
        modern = request.headers.get("mcp-protocol-version", "").startswith("2026")
        if only and modern is (only == "legacy"):
            return web.Response(status=400)
        return await serve(manager.handle_request, request, User(LOCAL), Ending())

    async with manager.run():
        app = web.Application()
        app.router.add_route("*", "/mcp", handle)
        http = Server(bound())
        await http.start(app)
        try:
            yield f"http://localhost:{http.port}/mcp"
        finally:
            await http.stop()


@asynccontextmanager
async def gateway(folder: Path, upstreams: str) -> AsyncIterator[str]:
    """A gateway with these lines under `upstreams`; the URL of its `/mcp`."""
    door = Server(bound())
    lines = "".join(f"  {line}\n" for line in upstreams.strip().splitlines())
    (folder / "gateway.yaml").write_text(f"server: {{listen: 127.0.0.1:{door.port}}}\nupstreams:\n{lines}", "utf-8")
    await door.start(build_app(load_config(folder / "gateway.yaml", {})))
    try:
        yield f"http://localhost:{door.port}/mcp"
    finally:
        await door.stop()
