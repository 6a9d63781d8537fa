"""The limit step: a call takes from all of its rates and quotas, or from none."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Final

from gateway.errors import Reason, Refusal
from gateway.model import Caller
from gateway.policy import Limit, Obligations, Quota, Window
from gateway.ports.limits import Quotas, Rates, TakenRates

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
        """Count one call. Raises `Refusal` (`rate-limited`, `quota-exceeded`) with the time to wait.

        In report mode the refusal is returned instead, to be recorded.
        """
        limits = obligations.limits
        if not limits and not obligations.quotas:
            return ()
        try:
            taken = self._rates.take(limits, caller) if limits else _NOTHING
            if not isinstance(taken, TakenRates):
                taken = await taken
            if taken.exceeded is not None:
                raise _limited(taken.exceeded, taken.retry_after)
            if obligations.quotas:
                await self._take_quotas(obligations, caller, taken)
        except Refusal as refusal:
            if not obligations.report:
                raise
            return (str(refusal),)
        return ()

    async def _take_quotas(self, obligations: Obligations, caller: Caller, taken: TakenRates) -> None:
        now = self._now()
        try:
            exceeded = await self._quotas.take(obligations.quotas, caller, now)
        except OSError as error:
            log.error("quotas cannot be counted: %s", error)
            self._rates.give_back(obligations.limits, taken)
            detail = "The quota of this call cannot be counted at present; nothing was sent."
            raise Refusal(Reason.QUOTA_EXCEEDED, detail, status=503) from error
        if exceeded is not None:
            self._rates.give_back(obligations.limits, taken)
            raise _exceeded(exceeded, now)


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
