"""The limit step: a call takes from all of its rates, which are in memory, and quotas, or from none."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Final

from gateway.bounds import Area, Bound
from gateway.errors import Reason, Refusal
from gateway.model import Caller
from gateway.policy import Limit, Obligations, Per, Quota, Window, take
from gateway.ports.limits import Quotas, Rates, TakenRates
from gateway.token_buckets import EACH, IN_ALL, Buckets

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
        tats: dict[Key, float] = {}
        keys: list[Key] = []
        new = False
        for limit in limits:
            key = limit.key(caller)
            before = tats[key] if key in tats else known.get(key)
            if before is None:
                new = True
                key = self._new(key, caller, now)
                before = tats[key] if key in tats else known.get(key, 0.0)
            outcome = take(before, now, limit.rate)
            if not outcome.allowed:
                return TakenRates((), limit, outcome.retry_after)
            tats[key] = outcome.tat
            keys.append(key)
        if not new:
            known.update(tats)
        else:
            for key, tat in tats.items():
                self._buckets.put(key, tat, now, caller.principal.id if key[_PER] is _VIEW else None)
        return TakenRates(keys)

    def give_back(self, limits: Sequence[Limit], rates_taken: TakenRates) -> None:
        """Return the cells that were taken."""
        for limit, key in zip(limits, rates_taken.buckets, strict=True):
            self._buckets.give_back(key, limit.rate.period / limit.rate.count)

    def _new(self, key: Key, caller: Caller, now: float) -> Key:
        """Return the key for a new bucket: beyond a number of views, those of one principal share one."""
        if key[_PER] is not _VIEW:
            return key
        who = caller.principal.id
        place = self._buckets.place(key, who, (*key[:_PER], "views", who), now)
        if place is not key:
            _BUCKETS.report(who)
        return place


_SECONDS: Final = {Window.HOUR: 3600, Window.DAY: 86400}

_NOTHING: Final = TakenRates()
"""The result for a call without rates."""

log = logging.getLogger(__name__)


class Limiter:
    """Counts calls. `now` is the time of day, in seconds since the epoch."""

    def __init__(self, rates: Rates, quotas: Quotas, now: Callable[[], float] = time.time) -> None:
        self._rates = rates
        self._quotas = quotas
        self._now = now

    async def take(self, obligations: Obligations, caller: Caller) -> tuple[str, ...]:
        """Count one call. Raises `Refusal` (`rate-limited`, `quota-exceeded`, `state-unavailable`).

        In report mode the refusal is returned instead, to be recorded.
        """
        limits = obligations.limits
        if not limits and not obligations.quotas:
            return ()
        try:
            rates = self._rates.take(limits, caller) if limits else _NOTHING
            if not isinstance(rates, TakenRates):
                rates = await rates
            if rates.exceeded is not None:
                raise _rate_refusal(rates.exceeded, rates.retry_after)
            if obligations.quotas:
                await self._take_quotas(obligations, caller, rates)
        except Refusal as refusal:
            if not obligations.report:
                raise
            return (str(refusal),)
        return ()

    async def pace(self, limits: Sequence[Limit], caller: Caller) -> None:
        """Wait until one more call is within `limits`, and count it."""
        while limits:
            rates = self._rates.take(limits, caller)
            if not isinstance(rates, TakenRates):
                rates = await rates
            if rates.exceeded is None:
                return
            await asyncio.sleep(rates.retry_after)

    async def _take_quotas(self, obligations: Obligations, caller: Caller, rates: TakenRates) -> None:
        now = self._now()
        try:
            exceeded = await self._quotas.take(obligations.quotas, caller, now)
        except OSError as error:
            log.error("quotas cannot be counted: %s", error)
            self._rates.give_back(obligations.limits, rates)
            detail = "The quota of this call cannot be counted at present; nothing was sent."
            raise Refusal(Reason.STATE_UNAVAILABLE, detail) from error
        if exceeded is not None:
            self._rates.give_back(obligations.limits, rates)
            raise _quota_refusal(exceeded, now)


def _rate_refusal(limit: Limit, seconds: float) -> Refusal:
    wait = math.ceil(seconds)
    return Refusal(
        Reason.RATE_LIMITED,
        f"More than {limit.rate.count} in {limit.rate.period:g} seconds per {limit.per}. Try again in {wait} s.",
        headers=_headers(limit.per, f"q={limit.rate.count};w={math.ceil(limit.rate.period)}", wait),
    )


def _quota_refusal(quota: Quota, now: float) -> Refusal:
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
