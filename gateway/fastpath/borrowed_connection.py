"""A connection that aiohttp borrows: its unanswered requests, and whether it may be taken back."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Final

from aiohttp import web

from gateway.bounds import Area, Bound, size
from gateway.doors.client_limits import peer_of
from gateway.doors.event_ids import escaped
from gateway.fastpath.request_head import is_one, is_whole

HEAD_BYTES: Final = 64 * 1024
"""Bytes of the longest head, buffered for any client before it is identified."""

BOUNDS: Final = (
    Bound(
        Area.DOORS,
        "request heads",
        size(HEAD_BYTES),
        "431",
    ),
)

(_HEAD,) = BOUNDS

HEAD_END: Final = b"\r\n\r\n"
"""The end of a head."""

_FIRST_LINE: Final = re.compile(rb"[\r\n]*[A-Z-]{0,24}(?: |\Z)")
_TOO_LONG: Final = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Lent:
    """The connection `transport` while `behind` reads it; `head_since` is when a still incomplete head began."""

    def __init__(self, transport: asyncio.Transport, behind: web.RequestHandler) -> None:
        self.behind = behind
        self.head_since: float | None = None
        self._transport = transport
        self._owed: int | None = 0
        self._between = True  # all data so far are whole requests: the next byte begins one
        self._reads = False
        self._head_size = 0
        self._head_end = b""
        behind.connection_made(transport)

    @property
    def done(self) -> bool:
        """Whether every request was plainly complete and is answered, so that the connection may be taken back."""
        return self._owed == 0

    def give(self, data: bytes) -> None:
        """Pass `data` to aiohttp; after data that is not plainly one complete request, aiohttp keeps the connection."""
        if self._between:
            data = escaped(data)
            self._between = is_one(data)
        whole = (self._owed is not None or self.head_since is None) and is_whole(data)
        if self._owed is not None:
            self._owed = self._owed + 1 if whole else None
        if not whole and not self._reads and self.head_since is None:
            self.head_since = time.monotonic()
            # Data of a request whose head came before the last answer was complete is its body.
            self._head_size, self._head_end = 0, b"" if _FIRST_LINE.match(data) else HEAD_END
        if self.head_since is not None and self._is_too_long(data):
            _HEAD.exceeded(client=peer_of(self._transport))
            self._transport.write(_TOO_LONG)
            self._transport.close()
            return
        self.behind.data_received(data)

    def begins(self) -> None:
        """Note that aiohttp has read the head of a request."""
        self._reads, self.head_since = True, None
        self._head_size, self._head_end = 0, b""

    def answered(self) -> None:
        """Note that aiohttp has written one answer, after which the connection stays open."""
        self._reads = False
        if self._owed:
            self._owed -= 1

    def take_back(self) -> None:
        """Detach aiohttp from the connection, without closing it."""
        self.behind.transport = None
        self.behind.connection_lost(None)

    def _is_too_long(self, data: bytes) -> bool:
        """Whether the head that aiohttp reads exceeds the limit with `data`, and has not ended."""
        if self._head_end == HEAD_END:
            return False
        self._head_size += len(data)
        seen = self._head_end + data
        self._head_end = HEAD_END if HEAD_END in seen else seen[-3:]
        return self._head_end != HEAD_END and self._head_size > HEAD_BYTES
