"""Retries with exponential backoff, as the backend asks, and within the route's timeout."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable
from email.utils import parsedate_to_datetime

from gateway.errors import Refusal
from gateway.exchange.answer import BackendAnswer
from gateway.exchange.decided_request import Leg
from gateway.exchange.record import Record
from gateway.model import Json

Attempt = Callable[[float], Awaitable[BackendAnswer]]
"""One attempt, with its timeout in seconds."""


class Retries:
    """Repeats attempts. `clock` is steady, `now` the time of day, in seconds; `chance` gives numbers from 0 to 1."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._now = now
        self._chance = chance

    async def send(self, leg: Leg, attempt: Attempt, go_on: Callable[[], bool], record: Record) -> BackendAnswer:
        """Return the first answer that needs no retry, or the last one. `go_on` is false if a retry would be pointless.

        The outcome of each attempt is recorded in `attempts`. Raises `Refusal` as the last attempt does.
        """
        retry = leg.obligations.retry
        if retry is None or leg.canonical.method not in retry.methods:
            return await attempt(leg.obligations.timeout)
        ends = self._clock() + leg.obligations.timeout
        outcomes: list[Json] = []
        while True:
            outcome = await _tried(attempt, ends - self._clock() if outcomes else leg.obligations.timeout)
            came_to = outcome.reason if isinstance(outcome, Refusal) else outcome.response.status
            outcomes.append(came_to)
            if len(outcomes) > 1:
                record.note(attempts=outcomes)
            pause = self._pause(retry.backoff, len(outcomes), outcome)
            last = len(outcomes) >= retry.attempts or came_to not in retry.on or not go_on()
            if last or self._clock() + pause >= ends:
                return _given(outcome)
            if isinstance(outcome, BackendAnswer):
                await outcome.close()
            await self._sleep(pause)

    def _pause(self, backoff: float, attempts: int, outcome: BackendAnswer | Refusal) -> float:
        """Return an exponential backoff with jitter, but at least the backend's Retry-After."""
        own = backoff * 2.0 ** (attempts - 1) * (0.5 + self._chance() / 2)
        asked = outcome.response.header("retry-after") if isinstance(outcome, BackendAnswer) else None
        return max(own, _seconds(asked, self._now())) if asked else own


async def _tried(attempt: Attempt, timeout: float) -> BackendAnswer | Refusal:
    try:
        return await attempt(timeout)
    except Refusal as refusal:
        return refusal


def _given(outcome: BackendAnswer | Refusal) -> BackendAnswer:
    if isinstance(outcome, Refusal):
        raise outcome
    return outcome


def _seconds(text: str, now: float) -> float:
    """Return the wait of a Retry-After field (RFC 9110 10.2.3); 0 if it is invalid."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        digits = text.lstrip("0") or "0"
        return float(digits) if len(digits) < 10 else math.inf
    try:
        when: float = parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return 0.0
    return max(0.0, when - now)
