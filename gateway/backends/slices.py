"""A large body that is sent piece by piece, without a copy of it and without holding up the event loop."""

from __future__ import annotations

import asyncio
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
