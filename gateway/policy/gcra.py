"""The generic cell rate algorithm (GCRA), pure: one number per bucket, and a burst as large as the count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `count` in `period` seconds."""

    count: int
    period: float


class Taken(NamedTuple):
    """The result of taking one cell; `retry_after` is in seconds, 0 if it was allowed.

    `tat` is the theoretical arrival time to store for the bucket: unchanged if nothing was taken.
    """

    allowed: bool
    tat: float
    retry_after: float = 0.0


def take(tat: float, now: float, rate: Rate) -> Taken:
    """Take one cell of a bucket at `now`; a new bucket has the `tat` 0.

    `now` is of a monotonic clock: seconds since the epoch leave too few digits for thousands per second. A tolerance of
    a hundredth of an interval keeps rounding out of the decision.
    """
    interval = rate.period / rate.count
    arrival = (tat if tat > now else now) + interval
    early = arrival - rate.period - now
    if early > interval / 100:
        return Taken(False, tat, early)
    return Taken(True, arrival)
