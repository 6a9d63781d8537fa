"""Many things, looked at one after the other: all else has its turn in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from time import perf_counter
from typing import Final, TypeVar

T = TypeVar("T")

AT_WORK: Final = 0.002
"""Seconds after which all else has its turn: one thing may take as long as many others."""


async def by_turns(things: Iterable[T]) -> AsyncIterator[T]:
    """The things; the event loop is let go whenever those since the last time took more than a moment."""
    began = perf_counter()
    for thing in things:
        yield thing
        if perf_counter() - began > AT_WORK:
            await asyncio.sleep(0)
            began = perf_counter()
