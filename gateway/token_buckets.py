"""Token buckets by the generic cell rate algorithm (GCRA): one number per bucket, many in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)

EACH: Final = 4096
"""Buckets per owner that are not full; further ones share one bucket."""

IN_ALL: Final = 1_000_000
"""Buckets of all owners that are not full."""

LOOKS: Final = 2
"""Buckets examined for eviction per new one: more than one, so that full ones go faster than new ones come."""


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `count` in `period` seconds."""

    count: int
    period: float


class TakeResult(NamedTuple):
    """The result of taking one cell; `retry_after` is in seconds, 0 if it was allowed.

    `tat` is the theoretical arrival time to store for the bucket: unchanged if nothing was taken.
    """

    allowed: bool
    tat: float
    retry_after: float = 0.0


def take(tat: float, now: float, rate: Rate) -> TakeResult:
    """Take one cell of a bucket at `now`; a new bucket has the `tat` 0.

    `now` is of a monotonic clock: seconds since the epoch leave too few digits for thousands per second. A tolerance of
    a hundredth of an interval keeps rounding out of the decision.
    """
    interval = rate.period / rate.count
    arrival = (tat if tat > now else now) + interval
    early = arrival - rate.period - now
    if early > interval / 100:
        return TakeResult(False, tat, early)
    return TakeResult(True, arrival)


class Buckets(Generic[K]):
    """The theoretical arrival times (`tat`) of token buckets (GCRA), as `take` reads and returns them.

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
        self._by_owner: dict[str, int] = {}
        self._turn: deque[tuple[K, str | None]] = deque()
        self.probes = 0
        """Number of buckets examined for eviction so far."""

    def __len__(self) -> int:
        """Return the number of buckets."""
        return len(self.tats)

    def place(self, key: K, owner: str, fallback: K, now: float) -> K:
        """Return the key for a new bucket: `key` itself, or `fallback` if its owner has too many."""
        if self._full(owner):
            self._forget(now)
            if self._full(owner):
                return fallback
        return fallback if self.tats.get(fallback, 0.0) > now else key

    def put(self, key: K, tat: float, now: float, owner: str | None = None) -> None:
        """Store the time of a bucket, and evict full ones.

        A bucket without an owner counts only in the total: such keys are few.
        """
        if key not in self.tats:
            self._forget(now)
            self._turn.append((key, owner))
            if owner is not None:
                self._by_owner[owner] = self._by_owner.get(owner, 0) + 1
        self.tats[key] = tat

    def take(self, key: K, now: float, rate: Rate) -> TakeResult:
        """Take one cell of the bucket `key`."""
        result = take(self.tats.get(key, 0.0), now, rate)
        self.put(key, result.tat, now)
        return result

    def give_back(self, key: K, interval: float) -> None:
        """Return one unused cell to a bucket."""
        if key in self.tats:
            self.tats[key] -= interval

    def _full(self, owner: str) -> bool:
        return self._by_owner.get(owner, 0) >= self._each or len(self.tats) >= self._most

    def _forget(self, now: float) -> None:
        for _ in range(min(LOOKS, len(self._turn))):
            self.probes += 1
            key, owner = self._turn.popleft()
            if self.tats[key] > now:
                self._turn.append((key, owner))
                continue
            del self.tats[key]
            if owner is not None:
                self._by_owner[owner] -= 1
                if not self._by_owner[owner]:
                    del self._by_owner[owner]
