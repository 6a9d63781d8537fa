"""The buckets of rates in memory: they start full with the process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from gateway.bounds import Area, Bound
from gateway.model import Caller
from gateway.policy import Limit, Per, take
from gateway.ports.limits import TakenRates
from gateway.throttle import EACH, IN_ALL, Buckets

BOUNDS: Final = (
    Bound(
        Area.EXCHANGE,
        "token buckets of rates per view",
        f"{EACH:,} per principal, {IN_ALL:,} in all",
        "further views of that principal share one bucket of each rate",
    ),
)

(_BUCKETS,) = BOUNDS

Key = tuple[str, ...]

_PER: Final = 2
"""The index of the scope (`per`) in a key."""

_VIEW: Final = Per.VIEW


class MemoryRates:
    """The port `Rates` of one process. `clock` is steady, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: Buckets[Key] = Buckets()

    def take(self, limits: Sequence[Limit], caller: Caller) -> TakenRates:
        """Take one cell of each limit, or of none."""
        now, known = self._clock(), self._buckets.tats
        if len(limits) == 1:  # most calls have one, and its bucket exists
            limit = limits[0]
            key = limit.key(caller)
            before = known.get(key)
            if before is not None:
                outcome = take(before, now, limit.rate)
                if not outcome.allowed:
                    return TakenRates((), limit, outcome.retry_after)
                known[key] = outcome.tat
                return TakenRates((key,))
        taken: dict[Key, float] = {}
        keys: list[Key] = []
        new = False
        for limit in limits:
            key = limit.key(caller)
            before = taken[key] if key in taken else known.get(key)
            if before is None:
                new = True
                key = self._new(key, caller, now)
                before = taken[key] if key in taken else known.get(key, 0.0)
            outcome = take(before, now, limit.rate)
            if not outcome.allowed:
                return TakenRates((), limit, outcome.retry_after)
            taken[key] = outcome.tat
            keys.append(key)
        if not new:
            known.update(taken)
        else:
            for key, tat in taken.items():
                self._buckets.put(key, tat, now, caller.principal.id if key[_PER] is _VIEW else None)
        return TakenRates(keys)

    def give_back(self, limits: Sequence[Limit], taken: TakenRates) -> None:
        """Return the cells that were taken."""
        for limit, key in zip(limits, taken.buckets, strict=True):
            self._buckets.give_back(key, limit.rate.period / limit.rate.count)

    def _new(self, key: Key, caller: Caller, now: float) -> Key:
        """Return the key for a new bucket: beyond a number of views, those of one principal share one."""
        if key[_PER] is not _VIEW:
            return key
        who = caller.principal.id
        place = self._buckets.place(key, who, (*key[:_PER], "views", who), now)
        if place is not key:
            _BUCKETS.exceeded(who)
        return place
