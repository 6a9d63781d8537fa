"""Fair scheduling of long work: each gets a time slice in turn, and all of them get a small part of the time.

On an idle event loop, they get all of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from time import perf_counter
from typing import Final, TypeVar

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

T = TypeVar("T")

AT_WORK: Final = 0.002
"""Seconds of work after which the event loop gets its turn; the cost of one thing varies."""


async def by_turns(things: Iterable[T]) -> AsyncIterator[T]:
    """Yield the things, and yield to the event loop whenever their processing took longer than `AT_WORK`."""
    began = perf_counter()
    for thing in things:
        yield thing
        if perf_counter() - began > AT_WORK:
            await asyncio.sleep(0)
            began = perf_counter()


class Pieces(Payload):
    """A payload of all pieces in `_value`, none of which is large."""

    _value: Sequence[bytes]
    _autoclose = True

    def __init__(self, value: Sequence[bytes]) -> None:
        super().__init__(value)
        self._size = sum(map(len, value))

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the text of all pieces."""
        return b"".join(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write all of it."""
        for piece in self._value:
            if piece:
                await writer.write(piece)
                await asyncio.sleep(0)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Write all of it: a response is never sent in part."""
        await self.write(writer)


MOMENT: Final = 0.0005
"""Seconds of one time slice."""

REST: Final = 5.0
"""The pause after a time slice, as a multiple of its length; other tasks have the event loop meanwhile."""

IDLE: Final = 0.0001
"""Seconds that an iteration of the event loop takes if no other task is busy."""

LATELY: Final = 0.05
"""Seconds after which other tasks count as idle again; until then, long reads pause between slices."""

MOST: Final = 0.01
"""Seconds of work that count at most: in longer ones, other tasks ran in between."""


class RoundRobin:
    """The queue of long reads that wait for a time slice."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[], object], float]] = deque()
        self._planned = False
        self._from = 0.0
        self._busy = 0.0
        self._work_seconds = 0.0
        self._going_on = False

    def add(self, go_on: Callable[[], object], work_seconds: float = 0.0) -> None:
        """Queue `go_on`, which worked for so many seconds before; its own time counts in any case."""
        if self._going_on:
            work_seconds = 0.0
        self._waiting.append((go_on, work_seconds))
        self._work_seconds += work_seconds
        if not self._planned:
            self._plan()

    def _plan(self) -> None:
        self._planned, loop = True, asyncio.get_running_loop()
        if loop.time() < self._busy:
            loop.call_at(self._from, self._next)
        else:
            loop.call_soon(self._look)

    def _look(self) -> None:
        self._work_seconds = 0.0
        asyncio.get_running_loop().call_soon(self._check_busy, perf_counter())

    def _check_busy(self, began: float) -> None:
        """The other work of this iteration is done: check how long it took."""
        if perf_counter() - began - self._work_seconds > IDLE:
            self._busy = asyncio.get_running_loop().time() + LATELY
            self._plan()
        else:
            self._next()

    def _next(self) -> None:
        (go_on, work_seconds), began = self._waiting.popleft(), perf_counter()
        self._going_on = True
        try:
            go_on()
        finally:
            self._going_on = False
            self._from = asyncio.get_running_loop().time() + REST * (work_seconds + perf_counter() - began)
            self._planned = False
            if self._waiting:
                self._plan()


class TimeSlices:
    """A task with possibly much work: after each time slice it waits for its turn.

    It has one turn at a time, however many coroutines use it.
    """

    def __init__(self, in_turn: RoundRobin) -> None:
        self._in_turn = in_turn
        self._work_seconds = 0.0
        self._one = asyncio.Lock()

    def count_work(self, seconds: float) -> bool:
        """Count seconds of work; return whether the time slice is used up."""
        self._work_seconds += seconds
        return self._work_seconds > MOMENT

    async def spend(self, seconds: float) -> None:
        """Count seconds of work; wait for a turn if the time slice is used up."""
        if self.count_work(seconds):
            await self.turn()

    async def turn(self) -> None:
        """Wait for a turn."""
        async with self._one:
            gone_on = asyncio.get_running_loop().create_future()
            self._in_turn.add(partial(_set, gone_on), min(self._work_seconds, MOST))
            self._work_seconds = 0.0
            await gone_on


def _set(gone_on: asyncio.Future[None]) -> None:
    if not gone_on.done():
        gone_on.set_result(None)
