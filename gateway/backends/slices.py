"""Large bodies that are sent piece by piece, without a copy of them and without holding up the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

_PIECE: Final = 256 * 1024


class Slices(Payload):
    """The bytes of `_value`. What aiohttp has for this (`BytesIOPayload`) copies them all at once to count them."""

    _value: bytes
    _autoclose = True

    def __init__(self, value: bytes) -> None:
        super().__init__(value)
        self._size = len(value)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """As a text."""
        return self._value.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send all of it."""
        await self.write_with_length(writer, None)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Send it, or as many bytes from its beginning."""
        whole = memoryview(self._value)[:content_length]
        for start in range(0, len(whole), _PIECE):
            await writer.write(whole[start : start + _PIECE])
            await asyncio.sleep(0)


class Pieces(Payload):
    """The bytes of all of `_value`, none of which is large."""

    _value: Sequence[bytes]
    _autoclose = True

    def __init__(self, value: Sequence[bytes]) -> None:
        super().__init__(value)
        self._size = sum(map(len, value))

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """As a text."""
        return b"".join(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send all of it."""
        for piece in self._value:
            if piece:
                await writer.write(piece)
                await asyncio.sleep(0)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """The same: an answer is never sent in part."""
        await self.write(writer)
