"""Rates in memory: every limit of a request is taken together, or none."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from gateway.errors import Reason, Refusal
from gateway.model import Caller
from gateway.policy import Limit, take

SWEEP = 10_000
"""Buckets above which those that are full again are forgotten."""


class Limiter:
    """The buckets of one process. `clock` is steady, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, float] = {}

    def take(self, limits: Sequence[Limit], caller: Caller) -> None:
        """Count one request. Raises `Refusal` (`rate-limited`) with `retry-after` and `ratelimit` fields."""
        if not limits:
            return
        now = self._clock()
        taken: dict[str, float] = {}
        for limit in limits:
            bucket = limit.key(caller)
            outcome = take(taken.get(bucket, self._buckets.get(bucket, 0.0)), now, limit.rate)
            if not outcome.allowed:
                raise _limited(limit, outcome.retry_after)
            taken[bucket] = outcome.tat
        self._buckets.update(taken)
        if len(self._buckets) > SWEEP:
            self._buckets = {bucket: tat for bucket, tat in self._buckets.items() if tat > now}


def _limited(limit: Limit, seconds: float) -> Refusal:
    wait = math.ceil(seconds)
    return Refusal(
        Reason.RATE_LIMITED,
        f"More than {limit.rate.count} in {limit.rate.period:g} seconds per {limit.per}. Try again in {wait} s.",
        headers=(
            ("retry-after", str(wait)),
            ("ratelimit-policy", f'"{limit.per}";q={limit.rate.count};w={math.ceil(limit.rate.period)}'),
            ("ratelimit", f'"{limit.per}";r=0;t={wait}'),
        ),
    )
