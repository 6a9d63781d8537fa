"""Iteration over many things that regularly yields to the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from time import perf_counter
from typing import Final, TypeVar

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
