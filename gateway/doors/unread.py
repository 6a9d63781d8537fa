"""Large answers that wait for their clients: so many bytes of each person, so many in all."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from gateway.bounds import Area, Bound, size
from gateway.doors.bridge.uploads import ROOM, ROOM_EACH

LARGE: Final = 64 * 1024
"""Bytes of an answer that counts: about as much of each one is the connection's own."""

BOUNDS: Final = (
    Bound(
        Area.DOORS,
        "bytes of answers that wait for their clients",
        f"`mcp.bodies_each` ({size(ROOM_EACH)}) per person, `mcp.bodies` ({size(ROOM)}) in all",
        "the connection is closed whose answer waits longest, of that person, or of whoever has most",
    ),
)

(_ANSWERS,) = BOUNDS


class Unread:
    """Answers that wait for their client, by connection; unauthenticated callers count by address."""

    def __init__(self, each: int = ROOM_EACH, in_all: int = ROOM) -> None:
        self._each = each
        self._in_all = in_all
        self._waiting: dict[asyncio.Transport, tuple[str, int]] = {}
        self._of = Counter[str]()

    @property
    def used(self) -> int:
        """Bytes that wait now."""
        return self._of.total()

    def hold(self, connection: asyncio.Transport, owner: str, count: int) -> None:
        """So many bytes of `owner` begin to wait there, which others may have to leave for."""
        self.release(connection)
        if count <= LARGE:
            return
        self._waiting[connection] = (owner, count)
        self._of[owner] += count
        while (greedy := self._greedy(owner)) is not None:
            first = next(one for one, (whose, _) in self._waiting.items() if whose == greedy)
            if first is connection:
                return  # an answer alone may be as large as its route says
            _ANSWERS.exceeded(greedy)
            self.release(first)
            first.abort()

    def release(self, connection: asyncio.Transport) -> None:
        """Nothing waits there any more."""
        owner, count = self._waiting.pop(connection, ("", 0))
        self._of[owner] -= count
        if not self._of[owner]:
            del self._of[owner]

    def _greedy(self, owner: str) -> str | None:
        """Whose answers are too many, where `owner` has a new one."""
        if self._of[owner] > self._each:
            return owner
        return self._of.most_common(1)[0][0] if self.used > self._in_all else None
