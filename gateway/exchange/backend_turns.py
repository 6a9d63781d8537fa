"""Turns at a backend: a caller with very many requests under way waits for itself, and not others for it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from gateway.backends.connect import CONNECTIONS_PER_HOST
from gateway.bounds import Area, Bound
from gateway.errors import Reason, Refusal

EACH: Final = CONNECTIONS_PER_HOST // 2
"""Requests of one principal that one backend has at a time, of all that it can have."""

BOUNDS: Final = (
    Bound(
        Area.EXCHANGE,
        "requests that a backend has at a time",
        f"{EACH} per principal, {CONNECTIONS_PER_HOST} in all",
        "further ones wait for their turn, as long as their route's `timeout`: 504 then",
    ),
)

Key = tuple[str, str, str]
"""A principal, and a backend of an app."""


class Turns:
    """So many requests of `each` principal at a time; further ones in the order in which they came."""

    def __init__(self, each: int = EACH) -> None:
        self._each = each
        self._running: dict[Key, int] = {}
        self._waiting: dict[Key, deque[asyncio.Future[None]]] = {}

    async def enter(self, key: Key, seconds: float) -> None:
        """Begin a request; whoever did ends it by `leave`.

        Raises `Refusal` (`backend-timeout`) where it does not get its turn within so many `seconds`.
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
            detail = f"{self._each} other requests of this caller to {key[2]!r} took all of its {seconds:g} s."
            raise Refusal(Reason.BACKEND_TIMEOUT, detail) from error
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it had its turn already
                self.leave(key)
            raise

    def leave(self, key: Key) -> None:
        """A request has ended: the next one that waits has its turn."""
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
