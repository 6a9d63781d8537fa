"""The lease of a node: until when it may act, judged on its own steady clock before each action."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

RENEW_EVERY: Final = 2.0
"""Seconds between two renewals."""

STOP_AFTER: Final = 7.0
"""Seconds after the beginning of its last renewal from which a node does nothing with what it owns."""

ADOPT_AFTER: Final = 10.0
"""Seconds after a renewal, on the database's clock, from which other nodes take over what the node owned.

The three seconds between are more than the difference of two clocks can grow in ten.
"""


LEFT_FOR: Final = RENEW_EVERY + 0.5
"""Seconds for which a node that has left tells others so: by then each of them has read it in the database."""


def steady() -> float:
    """Return the seconds of a clock that nobody sets, and that goes on while the system sleeps, where it has one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Lease:
    """A lease that each renewal extends. `clock` is steady, in seconds."""

    def __init__(self, clock: Callable[[], float] = steady) -> None:
        self._clock = clock
        self._until = float("-inf")
        self._renewed = clock()

    def renewed(self, began: float) -> None:
        """Note a renewal that was requested at `began`: the database has seen it at that time or later."""
        self._renewed = max(self._renewed, began)
        self._until = max(self._until, began + STOP_AFTER)

    def end(self) -> None:
        """End it now."""
        self._until = float("-inf")

    @property
    def holds(self) -> bool:
        """True as long as no other node may have taken over."""
        return self._clock() < self._until

    @property
    def age(self) -> float:
        """The seconds since the last renewal was requested, or since the start."""
        return self._clock() - self._renewed

    @property
    def left(self) -> float:
        """The seconds until it ends, 0 if it has ended."""
        return max(0.0, self._until - self._clock())
