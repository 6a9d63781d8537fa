"""Subscribers to new lines of the journal, each with a separate bounded buffer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from gateway.stores.lines import Line


class Follower:
    """An async iterator over lines as they are written; leaving its context ends it.

    It ends when the journal closes, or when `limit` lines are unread: then `lost` is True, and the buffered lines are
    returned before the end.
    """

    def __init__(self, limit: int, leave: Callable[[Follower], None]) -> None:
        self.lost = False
        self._limit = limit
        self._leave = leave
        self._lines: deque[Line] = deque()
        self._ended = False
        self._wake = asyncio.Event()

    def offer(self, line: Line) -> None:
        """Buffer a line, or end as lost if the buffer is full."""
        if len(self._lines) < self._limit:
            self._lines.append(line)
            self._wake.set()
        else:
            self.lost = True
            self.end()

    def end(self) -> None:
        """Return only the lines that are buffered already, then end."""
        self._ended = True
        self._wake.set()
        self._leave(self)

    def waiting(self) -> tuple[Line, ...]:
        """Take all buffered lines."""
        lines = tuple(self._lines)
        self._lines.clear()
        return lines

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Line:
        while not self._lines and not self._ended:
            self._wake.clear()
            await self._wake.wait()
        if not self._lines:
            raise StopAsyncIteration
        return self._lines.popleft()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lines.clear()
        self.end()
