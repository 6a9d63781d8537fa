"""Who has much to read goes on one after the other, each for a moment, and all of them for a small part of the time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Final

MOMENT: Final = 0.0005
"""Seconds that one may be at work in one turn of the event loop."""

REST: Final = 5.0
"""So many times as long as one was at work the next one waits: all else has the event loop to itself meanwhile."""


MOST: Final = 0.01
"""Seconds of work that count at most: of longer ones, others were at work in between."""


class InTurn:
    """Those that wait to go on."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[], object], float]] = deque()
        self._planned = False
        self._from = 0.0

    def add(self, go_on: Callable[[], object], worked: float = 0.0) -> None:
        """One more, which was at work for so many seconds; what it does in `go_on` counts, too."""
        self._waiting.append((go_on, worked))
        if not self._planned:
            self._plan()

    def _plan(self) -> None:
        self._planned = True
        asyncio.get_running_loop().call_at(self._from, self._next)

    def _next(self) -> None:
        (go_on, worked), began = self._waiting.popleft(), perf_counter()
        try:
            go_on()
        finally:
            self._from = asyncio.get_running_loop().time() + REST * (worked + perf_counter() - began)
            self._planned = False
            if self._waiting:
                self._plan()


class Moments:
    """One who may have much to do: after each moment of work it waits for its turn."""

    def __init__(self, in_turn: InTurn) -> None:
        self._in_turn = in_turn
        self._worked = 0.0

    def worked(self, seconds: float) -> bool:
        """It was at work for so long: whether it waits for its `turn` now."""
        self._worked += seconds
        return self._worked > MOMENT

    async def turn(self) -> None:
        """Wait for it."""
        gone_on = asyncio.get_running_loop().create_future()
        self._in_turn.add(partial(_set, gone_on), min(self._worked, MOST))
        self._worked = 0.0
        await gone_on


def _set(gone_on: asyncio.Future[None]) -> None:
    if not gone_on.done():
        gone_on.set_result(None)
