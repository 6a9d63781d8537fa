"""Rate limits in memory and quotas in the database: a call takes from all of them, or from none."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from gateway.bounds import Area, Bound
from gateway.errors import Reason, Refusal
from gateway.model import Caller
from gateway.policy import Limit, Obligations, Per, Quota, Window, take
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

_SECONDS: Final = {Window.HOUR: 3600, Window.DAY: 86400}

Key = tuple[str, ...]

_PER: Final = 2
"""The index of the scope (`per`) in a key."""

_VIEW: Final = Per.VIEW

log = logging.getLogger(__name__)


class Quotas(Protocol):
    """The storage of quota counts: `gateway.stores.quotas.Quotas`."""

    async def take(self, quotas: Sequence[Quota], caller: Caller, now: float) -> Quota | None: ...


class Limiter:
    """Counts calls. `clock` is steady, `now` is the time of day; both in seconds."""

    def __init__(
        self, quotas: Quotas, clock: Callable[[], float] = time.monotonic, now: Callable[[], float] = time.time
    ) -> None:
        self._quotas = quotas
        self._clock = clock
        self._now = now
        self._buckets: Buckets[Key] = Buckets()

    async def take(self, obligations: Obligations, caller: Caller) -> tuple[str, ...]:
        """Count one call. Raises `Refusal` (`rate-limited`, `quota-exceeded`) with the time to wait.

        In report mode the refusal is returned instead, to be recorded.
        """
        try:
            taken = self._take_rates(obligations.limits, caller) if obligations.limits else ()
            if obligations.quotas:
                await self._take_quotas(obligations, caller, taken)
        except Refusal as refusal:
            if not obligations.report:
                raise
            return (str(refusal),)
        return ()

    def _take_rates(self, limits: Sequence[Limit], caller: Caller) -> Sequence[Key]:
        """Take one cell of each limit, and return the keys of their buckets."""
        now, known = self._clock(), self._buckets.tats
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
                raise _limited(limit, outcome.retry_after)
            taken[key] = outcome.tat
            keys.append(key)
        if not new:
            known.update(taken)
        else:
            for key, tat in taken.items():
                self._buckets.put(key, tat, now, caller.principal.id if key[_PER] is _VIEW else None)
        return keys

    def _new(self, key: Key, caller: Caller, now: float) -> Key:
        """Return the key for a new bucket: beyond a number of views, those of one principal share one."""
        if key[_PER] is not _VIEW:
            return key
        who = caller.principal.id
        place = self._buckets.place(key, who, (*key[:_PER], "views", who), now)
        if place is not key:
            _BUCKETS.exceeded(who)
        return place

    async def _take_quotas(self, obligations: Obligations, caller: Caller, taken: Sequence[Key]) -> None:
        now = self._now()
        try:
            exceeded = await self._quotas.take(obligations.quotas, caller, now)
        except OSError as error:
            log.error("quotas cannot be counted: %s", error)
            self._give_back(obligations.limits, taken)
            detail = "The quota of this call cannot be counted at present; nothing was sent."
            raise Refusal(Reason.QUOTA_EXCEEDED, detail, status=503) from error
        if exceeded is not None:
            self._give_back(obligations.limits, taken)
            raise _exceeded(exceeded, now)

    def _give_back(self, limits: Sequence[Limit], taken: Sequence[Key]) -> None:
        for limit, key in zip(limits, taken, strict=True):
            self._buckets.give_back(key, limit.rate.period / limit.rate.count)


def _limited(limit: Limit, seconds: float) -> Refusal:
    wait = math.ceil(seconds)
    return Refusal(
        Reason.RATE_LIMITED,
        f"More than {limit.rate.count} in {limit.rate.period:g} seconds per {limit.per}. Try again in {wait} s.",
        headers=_headers(limit.per, f"q={limit.rate.count};w={math.ceil(limit.rate.period)}", wait),
    )


def _exceeded(quota: Quota, now: float) -> Refusal:
    wait = math.ceil(quota.resets(now))
    window = _SECONDS.get(quota.window)  # months differ
    return Refusal(
        Reason.QUOTA_EXCEEDED,
        f"All {quota.count} of this {quota.window} (UTC) per {quota.per} are used. Try again in {wait} s.",
        headers=_headers(quota.per, f"q={quota.count};w={window}" if window else f"q={quota.count}", wait),
    )


def _headers(name: str, policy: str, wait: int) -> tuple[tuple[str, str], ...]:
    """Return `Retry-After`, and the fields of draft-ietf-httpapi-ratelimit-headers."""
    return (
        ("retry-after", str(wait)),
        ("ratelimit-policy", f'"{name}";{policy}'),
        ("ratelimit", f'"{name}";r=0;t={wait}'),
    )
