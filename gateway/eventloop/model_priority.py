"""Priority of model calls: while the gateway processes one, calls of pages wait briefly.

Large bodies of pages are read with pauses while a model calls, so that their sender does not occupy the processors.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

MOMENT = 0.02
"""Seconds that a page's call waits at most, and for which a message counts as being processed."""

LATELY = 1.0
"""Seconds after a message for which a model is assumed to continue calling."""

REST = 0.005
"""Seconds of one pause."""

MANY = 1000
"""Principals from which on idle ones are removed."""


@dataclass(slots=True)
class _MessagesInProcess:
    came: float
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class ModelPriority:
    """The model messages in process, by principal. `clock` is that of the event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # In order of arrival. A plain dict would scan the holes that moved entries leave.
        self._held = OrderedDict[str, _MessagesInProcess]()

    def __len__(self) -> int:
        """The number of principals in memory."""
        return len(self._held)

    def note_arrival(self, principal: str) -> None:
        """A message of a model arrived, or a page's answer to one."""
        now = self._clock()
        held = self._held.pop(principal, None)
        if held is None or held.gone.is_set():
            held = _MessagesInProcess(now)
        held.came = now
        self._held[principal] = held
        while len(self._held) > MANY and self._held[first := next(iter(self._held))].came <= now - LATELY:
            del self._held[first]

    def note_sent(self, principal: str) -> None:
        """The message was passed on, to the page or to the model."""
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
