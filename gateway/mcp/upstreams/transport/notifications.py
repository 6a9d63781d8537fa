"""Notifications of an upstream: queued per call for a client that reads slowly, and limited if unsolicited."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from gateway.bounds import Area, Bound, size

MESSAGES: Final = 20_000
SIZE: Final = 64 * 1024 * 1024
WHILE: Final = 300.0
"""Messages and bytes that may come in `WHILE` seconds, and at once again after an answer."""

ASKED: Final = 10.0
"""Messages that a request counts for, as it must be answered."""


class Flood:
    """Leaky-bucket counts of recent messages and bytes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._messages = self._size = self._at = 0.0

    def count_message(self, size: int) -> None:
        """Count a message of `size` bytes."""
        now = self._clock()
        past, self._at = (now - self._at) / WHILE, now
        self._messages = max(0.0, self._messages - past * MESSAGES)
        self._size = max(0.0, self._size - past * SIZE) + size

    def over(self, counts: float = 1.0) -> str | None:
        """Count an unsolicited message as `counts` messages; return an error beyond the limits."""
        self._messages += counts
        if self._messages > MESSAGES:
            return "the upstream sent too many unsolicited messages"
        return f"the upstream sent {SIZE} unsolicited bytes" if self._size > SIZE else None

    def ebb(self) -> None:
        """Reset the counts after an answer."""
        self._messages = self._size = 0.0


log = logging.getLogger(__name__)

MOST = 8 * 1024 * 1024
"""Bytes that wait for the client; beyond, notifications are dropped, so that the upstream is never held up."""

BESIDE = 512
"""Bytes that a notification counts for, beside its own."""

BOUNDS: Final = (
    Bound(
        Area.UPSTREAMS,
        "queued notifications of a call",
        size(MOST),
        "further ones are dropped",
    ),
)

(_NEWS,) = BOUNDS

DRAIN = 5.0
"""Seconds that an answer or a question waits for the client to accept the next queued notification."""

CHANGES = ("/list_changed", "/updated")
"""Suffixes of notifications for all followers of a change, whichever stream carries them."""

LARGEST_CHANGE = 64 * 1024
"""Bytes of the largest of these that is passed on unchanged; of larger ones only the `uri` is. Larger notifications of
other kinds reach only the client of their call."""

Tell = Callable[[str, dict[str, Any]], Awaitable[None]]


class CallNotifier:
    """Sends the client of one call its notifications by `tell`, in a task of `tasks`."""

    def __init__(self, tasks: asyncio.TaskGroup, tell: Tell) -> None:
        self._news: asyncio.Queue[tuple[str, dict[str, Any], int] | asyncio.Future[None]] = asyncio.Queue()
        self._size = self._bytes = 0
        self._task = tasks.create_task(self._run(tell))

    def add(self, method: str, params: dict[str, Any], count: int) -> None:
        """Add a notification; must not block."""
        if self._size >= MOST:
            _NEWS.report()
            return
        self._size += count + BESIDE
        self._news.put_nowait((method, params, count + BESIDE))

    async def drain(self) -> None:
        """Wait until the client has every notification added before, unless it does not read."""
        end, before = asyncio.get_running_loop().create_future(), -1
        self._news.put_nowait(end)
        while not end.done() and not self._task.done() and self._bytes > before:
            before = self._bytes
            await asyncio.wait({end, self._task}, timeout=DRAIN, return_when=asyncio.FIRST_COMPLETED)

    def close(self) -> None:
        """Stop sending."""
        self._task.cancel()

    async def _run(self, tell: Tell) -> None:
        while True:
            notification = await self._news.get()
            self._bytes += 1
            if isinstance(notification, asyncio.Future):
                notification.set_result(None)
                continue
            method, params, count = notification
            self._size -= count
            try:
                await tell(method, params)
            except Exception:  # a client may fail in any way; its call continues
                log.debug("a notification did not reach its client", exc_info=True)
