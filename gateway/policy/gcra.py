"""The generic cell rate algorithm, pure: one number per bucket, and a burst as large as the count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `count` in `period` seconds."""

    count: int
    period: float


class Taken(NamedTuple):
    """What came of asking for one cell; `retry_after` is in seconds, 0 where it was allowed.

    `tat` is the theoretical arrival time to keep for the bucket: it is unchanged where nothing was taken.
    """

    allowed: bool
    tat: float
    retry_after: float = 0.0


def take(tat: float, now: float, rate: Rate) -> Taken:
    """Ask for one cell of a bucket at the time `now`; a bucket that was never asked has the `tat` 0.

    `now` is that of a monotonic clock: the digits of seconds since the epoch leave too few for thousands per second.
    The tolerance of a hundredth of an interval keeps rounding out of the decision.
    """
    interval = rate.period / rate.count
    arrival = (tat if tat > now else now) + interval
    early = arrival - rate.period - now
    if early > interval / 100:
        return Taken(False, tat, early)
    return Taken(True, arrival)
