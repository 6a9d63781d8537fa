"""Protects backends: limits the concurrent requests of each principal, and opens a circuit breaker after failures."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gateway.backends.connect import CONNECTIONS_PER_HOST
from gateway.bounds import Area, Bound
from gateway.errors import Reason, Refusal
from gateway.policy import Circuit

EACH: Final = CONNECTIONS_PER_HOST // 2
"""Concurrent requests of one principal to one backend, out of all its connections."""

BOUNDS: Final = (
    Bound(
        Area.EXCHANGE,
        "concurrent requests to a backend",
        f"{EACH} per principal, {CONNECTIONS_PER_HOST} in all",
        "further requests are queued up to their route's `timeout`, then 504",
    ),
)

(_TURNS,) = BOUNDS

Key = tuple[str, str, str]
"""The principal, and the app and name of a backend."""


class Turns:
    """Allows `each` requests per principal at a time; further ones wait in FIFO order."""

    def __init__(self, each: int = EACH) -> None:
        self._each = each
        self._running: dict[Key, int] = {}
        self._waiting: dict[Key, deque[asyncio.Future[None]]] = {}

    async def enter(self, key: Key, seconds: float) -> None:
        """Begin a request; the caller ends it with `leave`.

        Raises `Refusal` (`backend-timeout`) if no place becomes free within `seconds`.
        """
        running = self._running.get(key, 0)
        if running < self._each:
            self._running[key] = running + 1
        else:
            await self._wait(key, seconds)

    async def _wait(self, key: Key, seconds: float) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(turn)
        try:
            async with asyncio.timeout(seconds):
                await turn
        except TimeoutError as error:
            _TURNS.report(key[0])
            detail = f"{self._each} other requests of this caller to {key[2]!r} took all of its {seconds:g} s."
            raise Refusal(Reason.BACKEND_TIMEOUT, detail) from error
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it had its turn already
                self.leave(key)
            raise

    def leave(self, key: Key) -> None:
        """End a request and let the next waiting one begin."""
        waiting = self._waiting.get(key)
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._waiting.pop(key, None)
        self._running[key] -= 1
        if not self._running[key]:
            del self._running[key]


FAILING_STATUSES: Final = frozenset({502, 503, 504})
FAILING_REASONS: Final = frozenset({Reason.BACKEND_UNREACHABLE, Reason.BACKEND_TIMEOUT, Reason.BACKEND_PROTOCOL})

log = logging.getLogger(__name__)


class BreakerState(StrEnum):
    """The state of a breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(slots=True)
class _Breaker:
    """`until` is when the next probe is allowed, None while closed; `tried`: a probe is running."""

    failures: int = 0
    until: float | None = None
    tried: bool = False


@dataclass(slots=True)
class Passage:
    """One attempt that a breaker let through. `success` is None if the outcome reveals nothing about the backend."""

    state: BreakerState
    success: bool | None = None


class Circuits:
    """The breakers of all backends by (app, backend). `clock` is steady, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._breakers: dict[tuple[str, str], _Breaker] = {}

    @contextmanager
    def passage(self, place: tuple[str, str], circuit: Circuit | None) -> Iterator[Passage]:
        """Let one attempt through. Raises `Refusal` (`backend-unavailable`) with the time to wait while open."""
        if circuit is None:
            yield Passage(BreakerState.CLOSED)
            return
        breaker = self._breakers.setdefault(place, _Breaker())
        passage = Passage(self._enter(breaker, place[1]))
        try:
            yield passage
        finally:
            self._leave(breaker, circuit, passage, place)

    def look(self, place: tuple[str, str], circuit: Circuit | None) -> None:
        """Raise `Refusal` as `passage` does, without reserving an attempt: a check before an attempt is prepared."""
        breaker = self._breakers.get(place)
        if circuit is not None and breaker is not None:
            self._check(breaker, place[1])

    def is_open(self, place: tuple[str, str]) -> bool:
        """Return whether the next attempt would be refused."""
        breaker = self._breakers.get(place)
        return breaker is not None and breaker.until is not None and (breaker.tried or self._clock() < breaker.until)

    def list_open(self) -> list[tuple[str, str]]:
        """The backends whose breakers are open."""
        return [place for place in self._breakers if self.is_open(place)]

    def _enter(self, breaker: _Breaker, name: str) -> BreakerState:
        if breaker.until is None:
            return BreakerState.CLOSED
        self._check(breaker, name)
        breaker.tried = True
        return BreakerState.HALF_OPEN

    def _check(self, breaker: _Breaker, name: str) -> None:
        left = breaker.until - self._clock() if breaker.until is not None else 0.0
        if left > 0 or breaker.tried:
            wait = max(1, math.ceil(left))
            detail = f"The backend {name!r} failed too often; it is tried again in {wait} s."
            raise Refusal(Reason.BACKEND_UNAVAILABLE, detail, headers=(("retry-after", str(wait)),))

    def _leave(self, breaker: _Breaker, circuit: Circuit, passage: Passage, place: tuple[str, str]) -> None:
        if passage.state is BreakerState.HALF_OPEN:
            breaker.tried = False
        elif breaker.until is not None:
            return  # it began before the breaker opened, so its outcome is outdated
        if passage.success:
            if breaker.until is not None:
                log.warning("app %s: the backend %r works again", *place)
            breaker.failures, breaker.until = 0, None
        elif passage.success is False:
            breaker.failures += 1
            if passage.state is BreakerState.HALF_OPEN or breaker.failures >= circuit.failures:
                breaker.until = self._clock() + circuit.reset
                log.warning("app %s: the backend %r fails; it is left alone for %g s", *place, circuit.reset)
