"""What an upstream tells on account of one call, on its way to a client that may read more slowly."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

log = logging.getLogger(__name__)

MOST = 8 * 1024 * 1024
"""Bytes that wait for the client; what comes then is lost, never the upstream's time."""

BESIDE = 512
"""Bytes that a notification counts for, beside its own."""

DRAIN = 5.0
"""Seconds that an answer or a question waits for the client to take one more of the notifications before it."""

CHANGES = ("/list_changed", "/updated")
"""How notifications end that concern all who follow what changed, whichever stream they come on."""

LARGEST_CHANGE = 64 * 1024
"""Bytes of the largest of those that they are told as it came; of others they hear what changed."""

Tell = Callable[[str, dict[str, Any]], Awaitable[None]]


class Telling:
    """Tells the client of one call, by `tell`, in a task of `tasks`."""

    def __init__(self, tasks: asyncio.TaskGroup, tell: Tell) -> None:
        self._news: asyncio.Queue[tuple[str, dict[str, Any], int] | asyncio.Future[None]] = asyncio.Queue()
        self._size = self._taken = 0
        self._task = tasks.create_task(self._run(tell))

    def add(self, method: str, params: dict[str, Any], size: int) -> None:
        """One more; must not block."""
        if self._size < MOST:
            self._size += size + BESIDE
            self._news.put_nowait((method, params, size + BESIDE))

    async def drained(self) -> None:
        """Until the client has all that was added before, unless it does not read."""
        end, before = asyncio.get_running_loop().create_future(), -1
        self._news.put_nowait(end)
        while not end.done() and not self._task.done() and self._taken > before:
            before = self._taken
            await asyncio.wait({end, self._task}, timeout=DRAIN, return_when=asyncio.FIRST_COMPLETED)

    def close(self) -> None:
        """Nobody is told any more."""
        self._task.cancel()

    async def _run(self, tell: Tell) -> None:
        while True:
            told = await self._news.get()
            self._taken += 1
            if isinstance(told, asyncio.Future):
                told.set_result(None)
                continue
            method, params, size = told
            self._size -= size
            try:
                await tell(method, params)
            except Exception:  # a client may be gone in any way; its call goes on
                log.debug("a notification did not reach its client", exc_info=True)
