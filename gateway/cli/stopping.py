"""How a running server ends: what runs may finish for a while, or until somebody is in a hurry; then it is cut off."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress

from aiohttp import web

DRAIN = 10.0
"""Seconds that running exchanges have after the first signal."""

CLEAN = 10.0
"""Seconds that those have which were cut off, to put into the record what became of them."""

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """The first one asks for the end, the second one says that it is urgent; further ones have their usual effect."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._stop, self._hurry = asyncio.Event(), asyncio.Event()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._came)

    async def wait(self) -> None:
        """Until the first one."""
        await self._stop.wait()

    async def end(self, runner: web.BaseRunner) -> None:
        """Accept nothing more, and end what runs."""
        async with asyncio.TaskGroup() as tasks:
            cutting = tasks.create_task(self._cut_off(runner))
            await runner.cleanup()
            cutting.cancel()

    async def _cut_off(self, runner: web.BaseRunner) -> None:
        """A connection that is gone cancels its handler (`handler_cancellation`), which records that and ends."""
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
