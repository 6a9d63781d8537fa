"""A response that is read while it arrives."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from gateway.backends.connection_pool import Wires
from gateway.backends.http1 import ResponseHead, ResponseReader

AHEAD: Final = 256 * 1024
"""Bytes of a body that may be buffered; beyond that the connection is not read (backpressure)."""


class Incoming:
    """The response to one request with `method`: its head, then its body in pieces."""

    def __init__(self, method: str, limit: int) -> None:
        self.reading = ResponseReader(method, limit, self._taker)
        self._changed = asyncio.Event()
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._ended: asyncio.Task[None] | None = None

    async def head(self) -> ResponseHead:
        """Return the head. Raises `Lost`, `Malformed` and `Refusal`."""
        while not self.reading.in_body and self._ended is None:
            await self._change()
        self._check()
        return self.reading.head

    @property
    def until_close(self) -> bool:
        """Whether only the connection's end marks the end of the body (RFC 9112 6.3)."""
        return not self.reading.head.chunked and self.reading.head.length is None

    async def next(self) -> bytes:
        """Return the buffered bytes of the body, still coded; empty at its end. Raises `Malformed`."""
        while not self._pieces and self._ended is None:
            await self._change()
        if not self._pieces:
            self._check()
        came = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        if isinstance(self.reading.until, asyncio.Future) and not self.reading.until.done():
            self.reading.until.set_result(None)
        return came

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body."""
        self._pieces.append(data)
        self._size += len(data)
        if self._size > AHEAD:
            self.reading.held, self.reading.until = True, asyncio.get_running_loop().create_future()
        self._changed.set()

    def close(self) -> bytes:
        """Return nothing: the body is not stored."""
        return b""

    def end(self, task: asyncio.Task[None]) -> None:
        """The exchange has ended, with success or an error."""
        self._ended = task
        self._changed.set()

    def _taker(self, _: ResponseReader, __: str) -> Incoming:
        self._changed.set()
        return self

    def _check(self) -> None:
        if self._ended is not None:
            self._ended.result()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


@asynccontextmanager
async def arriving(wires: Wires, method: str, data: bytes, limit: int, body: bytes = b"") -> AsyncIterator[Incoming]:
    """Yield the response to the request with the head `data`; the rest of it is discarded at the end of the block."""
    incoming = Incoming(method, limit)
    task = asyncio.create_task(wires.carry(data, incoming.reading, body))
    task.add_done_callback(incoming.end)
    try:
        yield incoming
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
