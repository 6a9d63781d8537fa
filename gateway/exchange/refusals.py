"""Rate-limits the audit log's lines about refusals per caller; further ones, and exceeded bounds, are summed up."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from gateway.bounds import Area, Bound
from gateway.model import Json
from gateway.policy import Rate, take
from gateway.telemetry import Metrics
from gateway.throttle import ThrottledLog
from gateway.token_buckets import Buckets
from gateway.traces import CLIENT

PERIOD: Final = 60.0
"""Seconds that one line of counts covers."""

LINES: Final = 120
"""Refusals of one caller in that time that are recorded in separate lines; the default of `audit.refusals`."""

SUMS: Final = 4096
"""Kinds of refusals, by caller, that are counted separately; beyond that, all callers are counted together."""

KIND: Final = "refused"
"""The kind of a record that counts refusals."""

CALLER: Final = "caller"
"""The kind of a record of a caller whom a door refused before any decision."""

BOUNDS: Final = (
    Bound(
        Area.RECORD,
        "record lines of refused calls",
        f"`audit.refusals` ({LINES}) in {PERIOD:g} s per caller",
        f"counted by caller, app, door, reason and route, in one line every {PERIOD:g} s",
        uncounted="the summary line states the number",
    ),
    Bound(
        Area.RECORD,
        "pending counts of refusals",
        f"{SUMS:,} in all",
        "further callers share one count",
        uncounted="the summary line states the number",
    ),
)

BOUND: Final = "bound"
"""The kind of a count of an exceeded bound, which has no separate lines."""

_SAME: Final = ("kind", "principal", "app", "door", "initiator", "reason", "status", "decision", "route")
"""Fields by which refusals are grouped: names of the configuration and of this program."""

_WHOSE: Final = frozenset({"principal", "client", "app", "initiator", "decision", "route"})
"""Fields of unbounded variety: beyond `SUMS` kinds, refusals are counted without these."""


@dataclass(slots=True)
class Sum:
    """The count of one kind of refusals; times are in seconds since the epoch."""

    id: str
    same: Mapping[str, Json]
    first: float
    last: float
    count: int = 0

    @property
    def fields(self) -> dict[str, Json]:
        """The fields of the record."""
        common: dict[str, Json] = {**self.same, "kind": KIND, "of": self.same["kind"], "view": None}
        like = "went beyond this bound" if self.same["kind"] == BOUND else "were refused like this"
        message = f"{self.count} more that {like}, between `first` and `last`"
        return {**common, "more": self.count, "first": self.first, "last": self.last, "message": message}


class Refusals:
    """Selects the refusals that get a line: `lines` per caller and minute. `name` makes ids; `clock` is steady."""

    def __init__(
        self,
        lines: int = LINES,
        *,
        name: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._rate = Rate(lines, PERIOD)
        self._name = name
        self._clock = clock
        self._now = now
        self._buckets: Buckets[str] = Buckets()
        self._sums: dict[tuple[Json, ...], Sum] = {}

    def count(self, fields: Mapping[str, Json]) -> Sum | None:
        """Return the count to which the refusal was added; None if it gets a separate line."""
        clock, caller = self._clock(), str(fields.get("principal"))
        result = take(self._buckets.tats.get(caller, 0.0), clock, self._rate)
        if result.allowed:
            self._buckets.put(caller, result.tat, clock)
            return None
        return self._sum({name: fields.get(name) for name in _SAME})

    def add(self, **fields: Json) -> None:
        """Count an event without a separate line; events with equal fields are counted together."""
        self._sum(fields)

    def _sum(self, same: dict[str, Json]) -> Sum:
        """Count one more of this kind."""
        now = self._now()
        key = tuple(map(str, same.values()))
        if key not in self._sums and len(self._sums) >= SUMS:
            same = {name: None if name in _WHOSE else value for name, value in same.items()}
            key = tuple(map(str, same.values()))
        entry = self._sums.get(key)
        if entry is None:
            entry = self._sums[key] = Sum(self._name(), same, now, now)
        entry.count, entry.last = entry.count + 1, now
        return entry

    def due(self) -> list[Sum]:
        """Return all counts since the last call."""
        sums, self._sums = self._sums, {}
        return list(sums.values())


log: Final = logging.getLogger(__name__)


class ExceededBounds:
    """Reports each exceeded bound, and counts it in `metrics`."""

    def __init__(self, metrics: Metrics, refusals: Refusals) -> None:
        self._metrics = metrics
        self._refusals = refusals
        self._log = ThrottledLog(log)

    def note(self, bound: Bound, by: str | None, client: str | None) -> None:
        """The principal `by`, or an unknown caller at the address `client`, exceeded a bound."""
        client = client or CLIENT.get()
        self._metrics.bounds_exceeded.add(bound.what)
        self._log.write(
            logging.WARNING,
            f"beyond the bound of {bound.what}",
            "%s went beyond the bound of %s (%s)",
            by or client or "somebody",
            bound.what,
            bound.limit,
        )
        self._refusals.add(kind=BOUND, principal=by, client=client, bound=bound.what)

    def flush(self) -> None:
        """Write all pending sums, at the shutdown of the gateway."""
        self._log.flush()
