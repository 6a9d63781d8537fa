"""The state of the bridge that all its connections share: the tickets that open them, and the views of lost ones."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.bounds import Area, Bound, Shares
from gateway.callers.entitlements import Admits, admit_all
from gateway.callers.people import caller_fields, caller_of
from gateway.crypto import SigningKeys, digest
from gateway.doors.bridge.event_streams import EventStreams
from gateway.doors.bridge.uploads import Bodies, BodiesElsewhere
from gateway.doors.revocation import Revocations
from gateway.exchange.streams import Streams
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json
from gateway.mcp.mount_interfaces import Forwarder
from gateway.mcp.view_server import ViewServer
from gateway.model import Principal, Resource
from gateway.ports.approvals import Approvals
from gateway.ports.sessions import OneTimeValues
from gateway.views.registry import Views
from gateway.views.view import View

LIFE = 30.0
"""Seconds for which a ticket is valid."""

TICKETS = 1024
"""Unused tickets in all."""

TICKETS_EACH = 64
"""Unused tickets of one principal, so that it cannot evict those of others."""


_UNUSED: Final = Bound(
    Area.BRIDGE,
    "bridge tickets",
    f"{TICKETS_EACH} per principal, {TICKETS:,} in all; {LIFE:g} s",
    "the oldest of that principal, or of the largest holder, is evicted",
)


@dataclass(frozen=True, slots=True)
class Ticket:
    """The principal, apps and page origin of one ticket. `attest`: the page's reports of gestures count.

    `hosted`: the page is one of a host site, not the gateway's own.
    """

    origin: str | None
    principal: Principal
    apps: frozenset[str]
    attest: bool
    hosted: bool = False


class Tickets:
    """The issued and unused tickets, in `values`. Each method raises OSError while these cannot be reached."""

    def __init__(self, values: OneTimeValues) -> None:
        self._values = values

    async def issue(
        self, origin: str | None, principal: Principal, apps: frozenset[str], *, attest: bool, hosted: bool = False
    ) -> str:
        """Return a new ticket; beyond the limits the oldest is evicted."""
        token = f"{_HOSTED if hosted else _OWN}{secrets.token_urlsafe(32)}"
        text = plain_json([origin, caller_fields(principal), sorted(apps), attest])
        kind = _kind(token)
        if await self._values.put(kind, token, text, owner=principal.id, life=LIFE, each=TICKETS_EACH, most=TICKETS):
            _UNUSED.report(principal.id)
        return token

    async def drop_hosted(self) -> None:
        """Drop the tickets of pages of host sites, which have changed."""
        await self._values.drop(_kind(_HOSTED))

    async def redeem(self, token: str, origin: str | None) -> Ticket | None:
        """Return the ticket, once, if it is valid and was issued to `origin`."""
        text = await self._values.take(_kind(token), token)
        if text is None:
            return None
        issued_to, principal, apps, attest = parse_json(text)
        if issued_to != origin:
            return None
        return Ticket(origin, caller_of(principal), frozenset(apps), attest, token.startswith(_HOSTED))


_OWN: Final = "c"
_HOSTED: Final = "h"
"""The first letter of a ticket: of a page of the console, or of a host site."""


def _kind(token: str) -> str:
    return "ticket of a host site" if token.startswith(_HOSTED) else "ticket"


RESUMABLE = 30.0
"""Seconds for which the views of a lost connection can be resumed."""

EACH: Final = 64
"""Connections of one person, one for each open host page."""

IN_ALL: Final = 4096
"""Connections of all persons."""

CONNECTIONS: Final = Bound(
    Area.BRIDGE,
    "bridge connections",
    f"{EACH} per person, {IN_ALL:,} in all",
    "`too-many`, and the connection is closed",
)

BOUNDS: Final = (_UNUSED, CONNECTIONS)


class ResumeTokens:
    """The tokens with which a host page resumes a view: `<process>.<app>.<random>.<signature>`.

    In the process of its view, a token is valid once. In a later one it proves that the page showed a view of the app
    to this principal; the socket proves the rest, as when a page opens a view.
    """

    def __init__(self, keys: SigningKeys) -> None:
        self._keys = keys
        self._process = secrets.token_urlsafe(6)

    def issue(self, view: View, origin: str | None) -> str:
        """Return a new token for the page of `view`."""
        text = f"{self._process}.{view.app}.{secrets.token_urlsafe(24)}"
        return f"{text}.{self._keys.sign(text, view.id, view.principal.id, origin or '')}"

    def app_of_moved(self, token: str, view: str, principal: Principal, origin: str | None) -> str | None:
        """Return the app of a view of an earlier process, if `token` is this view's, principal's and page's."""
        text, _, signature = token.rpartition(".")
        process, _, rest = text.partition(".")
        if process == self._process or not self._keys.verify(signature, text, view, principal.id, origin or ""):
            return None
        return rest.partition(".")[0]


@dataclass(slots=True, eq=False)
class _LostView:
    view: View
    token: bytes
    origin: str | None
    timer: asyncio.TimerHandle


@dataclass(slots=True)
class BridgeState:
    """The state that all connections of the bridge share.

    `answers`: the servers of views' calls, by app.
    `resources`: the packed pages, by app.
    `served`: returns the pages of an app as hosts have read them, by app.
    `borrow`: returns the server for views of an upstream's app without an entry, by upstream and resource.
    `resuming`: issues the tokens with which views are resumed, `tickets` those that open connections.
    `admits`: whether a caller may use an app.
    `forwarder`: calls the tools of pages, for host pages.
    `event_streams`: lets pages read event streams themselves; None where another process may take their requests.
    `elsewhere`: the bodies that other processes hold.
    """

    views: Views
    approvals: Approvals
    answers: Mapping[str, ViewServer]
    resources: Mapping[str, Resource]
    streams: Streams
    revocations: Revocations
    resuming: ResumeTokens
    tickets: Tickets
    admits: Admits = admit_all
    borrow: Callable[[str, str], ViewServer | None] = lambda _, __: None
    served: Mapping[str, Callable[[], Iterable[str]]] = field(default_factory=dict)
    forwarder: Forwarder | None = None
    event_streams: EventStreams | None = None
    bodies: Bodies = field(default_factory=Bodies)
    elsewhere: BodiesElsewhere | None = None
    places: Shares = field(default_factory=lambda: Shares(EACH, IN_ALL))
    _lost: dict[str, _LostView] = field(default_factory=dict)

    def server_of(self, app: str, resource: str | None) -> ViewServer | None:
        """Return the server for views of an app, or of that at `resource` of the upstream `app`; None without one."""
        return self.answers.get(app) if resource is None else self.borrow(app, resource)

    def lose(self, view: View, token: bytes, origin: str | None) -> None:
        """Keep the view of a lost connection for resumption with the token whose digest is `token`."""
        self.views.disconnect(view)
        self.approvals.cancel_view(view.id)
        timer = asyncio.get_running_loop().call_later(RESUMABLE, self._expire, view.id)
        self._lost[view.id] = _LostView(view, token, origin, timer)

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
