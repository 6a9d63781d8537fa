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
    end: asyncio.Event = field(default_factory=asyncio.Event)


class ModelPriority:
    """The model messages in process, by principal. `clock` is that of the event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # In order of arrival. A plain dict would scan the holes that moved entries leave.
        self._principals = OrderedDict[str, _MessagesInProcess]()

    def __len__(self) -> int:
        """The number of principals in memory."""
        return len(self._principals)

    def note_arrival(self, principal: str) -> None:
        """A message of a model arrived, or a page's answer to one."""
        now = self._clock()
        entry = self._principals.pop(principal, None)
        if entry is None or entry.end.is_set():
            entry = _MessagesInProcess(now)
        entry.came = now
        self._principals[principal] = entry
        while (
            len(self._principals) > MANY
            and self._principals[first := next(iter(self._principals))].came <= now - LATELY
        ):
            del self._principals[first]

    def note_sent(self, principal: str) -> None:
        """The message was passed on, to the page or to the model."""
        entry = self._principals.get(principal)
        if entry is not None:
            entry.end.set()

    async def turn(self, principal: str) -> None:
        """Wait until a page's call may begin."""
        entry = self._principals.get(principal)
        if entry is None or entry.end.is_set():
            return
        if (left := entry.came + MOMENT - self._clock()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await entry.end.wait()

    async def rest(self, principal: str) -> None:
        """Wait before more of a page's body is read."""
        entry = self._principals.get(principal)
        if entry is not None and entry.came > self._clock() - LATELY:
            await asyncio.sleep(REST)
