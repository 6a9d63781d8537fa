"""Who has much to read goes on one after the other, each for a moment, and all of them for a small part of the time.

Where nothing else is at work, they have all of it.
"""

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

IDLE: Final = 0.0001
"""Seconds that a turn of the event loop takes in which nothing else is at work."""

LATELY: Final = 0.05
"""Seconds after which all else counts as idle again; until then it has the event loop to itself while they rest."""

MOST: Final = 0.01
"""Seconds of work that count at most: of longer ones, others were at work in between."""


class InTurn:
    """Those that wait to go on."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[], object], float]] = deque()
        self._planned = False
        self._from = 0.0
        self._busy = 0.0
        self._worked = 0.0
        self._going_on = False

    def add(self, go_on: Callable[[], object], worked: float = 0.0) -> None:
        """One more, which was at work for so many seconds; what it does in `go_on` counts in any case."""
        if self._going_on:
            worked = 0.0
        self._waiting.append((go_on, worked))
        self._worked += worked
        if not self._planned:
            self._plan()

    def _plan(self) -> None:
        self._planned, loop = True, asyncio.get_running_loop()
        if loop.time() < self._busy:
            loop.call_at(self._from, self._next)
        else:
            loop.call_soon(self._look)

    def _look(self) -> None:
        self._worked = 0.0
        asyncio.get_running_loop().call_soon(self._looked, perf_counter())

    def _looked(self, began: float) -> None:
        """What else there was to do in a turn is done now."""
        if perf_counter() - began - self._worked > IDLE:
            self._busy = asyncio.get_running_loop().time() + LATELY
            self._plan()
        else:
            self._next()

    def _next(self) -> None:
        (go_on, worked), began = self._waiting.popleft(), perf_counter()
        self._going_on = True
        try:
            go_on()
        finally:
            self._going_on = False
            self._from = asyncio.get_running_loop().time() + REST * (worked + perf_counter() - began)
            self._planned = False
            if self._waiting:
                self._plan()


class Moments:
    """One who may have much to do: after each moment of work it waits for its turn.

    It has one turn at a time, however much it does at once.
    """

    def __init__(self, in_turn: InTurn) -> None:
        self._in_turn = in_turn
        self._worked = 0.0
        self._one = asyncio.Lock()

    def worked(self, seconds: float) -> bool:
        """It was at work for so long: whether it waits for its `turn` now."""
        self._worked += seconds
        return self._worked > MOMENT

    async def done(self, seconds: float) -> None:
        """It was at work for so long: wait for its turn, where that was more than a moment."""
        if self.worked(seconds):
            await self.turn()

    async def turn(self) -> None:
        """Wait for it."""
        async with self._one:
            gone_on = asyncio.get_running_loop().create_future()
            self._in_turn.add(partial(_set, gone_on), min(self._worked, MOST))
            self._worked = 0.0
            await gone_on


def _set(gone_on: asyncio.Future[None]) -> None:
    if not gone_on.done():
        gone_on.set_result(None)
