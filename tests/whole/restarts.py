"""A gateway that is stopped or killed, and started again at the same port."""

from __future__ import annotations

import asyncio
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

import aiohttp

from tests.cli.test_serve import process
from tests.world import free_port

T = TypeVar("T")

SIGNALS = [signal.SIGTERM, signal.SIGKILL]


ADDRESS = "127.0.0.2"
"""The gateway's address behind the proxy, which has the usual one, at the same port."""


class Proxy:
    """A TCP proxy in front of the gateway, which holds new connections until that accepts them."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.handshakes = Counter[str]()
        """Requests `initialize` so far, by the query of their URL."""
        self._work: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection."""
        task = asyncio.current_task()
        assert task is not None
        self._work.add(task)
        try:
            async with asyncio.timeout(60):
                back = await self._connect()
            try:
                pumps = [
                    asyncio.ensure_future(pump(reader, back[1], self._counting())),
                    asyncio.ensure_future(pump(back[0], writer)),
                ]
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                for one in pumps:
                    one.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
            finally:
                back[1].transport.abort()
        finally:
            writer.transport.abort()
            self._work.discard(task)

    def _counting(self) -> Callable[[bytes], None]:
        """Count the handshakes on one connection."""
        client = ""

        def look(data: bytes) -> None:
            nonlocal client
            if (query := re.search(rb"/mcp\?(\w+)", data)) is not None:
                client = query[1].decode()
            self.handshakes[client] += data.count(b'"initialize"')

        return look

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while True:
            try:
                return await asyncio.open_connection(ADDRESS, self._port)
            except OSError:
                await asyncio.sleep(0.02)

    async def close(self) -> None:
        """End all connections."""
        for task in list(self._work):
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)


async def pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, look: Callable[[bytes], None] = lambda _: None
) -> None:
    """Copy one direction of a connection until it ends; `look` sees the bytes."""
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            look(data)
            writer.write(data)
            await writer.drain()


class Restartable:
    """The gateway of `folder`, as a process."""

    def __init__(self, folder: Path, port: int, address: str, stack: AsyncExitStack) -> None:
        self.port = port
        self._address = address
        self._folder = folder
        self._stack = stack
        self._running: asyncio.subprocess.Process | None = None
        self.proxy: Proxy | None = None

    @property
    def url(self) -> str:
        """The address of its MCP server."""
        return f"http://localhost:{self.port}/mcp"

    async def start(self) -> None:
        """Start it; return once it is ready."""
        self._running = await self._stack.enter_async_context(process(self._folder))
        headers = {"webmcp-gateway-client": "1", "host": f"localhost:{self.port}"}
        async with asyncio.timeout(60), aiohttp.ClientSession(headers=headers) as http:
            while not await _ready(http, f"http://{self._address}:{self.port}/readyz"):
                assert self._running.returncode is None, await self._running.communicate()
                await asyncio.sleep(0.05)

    async def stop(self, number: signal.Signals) -> None:
        """End it by a signal."""
        assert self._running is not None
        self._running.send_signal(number)
        await self._running.wait()

    async def restart(self, number: signal.Signals) -> None:
        """End it by a signal, and start it again."""
        await self.stop(number)
        await self.start()


async def _ready(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with http.get(url) as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


@asynccontextmanager
async def restartable(folder: Path, more: str, *, waiting: bool = False) -> AsyncIterator[Restartable]:
    """Start a gateway with the lines `more` in its configuration; `waiting`: behind a `Proxy`."""
    port, address = free_port(), ADDRESS if waiting else "127.0.0.1"
    (folder / "gateway.yaml").write_text(f"server: {{listen: '{address}:{port}', drain: {{announce: 0s}}}}\n{more}\n")
    async with AsyncExitStack() as stack:
        proxy = Proxy(port) if waiting else None
        if proxy is not None:
            stack.push_async_callback(proxy.close)
            server = await asyncio.start_server(proxy.serve, "127.0.0.1", port)
            stack.callback(server.close)
        gateway = Restartable(folder, port, address, stack)
        gateway.proxy = proxy
        await gateway.start()
        yield gateway


async def eventually(work: Callable[[], Awaitable[T]], seconds: float = 30) -> T:
    """Repeat `work` until it succeeds, as a person does whose client reports an error."""
    async with asyncio.timeout(seconds):
        while True:
            try:
                return await work()
            except Exception as error:  # noqa: BLE001  any error of a foreign client
                failure = error
            try:
                await asyncio.sleep(0.1)
            except asyncio.CancelledError:
                raise AssertionError(f"it never succeeded: {failure!r}") from failure
