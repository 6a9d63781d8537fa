"""Throttles: limits on how often something is written, with one line for what was suppressed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from gateway.bounds import Area, Bound

K = TypeVar("K", bound=Hashable)

PERIOD: Final = 60.0
"""Seconds of a window."""

LINES: Final = 10
"""Log lines of one kind per window."""

BOUNDS: Final = (
    Bound(
        Area.RECORD,
        "log lines about refused callers, exceeded bounds and unrecorded refusals",
        f"{LINES} of one kind in {PERIOD:g} s",
        "one line states the number of suppressed ones",
        uncounted="the summary line states the number",
    ),
)


@dataclass(slots=True)
class _Window:
    """A window of one key; `more` counts the suppressed occurrences."""

    ends: float
    count: int = 0
    more: int = 0
    timer: asyncio.TimerHandle | None = None


class Throttle(Generic[K]):
    """Passes the first `count` occurrences of each key per period; `sum_up` gets the number of the rest.

    It is called once per window with a rest: at its end while an event loop runs, else at the next occurrence or at
    `flush`. Keys are never evicted, so they must be names of this program, not chosen by callers.
    """

    def __init__(
        self,
        count: int,
        sum_up: Callable[[K, int], None],
        *,
        period: float = PERIOD,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._count = count
        self._sum_up = sum_up
        self._period = period
        self._clock = clock
        self._windows: dict[K, _Window] = {}

    def take(self, key: K) -> bool:
        """Count one occurrence; return False if it is beyond the limit, and only summed up."""
        now = self._clock()
        window = self._windows.get(key)
        if window is None or now >= window.ends:
            self._end(key)
            window = self._windows[key] = _Window(now + self._period)
        if window.count < self._count:
            window.count += 1
            return True
        window.more += 1
        if window.timer is None:
            window.timer = self._alarm(key, window.ends - now)
        return False

    def flush(self) -> None:
        """Sum up all suppressed occurrences now, at shutdown."""
        for key in tuple(self._windows):
            self._end(key)

    def _alarm(self, key: K, seconds: float) -> asyncio.TimerHandle | None:
        try:
            return asyncio.get_running_loop().call_later(seconds, self._end, key)
        except RuntimeError:  # no event loop in this thread
            return None

    def _end(self, key: K) -> None:
        window = self._windows.pop(key, None)
        if window is None:
            return
        if window.timer is not None:
            window.timer.cancel()
        if window.more:
            self._sum_up(key, window.more)


class ThrottledLog:
    """Writes the first `count` lines of each kind per period to `log`, then one line with the number of the rest."""

    def __init__(
        self,
        log: logging.Logger,
        *,
        count: int = LINES,
        period: float = PERIOD,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._period = period
        self._throttle = Throttle[tuple[int, str]](count, self._sum_up, period=period, clock=clock)

    def write(self, level: int, kind: str, message: str, *args: object) -> None:
        """Write a line at `level`. `kind` ends the summary "12 more in the last 60 s: "."""
        if self._log.isEnabledFor(level) and self._throttle.take((level, kind)):
            self._log.log(level, message, *args)

    def flush(self) -> None:
        """Write the pending summaries now, at shutdown."""
        self._throttle.flush()

    def _sum_up(self, key: tuple[int, str], more: int) -> None:
        level, kind = key
        self._log.log(level, "%d more in the last %.0f s: %s", more, self._period, kind)
