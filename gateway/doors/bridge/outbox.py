"""The write queue of a host page: the model's messages go first, all others in order."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from aiohttp import web

UNSENT = 128 * 1024
"""Bytes that the kernel buffers unsent: a model's messages wait behind these."""


class Outbox:
    """The texts for the WebSocket that answers `request`."""

    def __init__(self, wire: web.WebSocketResponse, request: web.Request) -> None:
        self._wire = wire
        self._waiting: deque[str] = deque()
        self._writing = asyncio.Lock()
        self._rest: asyncio.Task[None] | None = None
        _hold_little(request.transport)

    async def put(self, texts: Sequence[str], *, first: bool = False) -> None:
        """Write `texts`, in order or before the queue; return once they are written.
        Without texts it returns at once, so that the caller keeps reading, such as a model's answer.
        """
        if not texts:
            return
        if first:
            for text in texts:
                await self._write(text)
            return
        self._waiting += texts
        try:
            await self._write_all()
        except asyncio.CancelledError:
            # Queued texts must still be written; the task ends with the connection at the latest.
            if self._waiting and (self._rest is None or self._rest.done()):
                self._rest = asyncio.ensure_future(self._write_all())
            raise

    async def _write_all(self) -> None:
        async with self._writing:
            while self._waiting:
                await self._write(self._waiting.popleft())

    async def _write(self, text: str) -> None:
        with suppress(ConnectionError):
            await self._wire.send_str(text)


def _hold_little(transport: asyncio.Transport | None) -> None:
    wire: socket.socket | None = transport.get_extra_info("socket") if transport is not None else None
    option: int | None = getattr(socket, "TCP_NOTSENT_LOWAT", None)
    if wire is not None and option is not None:
        with suppress(OSError):  # not every socket is TCP
            wire.setsockopt(socket.IPPROTO_TCP, option, UNSENT)
