"""The admission to the bridge: single-use tickets of host pages, and resume tokens that change at each use."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.bounds import Area, Bound
from gateway.model import Principal

LIFE = 30.0
"""Seconds for which a ticket is valid."""

MOST = 1024
"""Unused tickets in all."""

EACH = 64
"""Unused tickets of one principal, so that it cannot evict those of others."""

BOUNDS: Final = (
    Bound(
        Area.BRIDGE,
        "tickets of the bridge",
        f"{EACH} per principal, {MOST:,} in all; {LIFE:g} s",
        "the oldest of the principal goes, or the oldest of who has most",
    ),
)

(_TICKETS,) = BOUNDS


@dataclass(frozen=True, slots=True)
class Ticket:
    """The principal, apps, page origin and expiry of an admission. With `attest`, its gestures are trusted."""

    origin: str | None
    principal: Principal
    apps: frozenset[str]
    attest: bool
    expires: float


class Tickets:
    """The issued and unused tickets."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tickets: dict[str, Ticket] = {}

    def issue(self, origin: str | None, principal: Principal, apps: frozenset[str], *, attest: bool) -> str:
        """Return a new ticket; beyond the limits the oldest is evicted."""
        now = self._clock()
        for token in [token for token, ticket in self._tickets.items() if ticket.expires < now]:
            del self._tickets[token]
        mine = [token for token, ticket in self._tickets.items() if ticket.principal == principal]
        for token in mine[: max(0, len(mine) - EACH + 1)]:
            _TICKETS.exceeded(principal.id)
            del self._tickets[token]
        if len(self._tickets) >= MOST:
            _TICKETS.exceeded(principal.id)
            (most, _), *_ = Counter(ticket.principal.id for ticket in self._tickets.values()).most_common(1)
            del self._tickets[next(token for token, one in self._tickets.items() if one.principal.id == most)]
        token = secrets.token_urlsafe(32)
        self._tickets[token] = Ticket(origin, principal, apps, attest, now + LIFE)
        return token

    def redeem(self, token: str, origin: str | None) -> Ticket | None:
        """Return the ticket, once, if it is valid and was issued to `origin`."""
        ticket = self._tickets.pop(token, None)
        if ticket is None or ticket.origin != origin or ticket.expires < self._clock():
            return None
        return ticket
