"""Alarms of one length, of which nearly all are cancelled: one timer of the event loop serves all that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

Ring: TypeAlias = Callable[[], object]


class Alarms:
    """Each rings `seconds` after it was set, unless it was cancelled. To be used within one event loop."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._waiting: dict[object, tuple[float, Ring]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def set(self, ring: Ring) -> object:
        """What `cancel` takes."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        key, at = object(), loop.time() + self.seconds
        self._waiting[key] = (at, ring)
        if self._timer is None:
            self._timer = loop.call_at(at, self._look, loop)
        return key

    def cancel(self, key: object) -> None:
        """This one does not ring any more."""
        self._waiting.pop(key, None)

    def close(self) -> None:
        """None rings any more."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """The oldest stand first, since all wait equally long."""
        self._timer = None
        now = loop.time()
        due = []
        for key, (at, ring) in self._waiting.items():
            if at > now:
                self._timer = loop.call_at(at, self._look, loop)
                break
            due.append((key, ring))
        for key, ring in due:
            if self._waiting.pop(key, None) is not None:  # another one may have cancelled it
                ring()
