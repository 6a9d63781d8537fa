"""Targets that speak to a running gateway over loopback: the bridge of a host page, and the console's REST API."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Final

import aiohttp

from gateway import mux
from gateway.model import Channel, Json
from tests.doors.bridge.test_bridge import Host, connected, console
from tests.world import World, running

PATIENCE: Final = 10.0
"""Seconds for an answer that must come."""

MOST: Final = 16
"""Lines of an input that are sent."""

PATHS: Final = ("/api/", "/bridge/", "/connect/", "/approvals/", "/webhook", "/login")

_INTERNAL: Final = 1011

Attempt = Callable[[bytes], Coroutine[None, None, None]]


class _Errors(logging.Handler):
    """Collects what the gateway logs as an error, and what the event loop reports."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(self.format(record))


class RunningGateway:
    """A gateway in an event loop of its own, which runs only while an input is tried; it starts with the first one."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stack = AsyncExitStack()
        self._errors = _Errors()

    def run(self, attempt: Callable[[Doors], Attempt], data: bytes) -> None:
        """Try one input. Raises AssertionError, also for an error that is only logged."""
        loop = self._loop or self.start()
        self._errors.messages.clear()
        loop.run_until_complete(attempt(self._doors)(data))
        assert not self._errors.messages, self._errors.messages

    def start(self) -> asyncio.AbstractEventLoop:
        """Start the gateway, and return its event loop."""
        self._loop = loop = asyncio.new_event_loop()
        self._doors = loop.run_until_complete(self._start())
        return loop

    def close(self) -> None:
        """Stop the gateway."""
        if self._loop is not None:
            logging.getLogger().removeHandler(self._errors)
            self._loop.run_until_complete(self._stack.aclose())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
            self._loop = None

    async def _start(self) -> Doors:
        folder = Path(self._stack.enter_context(TemporaryDirectory(prefix="fuzz-")))
        world = await self._stack.enter_async_context(running(folder))
        client = await self._stack.enter_async_context(console(world))
        logging.getLogger().addHandler(self._errors)
        return Doors(world, client, self._stack)


class Doors:
    """The console of `world`, with one view that is opened again when its connection ends."""

    def __init__(self, world: World, client: aiohttp.ClientSession, stack: AsyncExitStack) -> None:
        self._world = world
        self._client = client
        self._host: Host | None = None
        self._view = ""
        self._held = AsyncExitStack()
        stack.push_async_exit(self._held)

    async def frames(self, data: bytes) -> None:
        """Send any frames, each a text or, after a NUL, bytes, to a bridge without a ticket: it is closed, at most."""
        async with self._client.ws_connect(f"{self._world.console}/bridge", protocols=["webmcp-gateway.v1"]) as socket:
            with suppress(ConnectionError):
                for line in data.split(b"\n")[:MOST]:
                    if line.startswith(b"\0"):
                        await socket.send_bytes(line[1:])
                    else:
                        await socket.send_str(line.decode("utf-8", "replace"))
                await socket.send_str("no frame")
            async with asyncio.timeout(PATIENCE):
                async for message in socket:
                    mux.decode(message.data)
        assert socket.close_code not in (None, _INTERNAL), socket.close_code
        await self._alive()

    async def messages(self, data: bytes) -> None:
        """Send any JSON-RPC messages of a view, one in a line: each request is answered, or its connection ends."""
        host = await self._view_host()
        if host is None:
            return
        for line in data.split(b"\n")[:MOST]:
            channel = Channel.WEBMCP if line.startswith(b"!") else Channel.UI
            frame = b'{"view":"%b","channel":"%b","message":%b}' % (
                self._view.encode(), channel.value.encode(), line.lstrip(b"!") or b"{}"
            )  # fmt: skip
            with suppress(ConnectionError):
                await host.socket.send_str(frame.decode("utf-8", "replace"))
        ping: dict[str, Json] = {"jsonrpc": "2.0", "id": "fuzz-ping", "method": "ping"}
        try:
            await host.say(mux.Message(self._view, Channel.UI, ping))
            async with asyncio.timeout(PATIENCE):
                while True:
                    message = await host.socket.receive()
                    if message.type is not aiohttp.WSMsgType.TEXT:
                        assert host.socket.close_code != _INTERNAL, "the bridge failed"
                        await self._drop()
                        break
                    mux.decode(message.data)
                    if '"fuzz-ping"' in message.data:
                        break
        except ConnectionError:
            await self._drop()
        await self._alive()

    async def requests(self, data: bytes) -> None:
        """Send one request to the REST API: method, path and flags in the first line, then the body."""
        head, _, body = data.partition(b"\n")
        words = head.decode("latin-1").split(" ")
        method = words[0] if re.fullmatch("[A-Z]{1,10}", words[0]) else "POST"
        path = words[1] if len(words) > 1 else "/api/state"
        path = re.sub(r"[^\x21-\x7e]", "", path)
        if not path.startswith(PATHS) or path.startswith("/api/events"):
            path = f"/api/{path.lstrip('/')}"
        fields = [f"{method} {path} HTTP/1.1", f"Host: {self._world.console.partition('//')[2]}", "Connection: close"]
        fields += [f"Origin: {self._world.console}", "Sec-Fetch-Site: same-origin", f"Content-Length: {len(body)}"]
        if "bare" not in words[2:]:
            csrf = self._client.headers["webmcp-gateway-csrf"]
            fields += [f"webmcp-gateway-csrf: {csrf}", "Content-Type: application/json"]
        reader, writer = await asyncio.open_connection("127.0.0.1", self._world.gateway.port)
        try:
            writer.write("\r\n".join([*fields, "", ""]).encode("latin-1") + body)
            async with asyncio.timeout(PATIENCE):
                answer = await reader.read(1 << 20)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
        status = int(answer.split(b" ", 2)[1])
        assert status < 500 or status == 503, (head, answer[:400])
        told = answer.partition(b"\r\n\r\n")[2]
        if b"\r\nContent-Type: application/json" in answer and method != "HEAD":
            json.loads(told)

    async def _alive(self) -> None:
        async with self._client.get(f"{self._world.console}/api/state") as answer:
            assert answer.status == 200

    async def _view_host(self) -> Host | None:
        """Return the host page with the view; None after inputs that closed more than may be opened in a minute."""
        if self._host is None:
            self._host = await self._held.enter_async_context(connected(self._world, self._client))
            try:
                self._view = (await self._host.open()).view
            except AssertionError as refused:
                if "rate-limited" not in str(refused):
                    raise
                await self._drop()
        return self._host

    async def _drop(self) -> None:
        self._host = None
        await self._held.aclose()


GATEWAY: Final = RunningGateway()

LIVE: Final[Mapping[str, Callable[[bytes], None]]] = MappingProxyType(
    {
        "bridge": partial(GATEWAY.run, lambda doors: doors.frames),
        "messages": partial(GATEWAY.run, lambda doors: doors.messages),
        "rest": partial(GATEWAY.run, lambda doors: doors.requests),
    }
)
"""These targets by name."""
