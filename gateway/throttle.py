"""Token buckets by key in bounded memory, and throttles: limits on how often something is written."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from gateway.bounds import Area, Bound

K = TypeVar("K", bound=Hashable)

EACH: Final = 4096
"""Buckets per owner that are not full; further ones share one bucket."""

IN_ALL: Final = 1_000_000
"""Buckets of all owners that are not full."""

LOOKS: Final = 2
"""Buckets examined for eviction per new one: more than one, so that full ones go faster than new ones come."""


class Buckets(Generic[K]):
    """The theoretical arrival times (`tat`) of token buckets (GCRA), as `gateway.policy.take` reads and returns them.

    A bucket is evicted only when it is full again and equals a new one, so that eviction gives no second burst. Each
    new bucket examines the two that were examined longest ago: eviction costs the same for any number of buckets.
    `each` limits the buckets of an owner, `most` those of all; a new bucket beyond that is the `shared` one, until that
    is full again: its callers get less, and take nothing from others.
    """

    def __init__(self, each: int = EACH, most: int = IN_ALL) -> None:
        self._each = each
        self._most = most
        self.tats: dict[K, float] = {}
        """The arrival time of each bucket; an existing one may be set directly."""
        self._owned: dict[str, int] = {}
        self._turn: deque[tuple[K, str | None]] = deque()
        self.looked = 0
        """Number of buckets examined for eviction so far."""

    def __len__(self) -> int:
        """Return the number of buckets."""
        return len(self.tats)

    def place(self, key: K, owner: str, shared: K, now: float) -> K:
        """Return the key for a new bucket: `key` itself, or `shared` if its owner has too many."""
        if self._full(owner):
            self._forget(now)
            if self._full(owner):
                return shared
        return shared if self.tats.get(shared, 0.0) > now else key

    def put(self, key: K, tat: float, now: float, owner: str | None = None) -> None:
        """Store the time of a bucket, and evict full ones.

        A bucket without an owner counts only in the total: such keys are few.
        """
        if key not in self.tats:
            self._forget(now)
            self._turn.append((key, owner))
            if owner is not None:
                self._owned[owner] = self._owned.get(owner, 0) + 1
        self.tats[key] = tat

    def give_back(self, key: K, interval: float) -> None:
        """Return one unused cell to a bucket."""
        if key in self.tats:
            self.tats[key] -= interval

    def _full(self, owner: str) -> bool:
        return self._owned.get(owner, 0) >= self._each or len(self.tats) >= self._most

    def _forget(self, now: float) -> None:
        for _ in range(min(LOOKS, len(self._turn))):
            self.looked += 1
            key, owner = self._turn.popleft()
            if self.tats[key] > now:
                self._turn.append((key, owner))
                continue
            del self.tats[key]
            if owner is not None:
                self._owned[owner] -= 1
                if not self._owned[owner]:
                    del self._owned[owner]


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
    passed: int = 0
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
        if window.passed < self._count:
            window.passed += 1
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
