"""A backend of WebSockets, of which some behave as none should, and the policy of an app that uses them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web

from tests.world import Server, World, listen, running

POLICY = """version: 1
backends:
  chat: {url: "http://127.0.0.1:PORT", network: private, cookies: jar}
  raw: {url: "http://127.0.0.1:RAW", network: private, origins: ["http://raw.example"]}
limits: {timeout: 60s}
routes:
  - {path: /echo, backend: chat, methods: [GET], websocket: {message: 64KiB}}
  - {path: /paced, backend: chat, methods: [GET], websocket: {rate: 2/minute per principal}}
  - {path: /trusting, backend: chat, methods: [GET], websocket: {model: allow}}
  - {path: /graph, backend: chat, methods: [GET], websocket: {protocols: [graphql-transport-ws, chat]}}
  - {path: /asked, backend: chat, methods: [GET], websocket: true, confirm: always}
  - {path: /plain, backend: chat, methods: [GET]}
  - {path: /login, backend: chat, methods: [GET]}
  - {path: "/raw/**", backend: raw, methods: [GET], websocket: true, timeout: TIMEOUT}
  - {path: "/**", backend: chat, methods: [GET, POST], websocket: true}
tools:
  speak: {}
"""


@dataclass(slots=True)
class SocketBackend:
    """The rooms of a chat, and what the backend has seen."""

    page: str = ""
    opened: list[dict[str, str]] = field(default_factory=list)
    heard: list[str | bytes] = field(default_factory=list)
    closed: list[int | None] = field(default_factory=list)
    rooms: set[web.WebSocketResponse] = field(default_factory=set)
    answers: dict[str, bytes] = field(default_factory=dict)
    """The bytes that a raw socket sends after it has opened, or in place of the opening response."""

    def app(self) -> web.Application:
        """The application of the well-behaved sockets."""
        app = web.Application()
        app.router.add_get("/login", self._login)
        app.router.add_get("/page", self._page)
        app.router.add_get("/refuse", self._refuse)
        app.router.add_get("/plain", self._refuse)
        app.router.add_get("/{path:.*}", self._open)
        return app

    async def _page(self, _: web.Request) -> web.Response:
        return web.Response(text=self.page, content_type="text/html")

    async def _login(self, _: web.Request) -> web.Response:
        answer = web.Response(text="welcome")
        answer.set_cookie("session", "of the backend", httponly=True)
        return answer

    async def _refuse(self, _: web.Request) -> web.Response:
        return web.Response(status=403, text="no sockets here")

    async def _open(self, request: web.Request) -> web.WebSocketResponse:
        wire = web.WebSocketResponse(protocols=("chat", "graphql-transport-ws"), autoclose=False)
        await wire.prepare(request)
        self.opened.append({name.lower(): value for name, value in request.headers.items()})
        self.rooms.add(wire)
        try:
            async for message in wire:
                self.heard.append(message.data)
                await self._answer(request, wire, message.data)
        finally:
            self.rooms.discard(wire)
            self.closed.append(wire.close_code)
            with suppress(ConnectionError):
                await wire.close(code=wire.close_code or 1000)
        return wire

    async def _answer(self, request: web.Request, wire: web.WebSocketResponse, said: str | bytes) -> None:
        if request.path == "/room":
            for other in list(self.rooms):
                await other.send_str(str(said))
        elif isinstance(said, bytes):
            await wire.send_bytes(said)
        elif said.startswith("close"):
            _, code, *reason = said.split(" ", 2)
            await wire.close(code=int(code), message=(reason or [""])[0].encode())
        elif said == "who":
            await wire.send_str(f"{request.headers.get('authorization')} {request.headers.get('cookie')}")
        elif said.startswith("large"):
            await wire.send_str("x" * int(said.split()[1]))
        elif said == "flood":
            with suppress(ConnectionError):
                for number in range(20_000):
                    await wire.send_str(f"{number} {'x' * 1000}")
        elif said == "leave" and request.transport is not None:
            request.transport.abort()
        else:
            await wire.send_str(said)

    async def raw(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Open a socket properly, then send the bytes of its path; without any, never answer."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
            self.opened.append(fields)
            answer = self.answers.get(lines[0].split(" ")[1].removeprefix("/raw"))
            if answer is None:
                await reader.read()
            elif answer.startswith(b"HTTP/"):
                writer.write(answer)
            else:
                writer.write(opening(fields["sec-websocket-key"]) + answer)
                await writer.drain()
                await reader.read(1)
        writer.close()


def opening(key: str, *fields: str) -> bytes:
    """The response that opens a WebSocket."""
    accept = base64.b64encode(hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()).decode()
    lines = ("HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade", *fields)
    return "\r\n".join([*lines, f"Sec-WebSocket-Accept: {accept}", "", ""]).encode()


def frame(opcode: int, payload: bytes, *, first: int | None = None) -> bytes:
    """A frame of a server (RFC 6455, 5.2); `first` replaces its first byte."""
    length = len(payload)
    size = (
        bytes([length])
        if length < 126
        else b"\x7e" + length.to_bytes(2)
        if length < 2**16
        else b"\x7f" + length.to_bytes(8)
    )
    return bytes([first if first is not None else 0x80 | opcode]) + size + payload


@dataclass(frozen=True, slots=True)
class SocketWorld:
    """The gateway, and the backend of sockets behind it."""

    world: World
    backend: SocketBackend
    port: int

    def outcomes(self, url: str) -> list[dict[str, Any]]:
        """The outcomes of the WebSockets that were opened at this URL."""
        outcomes = [line["fields"] for line in self.world.records() if line["phase"] == "outcome"]
        return [one for one in outcomes if (one.get("method"), one.get("url")) == ("WEBSOCKET", url)]

    async def until(self, url: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait for the outcomes."""
        async with asyncio.timeout(60):
            while len(found := self.outcomes(url)) < count:
                await asyncio.sleep(0.02)
        return found


@asynccontextmanager
async def socket_world(
    folder: Path, page: str = "<!doctype html><title>t</title>", timeout: str = "60s", extra: str = ""
) -> AsyncIterator[SocketWorld]:
    """Run the backend and a gateway for an app of this page; `timeout` is that of the raw sockets."""
    backend, server, sock = SocketBackend(page), Server(), listen()
    await server.start(backend.app())
    source = folder / "page"
    source.mkdir()
    (source / "index.html").write_text(page, "utf-8")
    policy = POLICY.replace("PORT", str(server.port)).replace("RAW", str(sock.getsockname()[1]))
    try:
        async with (
            await asyncio.start_server(backend.raw, sock=sock),
            running(folder, policy=policy.replace("TIMEOUT", timeout), source=source, extra=extra) as world,
        ):
            yield SocketWorld(world, backend, server.port)
    finally:
        await server.stop()


def types(messages: Sequence[Any]) -> list[WSMsgType]:
    """The types of received messages."""
    return [message.type for message in messages]
