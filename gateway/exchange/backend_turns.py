"""Limits the concurrent requests of each principal to a backend, so that one caller cannot occupy it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from gateway.backends.connect import CONNECTIONS_PER_HOST
from gateway.bounds import Area, Bound
from gateway.errors import Reason, Refusal

EACH: Final = CONNECTIONS_PER_HOST // 2
"""Concurrent requests of one principal to one backend, out of all its connections."""

BOUNDS: Final = (
    Bound(
        Area.EXCHANGE,
        "concurrent requests to a backend",
        f"{EACH} per principal, {CONNECTIONS_PER_HOST} in all",
        "further requests are queued up to their route's `timeout`, then 504",
    ),
)

(_TURNS,) = BOUNDS

Key = tuple[str, str, str]
"""The principal, and the app and name of a backend."""


class Turns:
    """Allows `each` requests per principal at a time; further ones wait in FIFO order."""

    def __init__(self, each: int = EACH) -> None:
        self._each = each
        self._running: dict[Key, int] = {}
        self._waiting: dict[Key, deque[asyncio.Future[None]]] = {}

    async def enter(self, key: Key, seconds: float) -> None:
        """Begin a request; the caller ends it with `leave`.

        Raises `Refusal` (`backend-timeout`) if no place becomes free within `seconds`.
        """
        running = self._running.get(key, 0)
        if running < self._each:
            self._running[key] = running + 1
        else:
            await self._wait(key, seconds)

    async def _wait(self, key: Key, seconds: float) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(turn)
        try:
            async with asyncio.timeout(seconds):
                await turn
        except TimeoutError as error:
            _TURNS.exceeded(key[0])
            detail = f"{self._each} other requests of this caller to {key[2]!r} took all of its {seconds:g} s."
            raise Refusal(Reason.BACKEND_TIMEOUT, detail) from error
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it had its turn already
                self.leave(key)
            raise

    def leave(self, key: Key) -> None:
        """End a request and let the next waiting one begin."""
        waiting = self._waiting.get(key)
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._waiting.pop(key, None)
        self._running[key] -= 1
        if not self._running[key]:
            del self._running[key]
