"""A mount with small working collaborators, and a real server in front of it."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
from aiohttp import web
from aiohttp.typedefs import Handler
from mcp import Client
from mcp.client import advertise

from gateway.callers.entitlements import admit_all
from gateway.doors.access import IncomingRequest
from gateway.doors.client_connection import ConnectionLimits, HttpConnection, ServerState
from gateway.doors.client_limits import InFlight, Peers, Unread
from gateway.doors.responses import name_server, nameless
from gateway.doors.runner import CONNECTION, LIMITS, GatewayRunner
from gateway.fastpath.connection import FastConnection
from gateway.fastpath.http1 import RequestHead
from gateway.fastpath.routes import HeadHolders, McpRoute, StreamRoute
from gateway.mcp import McpMount
from gateway.mcp.middleware import BODY_LIMIT
from gateway.mcp.own_tools import StorageTool
from gateway.mcp.tools import APP_MIME_TYPE, UI_EXTENSION
from gateway.model import (
    LOCAL,
    Principal,
)
from tests.mcp.fakes import EchoExchange, FakePages, FakeStorage, FakeViews, Packed, fake_app
from tests.mcp.memory_sessions import MemoryMcpSessions

MODES = ["legacy", "2026-07-28"]
UI = [advertise(UI_EXTENSION, {"mimeTypes": [APP_MIME_TYPE]})]


@dataclass
class Served:
    """A mount that is served at `url`."""

    url: str
    face: McpMount
    views: FakeViews
    pages: FakePages
    exchange: EchoExchange
    seen: list[str] = field(default_factory=list)
    """The paths that reached the application."""


class _Open:
    """Admits every caller to the fast path of one face, at `/mcp` only."""

    def __init__(self, face: McpMount) -> None:
        self._face = face
        self.holders = HeadHolders()
        self._in_flight = InFlight()

    def find(self, head: RequestHead) -> McpRoute[Any] | StreamRoute | None:
        """Return the route of a call or stream that the mount's fast path accepts."""
        places, streams = self._in_flight.requests, self._in_flight.streams
        if (head.method, head.target) == ("GET", "/mcp"):
            wanted = self._face.stream_request(head.fields)
            if wanted is None:
                return None
            return StreamRoute("", self._face, wanted, lambda: self._face, _identify, admit_all, streams)
        fast = self._face.fast
        tool = fast.tool(head.fields) if fast is not None and (head.method, head.target) == ("POST", "/mcp") else None
        return (
            McpRoute(head, "", fast, tool, lambda: self._face.fast, _identify, admit_all, places)
            if fast and tool
            else None
        )

    def client(self, request: IncomingRequest) -> str | None:
        """Return the address of the request."""
        return request.remote

    def generation(self) -> int:
        """Return a constant: nobody logs out."""
        return 0

    def hold(
        self, principal: Principal, end: Callable[[], None], app: str = "", needs: str = ""
    ) -> AbstractContextManager[None]:
        """Do nothing: no credential is revoked."""
        return nullcontext()


async def _identify(request: IncomingRequest, mount: str) -> Principal | None:
    """Return the principal as the face itself does."""
    return principal_of(request.headers.get("x-user"))


@dataclass
class Mount:
    """The collaborators of a mount."""

    app: str | None = None
    fast_path: bool = True
    front: bool = False
    server_fast_path: bool = True
    """`server.fast_path`, behind `front`."""
    sessions: int = 10_000
    sessions_each: int = 1000
    session_idle: float = 1800.0
    body_limit: int = BODY_LIMIT
    silence: float = 60.0
    """Seconds after which the fast path begins an event stream."""
    apps: dict[str, Packed] = field(default_factory=lambda: {id: fake_app(id) for id in ("cart", "todo")})
    storage: FakeStorage = field(default_factory=FakeStorage)
    session_rest: float = 5.0
    plain_streams: bool = False
    """Standing streams at the mount's own address are served without aiohttp and the SDK."""
    unread: Unread = field(default_factory=Unread)

    def __post_init__(self) -> None:
        self.tool = StorageTool(self.storage)
        self.kept = MemoryMcpSessions(self.sessions, self.sessions_each)
        """The sessions, which the next `face` adopts."""

    @asynccontextmanager
    async def face(self, *hosts: str) -> AsyncIterator[Served]:
        """Return the mount without a server in front of it; it answers as these hosts, too."""
        views, pages, exchange = FakeViews(), FakePages(), EchoExchange()
        face = McpMount(
            self.app,
            apps=self.apps,
            views=views,
            forwarder=pages,
            exchange=exchange,
            storage=self.tool,
            version="1.2.3",
            hosts=["127.0.0.1:*", "gateway.test", *hosts],
            origins=["http://console.test"],
            principal=lambda request: principal_of(request.headers.get("x-user")),
            fast_path=self.fast_path,
            sessions=self.kept,
            session_idle=self.session_idle,
            session_rest=self.session_rest,
            body_limit=lambda: self.body_limit,
            silence=self.silence,
        )
        async with face:
            yield Served("", face, views, pages, exchange)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Served]:
        """Serve the mount at a free port of this machine."""
        sock = socket.create_server(("127.0.0.1", 0))
        host = f"127.0.0.1:{sock.getsockname()[1]}"
        async with self.face(*([host] if self.plain_streams else [])) as served:

            @web.middleware
            async def see(request: web.Request, handler: Handler) -> web.StreamResponse:
                served.seen.append(request.path)
                return await handler(request)

            app = web.Application(middlewares=[see])
            app.on_response_prepare.append(name_server)  # as the gateway does for everything it serves
            app.router.add_route("*", "/mcp", served.face.handle)
            app[LIMITS] = ConnectionLimits(Peers(), self.unread, lambda _: None)
            if self.server_fast_path:
                routes = _Open(served.face)

                def connection(server: ServerState) -> HttpConnection:
                    return FastConnection(server, routes)

                app[CONNECTION] = connection
            runner = (
                GatewayRunner(app, drain=5.0)
                if self.front
                else _NamelessRunner(app, handler_cancellation=True, shutdown_timeout=5.0)
            )
            await runner.setup()
            try:
                await web.SockSite(runner, sock).start()
                served.url = f"http://{host}/mcp"
                yield served
            finally:
                served.face.drain()
                await runner.cleanup()


class _NamelessRunner(web.AppRunner):
    """Removes the version from the parser's own answers, as the gateway does."""

    @property
    def server(self) -> Any:
        """Return aiohttp's server."""
        behind = super().server
        return None if behind is None else lambda: nameless(behind())


def principal_of(header: str | None) -> Principal:
    """Return the principal of a request with `x-user: issuer|client|subject`."""
    issuer, client, subject = (header or "||").split("|")
    return Principal(issuer, client, subject) if header else LOCAL


def as_app(url: str, mode: str, **options: Any) -> Client:
    """Return a client that shows MCP Apps."""
    return Client(url, mode=mode, extensions=UI, **options)


def result_text(result: types.CallToolResult) -> str:
    """Return the text of a result."""
    return "".join(block.text for block in result.content if isinstance(block, types.TextContent))
