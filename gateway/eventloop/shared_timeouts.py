"""Timeouts of one length, nearly all of which are cancelled: they share one timer of the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeAlias

Ring: TypeAlias = Callable[[], object]


class SharedTimeouts:
    """Calls each callback `seconds` after it was set, unless it was cancelled. For use within one event loop."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._waiting: dict[int, tuple[float, Ring]] = {}
        self._last = 0
        self._timer: asyncio.TimerHandle | None = None

    def set(self, ring: Ring) -> int:
        """Register a callback, and return the key for `cancel`."""
        key = self._last = self._last + 1
        self._waiting[key] = (time.monotonic() + self.seconds, ring)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self.seconds, self._look)
        return key

    def cancel(self, key: int) -> None:
        """Cancel one callback."""
        self._waiting.pop(key, None)

    def close(self) -> None:
        """Cancel all callbacks."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """Call those that are due; the oldest are first, since all have the same delay."""
        self._timer = None
        now = time.monotonic()
        due = []
        for key, (at, ring) in self._waiting.items():
            if at > now:
                self._timer = asyncio.get_running_loop().call_later(at - now, self._look)
                break
            due.append((key, ring))
        for key, ring in due:
            if self._waiting.pop(key, None) is not None:  # another one may have cancelled it
                ring()
