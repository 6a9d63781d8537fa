"""How much an upstream may say that nobody asked for: to read it takes time from all others."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

MESSAGES: Final = 20_000
SIZE: Final = 64 * 1024 * 1024
WHILE: Final = 300.0
"""So many messages, and bytes, may come in so many seconds, and again at once after an answer."""

ASKED: Final = 10.0
"""Messages that a request counts for: it is answered."""


class Flood:
    """What came of it lately."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._messages = self._size = self._at = 0.0

    def heard(self, size: int) -> None:
        """A message of so many bytes came."""
        now = self._clock()
        past, self._at = (now - self._at) / WHILE, now
        self._messages = max(0.0, self._messages - past * MESSAGES)
        self._size = max(0.0, self._size - past * SIZE) + size

    def over(self, counts: float = 1.0) -> str | None:
        """Nobody asked for it, which `counts` for so many messages: what is wrong, where it was too much."""
        self._messages += counts
        if self._messages > MESSAGES:
            return "the upstream sent too many messages that nobody asked for"
        return f"the upstream sent {SIZE} bytes that nobody asked for" if self._size > SIZE else None

    def ebb(self) -> None:
        """It answered: all may come again."""
        self._messages = self._size = 0.0
