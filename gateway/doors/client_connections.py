"""All connections of clients: created, checked every few seconds, and drained together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from aiohttp import web

from gateway.bounds import Area, Bound
from gateway.doors.client_connection import ConnectionLimits, HttpConnection, ServerState
from gateway.eventloop.shared_timeouts import SharedTimeouts

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


class ClientConnections:
    """Makes the protocol of each connection by `kind`; `handler` makes those of aiohttp.

    `busy` is the number of connections with a request on the fast path.
    """

    def __init__(
        self,
        handler: Callable[[], web.RequestHandler],
        limits: ConnectionLimits,
        kind: Callable[[ServerState], HttpConnection] = HttpConnection,
    ) -> None:
        self.handler = handler
        self.limits = limits
        self.open: set[HttpConnection] = set()
        self.draining = False
        self.busy = 0
        self._kind = kind
        self._alarms: dict[float, SharedTimeouts] = {}
        self._sweep: asyncio.TimerHandle | None = None

    def __call__(self) -> HttpConnection:
        """Return the protocol of a new connection."""
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(SWEEP, self._swept)
        return self._kind(self)

    @property
    def connections(self) -> list[HttpConnection]:
        """The open connections, under aiohttp's name."""
        return list(self.open)

    def alarms(self, seconds: float) -> SharedTimeouts:
        """Return the shared timeouts of this duration."""
        found = self._alarms.get(seconds)
        if found is None:
            found = self._alarms[seconds] = SharedTimeouts(seconds)
        return found

    async def drain(self, seconds: float) -> None:
        """Accept no new requests; running ones have so many seconds to finish."""
        self.draining = True
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in tuple(self.open):
            connection.close_if_idle()
        running = {connection.running for connection in self.open if connection.running is not None}
        if running:
            _, late = await asyncio.wait(running, timeout=seconds)
            for task in late:
                task.cancel()
        for connection in tuple(self.open):
            connection.abort()
        for alarms in self._alarms.values():
            alarms.close()

    def _swept(self) -> None:
        loop = asyncio.get_running_loop()
        now = time.monotonic()
        for connection in tuple(self.open):
            late, stuck = connection.trickles(now - HEAD_WITHIN), connection.takes_nothing(now, now - TAKEN_WITHIN)
            if late or stuck:
                (_HEAD if late else _UNTAKEN).exceeded(client=connection.remote)
                connection.transport.abort()
            elif connection.since < now - IDLE:
                connection.close_if_idle()
        self._sweep = loop.call_later(SWEEP, self._swept)
