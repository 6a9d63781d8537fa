"""Limits unsolicited messages of an upstream, since reading them takes time from all others."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

MESSAGES: Final = 20_000
SIZE: Final = 64 * 1024 * 1024
WHILE: Final = 300.0
"""Messages and bytes that may come in `WHILE` seconds, and at once again after an answer."""

ASKED: Final = 10.0
"""Messages that a request counts for, as it must be answered."""


class Flood:
    """Leaky-bucket counts of recent messages and bytes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._messages = self._size = self._at = 0.0

    def heard(self, size: int) -> None:
        """Count a message of `size` bytes."""
        now = self._clock()
        past, self._at = (now - self._at) / WHILE, now
        self._messages = max(0.0, self._messages - past * MESSAGES)
        self._size = max(0.0, self._size - past * SIZE) + size

    def over(self, counts: float = 1.0) -> str | None:
        """Count an unsolicited message as `counts` messages; return an error beyond the limits."""
        self._messages += counts
        if self._messages > MESSAGES:
            return "the upstream sent too many unsolicited messages"
        return f"the upstream sent {SIZE} unsolicited bytes" if self._size > SIZE else None

    def ebb(self) -> None:
        """Reset the counts after an answer."""
        self._messages = self._size = 0.0
