"""Sends a large body in pieces, without copying it or blocking the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload


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
