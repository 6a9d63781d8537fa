"""Rates in memory and quotas in the database: all of a call are taken together, or none."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from gateway.errors import Reason, Refusal
from gateway.model import Caller
from gateway.policy import Limit, Obligations, Quota, Window, take

SWEEP = 10_000
"""Buckets above which those that are full again are forgotten."""

_SECONDS: Final = {Window.HOUR: 3600, Window.DAY: 86400}

log = logging.getLogger(__name__)


class Quotas(Protocol):
    """Where quotas are counted: `gateway.stores.quotas.Quotas`."""

    async def take(self, quotas: Sequence[Quota], caller: Caller, now: float) -> Quota | None: ...


class Limiter:
    """Counts calls. `clock` is steady, `now` is the time of day; both in seconds."""

    def __init__(
        self, quotas: Quotas, clock: Callable[[], float] = time.monotonic, now: Callable[[], float] = time.time
    ) -> None:
        self._quotas = quotas
        self._clock = clock
        self._now = now
        self._buckets: dict[tuple[str, ...], float] = {}

    async def take(self, obligations: Obligations, caller: Caller) -> tuple[str, ...]:
        """Count one call. Raises `Refusal` (`rate-limited`, `quota-exceeded`) with what to wait.

        In report mode the call goes on, and what would have refused it is given, to be written down.
        """
        try:
            self._take_rates(obligations.limits, caller)
            if obligations.quotas:
                await self._take_quotas(obligations, caller)
        except Refusal as refusal:
            if not obligations.report:
                raise
            return (str(refusal),)
        return ()

    def _take_rates(self, limits: Sequence[Limit], caller: Caller) -> None:
        if not limits:
            return
        now = self._clock()
        taken: dict[tuple[str, ...], float] = {}
        for limit in limits:
            bucket = limit.key(caller)
            before = taken[bucket] if bucket in taken else self._buckets.get(bucket, 0.0)
            outcome = take(before, now, limit.rate)
            if not outcome.allowed:
                raise _limited(limit, outcome.retry_after)
            taken[bucket] = outcome.tat
        self._buckets.update(taken)
        if len(self._buckets) > SWEEP:
            self._buckets = {bucket: tat for bucket, tat in self._buckets.items() if tat > now}

    async def _take_quotas(self, obligations: Obligations, caller: Caller) -> None:
        now = self._now()
        try:
            exceeded = await self._quotas.take(obligations.quotas, caller, now)
        except OSError as error:
            log.error("quotas cannot be counted: %s", error)
            self._give_back(obligations.limits, caller)
            detail = "The quota of this call cannot be counted at present; nothing was sent."
            raise Refusal(Reason.QUOTA_EXCEEDED, detail, status=503) from error
        if exceeded is not None:
            self._give_back(obligations.limits, caller)
            raise _exceeded(exceeded, now)

    def _give_back(self, limits: Sequence[Limit], caller: Caller) -> None:
        for limit in limits:
            bucket = limit.key(caller)
            if bucket in self._buckets:
                self._buckets[bucket] -= limit.rate.period / limit.rate.count


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
    """`Retry-After`, and the fields of draft-ietf-httpapi-ratelimit-headers."""
    return (
        ("retry-after", str(wait)),
        ("ratelimit-policy", f'"{name}";{policy}'),
        ("ratelimit", f'"{name}";r=0;t={wait}'),
    )
