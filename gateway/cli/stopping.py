"""Graceful shutdown: running exchanges drain until a timeout or a second signal, then are aborted."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress

from aiohttp import web

DRAIN = 10.0
"""Seconds to drain after the first signal."""

CLEAN = 10.0
"""Seconds for aborted exchanges to record their outcome."""

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """The first signal starts the shutdown, the second aborts the drain; further ones have their default effect."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._stop, self._hurry = asyncio.Event(), asyncio.Event()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._came)

    async def wait(self) -> None:
        """Wait for the first signal."""
        await self._stop.wait()

    async def end(self, runner: web.BaseRunner) -> None:
        """Stop accepting, and end running exchanges."""
        async with asyncio.TaskGroup() as tasks:
            cutting = tasks.create_task(self._cut_off(runner))
            await runner.cleanup()
            cutting.cancel()

    async def _cut_off(self, runner: web.BaseRunner) -> None:
        """Abort connections after the drain: that cancels their handlers (`handler_cancellation`), which record it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN):
                await self._hurry.wait()
        server = runner.server
        for connection in server.connections if server is not None else ():
            if isinstance(connection.transport, asyncio.Transport):
                connection.transport.abort()

    def _came(self) -> None:
        if not self._stop.is_set():
            self._stop.set()
            return
        self._hurry.set()
        for number in SIGNALS:
            self._loop.remove_signal_handler(number)
