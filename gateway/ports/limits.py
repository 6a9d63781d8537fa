"""Limits: the protocols of the rates and quotas that count the calls of all callers."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol

from msgspec import Struct

from gateway.model import Caller
from gateway.policy import Limit, Quota, Rate


class TakenRates(Struct, frozen=True, gc=False):
    """The result of taking one cell of several rates: the buckets that were taken from, or the rate that was exceeded.

    `retry_after` is in seconds.
    """

    buckets: Sequence[tuple[str, ...]] = ()
    exceeded: Limit | None = None
    retry_after: float = 0.0


class Rates(Protocol):
    """The buckets of rates. An implementation has a clock of its own; its rounding never admits more than the rate."""

    def take(self, limits: Sequence[Limit], caller: Caller) -> TakenRates | Awaitable[TakenRates]:
        """Take one cell of each of `limits`, or of none if one is exceeded: one atomic step.

        An implementation in memory answers at once, since each call passes here; one that needs I/O returns an
        awaitable, does all limits in one round trip, and falls back to stricter limits while its store cannot be
        reached. The buckets of views are bounded per principal: further views share one.
        """
        ...

    def give_back(self, limits: Sequence[Limit], rates_taken: TakenRates) -> None:
        """Return the cells that `take` took for these limits: the call does not run. It may take effect later."""
        ...


class Attempts(Protocol):
    """Attempts that several processes count together, each by a name: those of one process are counted before."""

    async def take(self, name: str, rate: Rate) -> bool:
        """Count one attempt; return False beyond the rate, and True while the others cannot be known."""
        ...

    def give_back(self, name: str, rate: Rate) -> None:
        """Undo the count of an attempt that succeeded. It may take effect later."""
        ...


class Quotas(Protocol):
    """The counts of quotas, which outlive the process."""

    async def take(self, quotas: Sequence[Quota], caller: Caller, now: float) -> Quota | None:
        """Count one call against every quota, or against none if one is used up, and return that one: one atomic step.

        `now` is in seconds since the epoch. A count ends with its calendar window. The counts of views are bounded per
        principal: further views share one. Raises OSError while the store is down; the call then counts nowhere.
        """
        ...
