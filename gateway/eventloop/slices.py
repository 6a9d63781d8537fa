"""Long work in slices, with a turn of the event loop for everything else in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
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
