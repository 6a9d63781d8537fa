"""Many things, looked at one after the other: all else has its turn in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

EACH: Final = 200
"""Things that are looked at in one go."""


async def by_turns(things: Iterable[T]) -> AsyncIterator[T]:
    """The things; the event loop is let go after each `EACH`."""
    for count, thing in enumerate(things, 1):
        yield thing
        if not count % EACH:
            await asyncio.sleep(0)
