"""The gateway's end of the bridge, with the real mux, and the two sites that serve the host parts under test."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from aiohttp import WSMsgType, web

from gateway import mux
from gateway.errors import MuxError
from gateway.model import Channel, Json

STATIC = Path(mux.__file__).parent.parent / "static"
POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; frame-ancestors {host}"
)
PAGES = Path(__file__).parent / "pages"


def echo(params: dict[str, Any]) -> dict[str, Json]:
    """The name and the arguments of a call."""
    return {"content": [{"type": "text", "text": params["name"]}], "structuredContent": params.get("arguments", {})}


@dataclass
class FarEnd:
    """The frames that the gateway's end received, and its answers; `on_call` gives the result of a `tools/call`."""

    scripts: dict[str, str]
    port: int = 0
    told: list[mux.Frame] = field(default_factory=list)
    bodies: dict[str, str] = field(default_factory=dict)
    resumable: dict[str, str] = field(default_factory=dict)
    sockets: list[tuple[mux.ServerConnection, web.WebSocketResponse]] = field(default_factory=list)
    on_call: Callable[[dict[str, Any]], dict[str, Json] | None] = echo
    shown: dict[str, Json] = field(default_factory=dict)
    """The declarations of how apps are shown."""

    @property
    def host(self) -> str:
        """The origin of the host page."""
        return f"http://gateway.localhost:{self.port}"

    @property
    def sandbox(self) -> str:
        """The address of the sandbox proxy for that page."""
        return f"http://sandbox.localhost:{self.port}/proxy.html?{urlencode({'host': self.host})}"

    def url(self, *apps: str) -> str:
        """The host page with these apps."""
        return f"{self.host}/?{urlencode([('sandbox', self.sandbox), *(('app', app) for app in apps)])}"

    def messages(self, channel: Channel, method: str | None = None) -> list[dict[str, Json]]:
        """The received messages of a channel, with this method."""
        found = [frame.message for frame in self.told if isinstance(frame, mux.Message) and frame.channel is channel]
        return [message for message in found if method is None or message.get("method") == method]

    def of(self, kind: type[mux.Frame]) -> list[Any]:
        """The received frames of one type."""
        return [frame for frame in self.told if isinstance(frame, kind)]

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until `condition` holds, for twenty seconds at most."""
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.02)

    async def say(self, frame: mux.Frame) -> None:
        """Send a frame on the newest connection."""
        connection, socket = self.sockets[-1]
        connection.send(frame)
        await flush(connection, socket)

    async def drop(self) -> None:
        """Cut the newest connection."""
        await self.sockets[-1][1].close()

    def application(self) -> web.Application:
        """The aiohttp application of both sites."""
        app = web.Application()
        app.router.add_get("/", self._page)
        app.router.add_get("/host.js", self._host)
        app.router.add_get("/proxy.html", self._proxy)
        app.router.add_post("/bridge/tickets", self._ticket)
        app.router.add_get("/bridge", self._bridge)
        app.router.add_route("*", "/bridge/bodies/{id}", self._body)
        return app

    async def _page(self, request: web.Request) -> web.FileResponse:
        return web.FileResponse(PAGES / "host.html")

    async def _host(self, request: web.Request) -> web.FileResponse:
        return web.FileResponse(STATIC / "host/mcp-app.js")

    async def _proxy(self, request: web.Request) -> web.StreamResponse:
        headers = {"content-security-policy": POLICY.format(host="http://*.localhost:*")}
        return web.FileResponse(STATIC / "sandbox/proxy.html", headers=headers)

    async def _ticket(self, request: web.Request) -> web.Response:
        assert request.headers["webmcp-gateway-csrf"] == "token"
        return web.json_response({"ticket": "ticket"})

    async def _body(self, request: web.Request) -> web.Response:
        if request.method == "PUT":
            self.bodies[request.match_info["id"]] = await request.text()
            return web.Response(status=204)
        return web.Response(text=self.bodies.pop(request.match_info["id"]))

    async def _bridge(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=("webmcp-gateway.v1",))
        await socket.prepare(request)
        connection = mux.ServerConnection()
        self.sockets.append((connection, socket))
        async for message in socket:
            assert message.type is WSMsgType.TEXT
            try:
                for event in connection.receive_data(message.data):
                    self.told.append(event)
                    self._answer(connection, event)
            except MuxError:
                await flush(connection, socket)
                break
            await flush(connection, socket)
        return socket

    def _answer(self, connection: mux.ServerConnection, event: mux.Frame) -> None:
        match event:
            case mux.Open(ref, app):
                view = secrets.token_urlsafe(16)
                self.resumable[view] = secrets.token_urlsafe(16)
                connection.send(mux.Opened(ref, view, f"ui://{app}/index.html", (), self.resumable[view]))
            case mux.Resume(view, token):
                if self.resumable.pop(view, None) == token:
                    self.resumable[view] = secrets.token_urlsafe(16)
                    connection.send(mux.Resume(view, self.resumable[view]))
                else:
                    connection.send(mux.ErrorFrame("unknown-view", "closed", view=view))
            case mux.Message(view, Channel.UI, {"id": id, "method": method, **rest}):
                result = self._result(str(method), self._whole(rest))
                if result is not None:
                    self._send(connection, view, {"jsonrpc": "2.0", "id": id, "result": result})
            case _:
                pass

    def _whole(self, rest: dict[str, Json]) -> dict[str, Any]:
        named = mux.named_body(rest)
        message: dict[str, Any] = mux.join_body(rest, self.bodies.pop(named)) if named else rest
        params: dict[str, Any] = message["params"]
        return params

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Json] | None:
        if method == "tools/call":
            return self.on_call(params)
        if method == "completion/complete":
            return {"completion": {"values": [params["ref"]["name"], params["argument"]["value"]]}}
        app = params["uri"].split("/")[2]
        html = (PAGES / "app.html").read_text().replace("/* SCRIPT */", self.scripts[app])
        contents: list[Json] = [{"uri": params["uri"], "mimeType": "text/html;profile=mcp-app", "text": html}]
        return {"contents": contents, "_meta": {"webmcp-gateway/shown": self.shown}}

    def _send(self, connection: mux.ServerConnection, view: str, message: dict[str, Json]) -> None:
        if mux.is_large(message):
            id = secrets.token_urlsafe(24)
            message, self.bodies[id] = mux.split_body(message, id)
        connection.send(mux.Message(view, Channel.UI, message))


async def flush(connection: mux.ServerConnection, socket: web.WebSocketResponse) -> None:
    """Send the pending output."""
    for text in connection.pending_output():
        await socket.send_str(text)


@asynccontextmanager
async def far_end(**scripts: str) -> AsyncIterator[FarEnd]:
    """The far end on a free port; `scripts` are the scripts of the apps."""
    end = FarEnd(scripts)
    listening = socket.create_server(("127.0.0.1", 0))
    end.port = listening.getsockname()[1]
    runner = web.AppRunner(end.application(), shutdown_timeout=1)
    await runner.setup()
    await web.SockSite(runner, listening).start()
    try:
        yield end
    finally:
        for _, open_socket in end.sockets:
            await open_socket.close()
        await runner.cleanup()
