"""All connections of the fast path: created, checked every few seconds, and drained together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from aiohttp import web

from gateway.bounds import Area, Bound
from gateway.eventloop.shared_timeouts import Alarms
from gateway.fastpath.connection import Front, Gate

IDLE: Final = 75.0
"""Seconds after which an idle connection is closed."""

HEAD_WITHIN = 15.0
"""Seconds in which a request head must be complete, so that slow clients do not hold places."""

TAKEN_WITHIN = 120.0
"""Seconds in which a client must accept some of the data in the write buffer.
The system reports progress only when a good part of its own buffer is free, which takes a slow client a while.
"""

BOUNDS: Final = (
    Bound(
        Area.DOORS,
        "idle connections",
        f"{IDLE:g} s",
        "it is closed",
        uncounted="clients keep idle connections on purpose",
    ),
    Bound(
        Area.DOORS,
        "incomplete request heads",
        f"{HEAD_WITHIN:g} s",
        "the connection is closed",
    ),
    Bound(
        Area.DOORS,
        "unread responses",
        f"{TAKEN_WITHIN:g} s without a byte read",
        "the connection is closed",
    ),
)

_QUIET, _HEAD, _UNTAKEN = BOUNDS

SWEEP = 5.0
"""Seconds between two checks of all connections."""


class Fronts:
    """Makes the protocol of each connection; `behind` makes those of aiohttp, `gate` authorizes requests.
    `busy` is the number of connections with a request on the fast path.
    """

    def __init__(self, behind: Callable[[], web.RequestHandler], gate: Gate) -> None:
        self.gate = gate
        self.behind = behind
        self.open: set[Front] = set()
        self.draining = False
        self.busy = 0
        self._alarms: dict[float, Alarms] = {}
        self._sweep: asyncio.TimerHandle | None = None

    def __call__(self) -> Front:
        """Return the protocol of a new connection."""
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(SWEEP, self._swept)
        return Front(self)

    @property
    def connections(self) -> list[Front]:
        """The open connections, under aiohttp's name."""
        return list(self.open)

    def alarms(self, seconds: float) -> Alarms:
        """Return the shared timeouts of this duration."""
        found = self._alarms.get(seconds)
        if found is None:
            found = self._alarms[seconds] = Alarms(seconds)
        return found

    async def drain(self, seconds: float) -> None:
        """Accept no new requests; running ones have so many seconds to finish."""
        self.draining = True
        if self._sweep is not None:
            self._sweep.cancel()
        for front in tuple(self.open):
            front.close_if_idle()
        running = {front.serving for front in self.open if front.busy and front.serving is not None}
        if running:
            _, late = await asyncio.wait(running, timeout=seconds)
            for task in late:
                task.cancel()
        for front in tuple(self.open):
            front.abort()
        for alarms in self._alarms.values():
            alarms.close()

    def _swept(self) -> None:
        loop = asyncio.get_running_loop()
        now = time.monotonic()
        for front in tuple(self.open):
            late, stuck = front.trickles(now - HEAD_WITHIN), front.takes_nothing(now, now - TAKEN_WITHIN)
            if late or stuck:
                (_HEAD if late else _UNTAKEN).exceeded(client=front.remote)
                front.transport.abort()
            elif front.since < now - IDLE:
                front.close_if_idle()
        self._sweep = loop.call_later(SWEEP, self._swept)
