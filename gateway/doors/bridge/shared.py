"""The state shared by all connections of the bridge, and the views of lost connections."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.bounds import Area, Bound
from gateway.doors.bridge.tickets import Tickets
from gateway.doors.bridge.uploads import Bodies
from gateway.doors.revocation import Standing
from gateway.exchange.streams import Streams
from gateway.mcp.view_calls import ViewServer
from gateway.model import Principal, Resource
from gateway.ports.approvals import Approvals
from gateway.proving import digest
from gateway.shares import Shares
from gateway.views.registry import Views
from gateway.views.view import View

RESUMABLE = 30.0
"""Seconds for which the views of a lost connection can be resumed."""

EACH: Final = 64
"""Connections of one person, one for each open host page."""

IN_ALL: Final = 4096
"""Connections of all persons."""

BOUNDS: Final = (
    Bound(
        Area.BRIDGE,
        "connections of the bridge",
        f"{EACH} per person, {IN_ALL:,} in all",
        "`too-many`, and the connection is closed",
    ),
)

(CONNECTIONS,) = BOUNDS


@dataclass(slots=True, eq=False)
class _Lost:
    view: View
    token: bytes
    origin: str | None
    timer: asyncio.TimerHandle


@dataclass(slots=True)
class Bridged:
    """`answers` (the servers of views' calls) and `resources` are keyed by app."""

    views: Views
    approvals: Approvals
    answers: Mapping[str, ViewServer]
    resources: Mapping[str, Resource]
    streams: Streams
    standing: Standing
    tickets: Tickets = field(default_factory=Tickets)
    bodies: Bodies = field(default_factory=Bodies)
    places: Shares = field(default_factory=lambda: Shares(EACH, IN_ALL))
    _lost: dict[str, _Lost] = field(default_factory=dict)

    def lose(self, view: View, token: bytes, origin: str | None) -> None:
        """Keep the view of a lost connection for resumption with the token whose digest is `token`."""
        self.views.disconnect(view)
        self.approvals.cancel_view(view.id)
        timer = asyncio.get_running_loop().call_later(RESUMABLE, self._expire, view.id)
        self._lost[view.id] = _Lost(view, token, origin, timer)

    def take_up(self, id: str, token: str, principal: Principal, origin: str | None) -> View | None:
        """Return the lost view to its principal and origin; that uses up its token."""
        lost = self._lost.get(id)
        good = (
            lost is not None
            and lost.view.principal == principal
            and lost.origin == origin
            and hmac.compare_digest(lost.token, digest(token))
            and self.views.find(id, principal) is lost.view
        )
        if lost is None or not good:
            return None
        lost.timer.cancel()
        del self._lost[id]
        return lost.view

    def end(self, view: View) -> None:
        """End a closed view, with its approvals and streams."""
        self.approvals.cancel_view(view.id)
        self.streams.cancel_view(view.id)
        self.views.close(view)

    def end_lost(self, principal: Principal | None = None) -> None:
        """End the lost views of a principal, or all."""
        for id in [id for id, lost in self._lost.items() if principal is None or lost.view.principal == principal]:
            self._expire(id)

    def _expire(self, id: str) -> None:
        """End a view that was not resumed in time."""
        lost = self._lost.pop(id, None)
        if lost is not None:
            lost.timer.cancel()
            self.end(lost.view)
