"""Who has much to read goes on one after the other, one in each turn of the event loop, however many they are."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class InTurn:
    """Those that wait to go on."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def add(self, go_on: Callable[[], None]) -> None:
        """One more."""
        self._waiting.append(go_on)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        go_on = self._waiting.popleft()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
        go_on()
