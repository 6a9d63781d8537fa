"""The model's calls go first: while one of them is in the gateway's hands, calls of pages wait a moment.

Their large bodies are read with rests as long as a model calls: what sends them has the processors otherwise.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

MOMENT = 0.02
"""Seconds that a page's call waits at most, and for which a message is taken to be in the gateway's hands."""

LATELY = 1.0
"""Seconds after a message for which a model is taken to go on calling."""

REST = 0.005
"""Seconds of one rest."""

MANY = 1000
"""Principals from which on those of whom nothing came lately are forgotten."""


@dataclass(slots=True)
class _Held:
    came: float
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class Precedence:
    """Who has a model's message under way here, by principal. `clock` is that of the event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Who came last is last. A plain dict would look at all the holes of those who were moved.
        self._held = OrderedDict[str, _Held]()

    def __len__(self) -> int:
        """How many principals are remembered."""
        return len(self._held)

    def come(self, principal: str) -> None:
        """A message of a model came in, or a page's answer to one."""
        now = self._clock()
        held = self._held.pop(principal, None)
        if held is None or held.gone.is_set():
            held = _Held(now)
        held.came = now
        self._held[principal] = held
        while len(self._held) > MANY and self._held[first := next(iter(self._held))].came <= now - LATELY:
            del self._held[first]

    def gone(self, principal: str) -> None:
        """It has left, to the page or to the model."""
        held = self._held.get(principal)
        if held is not None:
            held.gone.set()

    async def turn(self, principal: str) -> None:
        """Wait until a page's call may begin."""
        held = self._held.get(principal)
        if held is None or held.gone.is_set():
            return
        if (left := held.came + MOMENT - self._clock()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await held.gone.wait()

    async def rest(self, principal: str) -> None:
        """Wait before more of a page's body is read."""
        held = self._held.get(principal)
        if held is not None and held.came > self._clock() - LATELY:
            await asyncio.sleep(REST)
