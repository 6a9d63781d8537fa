"""One upstream: its links, shared by all clients or by those of one kind, and its known offer."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from gateway.backends.connect import Connections
from gateway.bounds import Area, Bound
from gateway.config import UpstreamSettings as Spec
from gateway.config.upstreams import REMOTE, Replicas, UpstreamKind
from gateway.errors import Reason, Refusal
from gateway.exchange.authenticate import Authenticator, InjectedFields
from gateway.mcp.upstreams.calls.client import UpstreamClient
from gateway.mcp.upstreams.catalog.offers import Fingerprints, OfferedTools, Offers
from gateway.mcp.upstreams.changes.feed import KINDS, Feed
from gateway.mcp.upstreams.transport.conversation import Carrier
from gateway.mcp.upstreams.transport.http import OlderSse, StreamableHttp
from gateway.mcp.upstreams.transport.link import Link, LinkSession, LinkState
from gateway.mcp.upstreams.transport.process import Process
from gateway.mcp.upstreams.transport.requests import Credentials
from gateway.mcp.upstreams.transport.shared import SharedProcess, UpstreamPlacement
from gateway.mcp.upstreams.transport.websocket import WebSocket
from gateway.model import Headers, Principal

log = logging.getLogger(__name__)

SHARE = 2
"""The part of an upstream's calls and connections that one principal may have at most: one of so many."""

BOUNDS: Final = (
    Bound(
        Area.UPSTREAMS,
        "calls and connections of an upstream",
        f"`calls` and `connections` of its entry, at most 1/{SHARE} per principal",
        "the principal's oldest idle connection is closed, else 503",
    ),
)

(_CALLS,) = BOUNDS


@dataclass(frozen=True, slots=True)
class LinkKey:
    """The clients that share a link: those of one principal, or all, with the same capabilities and era."""

    owner: str
    capabilities: str
    modern: bool


_FOR_ALL: Final = LinkKey("", "", modern=True)


class JoinedLink:
    """A link with the feed of its changes; `owner` is the principal that it was made for."""

    def __init__(
        self, owner: str, spawn: Callable[..., asyncio.Task[None]], make: Callable[[JoinedLink], Link]
    ) -> None:
        self.owner = owner
        self.feed = Feed(spawn)
        self.task: asyncio.Task[None] | None = None
        self.spawn = spawn
        self.link = make(self)

    def reconnected(self, session: LinkSession) -> None:
        """Notify followers of a new connection; they may have missed changes before it."""
        self.spawn(self.feed.restore(session, again=self.link.attempts > 1))


class Upstream:
    """The connections to the upstream of `spec`.
    `on_echo` is called with the principal for whom the upstream echoed an injected secret, now masked, and whether that
    is the first time on a connection. `fingerprints` creates those of its offer. `places` are None for a gateway of one
    process.
    """

    def __init__(
        self,
        spec: Spec,
        *,
        connections: Connections,
        authenticator: Authenticator,
        tasks: asyncio.TaskGroup,
        echoed: Callable[[Principal, bool], None],
        fingerprints: Callable[[Principal | None], Fingerprints],
        places: UpstreamPlacement | None = None,
    ) -> None:
        self.spec = spec
        self._places = places if spec.replicas is Replicas.ONE else None
        self.offers = Offers(spec.name, fingerprints)
        self.closed = False
        self._connections = connections
        self._authenticator = authenticator
        self._tasks = tasks
        self._on_echo = echoed
        self._links: dict[LinkKey, JoinedLink] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._only: bool | None = None
        self._calls: dict[str, int] = {}

    @property
    def state(self) -> tuple[LinkState, str | None]:
        """The state of its connections, and the problem if there is one."""
        links = [one.link for one in self._links.values()]
        lost_at = max((link.lost_at for link in links), default=-math.inf)
        for state in (LinkState.READY, LinkState.CONNECTING, LinkState.FAILED):
            # A ready link unused since another one found no server may be out of date.
            known = [
                link for link in links if state is not LinkState.READY or max(link.used_at, link.connected_at) > lost_at
            ]
            link_in_state = next((link for link in known if link.state is state), None)
            if link_in_state is not None:
                return state, link_in_state.trouble
        return LinkState.IDLE, None

    def offer(self, principal: Principal | None) -> OfferedTools:
        """Return the known offer to `principal`: its own if each person has an account there, else that to all."""
        return self.offers.of(principal if self.spec.personal else None)

    def link(self, client: UpstreamClient) -> JoinedLink:
        """Return the link for `client`, in its own era if the upstream supports that.
        A modern link serves all clients; one of the handshake protocols serves clients with equal capabilities, which
        it declares once. Raises `Refusal` if there are too many busy links, or if the upstream was removed.
        """
        key = self._key(client)
        joined_link = self._links.get(key)
        if joined_link is None:
            if self.closed:  # a new link would never be closed
                raise Refusal(Reason.BACKEND_UNAVAILABLE, f"The upstream {self.spec.name} is gone, or another now.")
            self._make_room(client.principal.id)
            joined_link = self._links[key] = JoinedLink(
                client.principal.id, self.spawn, partial(self._link, key, client)
            )
            joined_link.task = self.spawn(joined_link.link.run())
        return joined_link

    def find_link(self, client: UpstreamClient) -> JoinedLink | None:
        """Return the existing link for `client`, or None."""
        return self._links.get(self._key(client))

    def has(self, joined_link: JoinedLink) -> bool:
        """Return whether this link is still in use."""
        return any(other is joined_link for other in self._links.values())

    async def session(self, client: UpstreamClient) -> tuple[JoinedLink, LinkSession]:
        """Return the connection for `client`, made if necessary. Raises `Refusal`."""
        joined_link = self.link(client)
        return joined_link, await joined_link.link.session()

    @contextmanager
    def turn(self, id: str) -> Iterator[None]:
        """Count a call of the principal `id` in flight. Raises `Refusal` (`rate-limited`) beyond its limit."""
        most, calls = max(1, self.spec.calls // SHARE), self._calls
        before = calls.get(id, 0)
        if before >= most:
            _CALLS.report(id)
            raise Refusal(Reason.RATE_LIMITED, f"{most} calls of yours to {self.spec.name} are in flight already.")
        calls[id] = before + 1
        try:
            yield
        finally:
            left = calls[id] - 1
            if left:
                calls[id] = left
            else:
                del calls[id]

    def spawn(self, job: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `job` while the upstream exists; its errors are logged."""
        task = self._tasks.create_task(_contain(self.spec.name, job))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(lambda _: job.close())  # for a job cancelled before it began
        return task

    def credential_changed(self) -> None:
        """Open WebSockets and event streams again, which carry the credential that they began with.

        Other requests take the new one.
        """
        if self.spec.kind in REMOTE:
            self.renew("its credential changed")

    def tools_changed(self, principal: Principal | None = None) -> None:
        """Notify the followers, or those of `principal`, that they are offered other tools."""
        for joined_link in set(self._links.values()):
            if principal is None:
                joined_link.feed.pass_on(KINDS["toolsListChanged"], {})
            else:
                joined_link.feed.tell_owner(principal.id, KINDS["toolsListChanged"])

    @property
    def is_shared(self) -> bool:
        """True if one node runs it for all."""
        return self._places is not None

    def renew(self, why: str) -> None:
        """Let new connections take the place of the open ones, on which the calls in flight are still answered."""
        for joined_link in set(self._links.values()):
            joined_link.link.renew(why)

    async def close(self) -> None:
        """End every connection, and notify followers that everything may have changed."""
        self.closed = True
        for joined_link in set(self._links.values()):
            for method in KINDS.values():
                joined_link.feed.pass_on(method, {})
        running = list(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    def _key(self, client: UpstreamClient) -> LinkKey:
        owner = client.principal.id if self.spec.personal else ""
        modern = client.modern if self._only is None else self._only
        if modern and not owner:
            return _FOR_ALL
        return LinkKey(owner, "" if modern else client.key, modern)

    def _link(self, key: LinkKey, client: UpstreamClient, joined_link: JoinedLink) -> Link:
        def on_reconnect(session: LinkSession) -> None:
            if session.terms.modern is not key.modern:  # the upstream does not speak the requested era
                self._only = session.terms.modern
                self._links.setdefault(self._key(client), joined_link)
            joined_link.reconnected(session)

        return Link(
            self.spec.name,
            lambda: self._dial(client.principal),
            client.capabilities,
            modern=key.modern,
            start=self.spec.start,
            timeout=self.spec.timeout,
            most=self.spec.calls,
            on_notification=joined_link.feed.pass_on,
            prepare=joined_link.feed.log_again,
            on_reconnect=on_reconnect,
            is_wanted=lambda: bool(joined_link.feed.followers),
        )

    def _make_room(self, owner: str) -> None:
        """Evict an idle connection at the limit, one of `owner` at its own limit. Raises `Refusal` if none is idle."""
        most = self.spec.connections
        mine = sum(one.owner == owner for one in set(self._links.values()))
        greedy = mine >= max(1, most // SHARE)
        if len(self._links) < most and not greedy:
            return
        _CALLS.report(owner)
        resting = [
            key
            for key, one in self._links.items()
            if not one.link.busy and not one.feed.followers and (not greedy or one.owner == owner)
        ]
        if not resting:
            whose = " of yours" if greedy else ""
            detail = f"The upstream {self.spec.name} has {mine if greedy else most} busy connections{whose} already."
            raise Refusal(Reason.RATE_LIMITED if greedy else Reason.BACKEND_UNAVAILABLE, detail)
        oldest = self._links.pop(min(resting, key=lambda key: self._links[key].link.used_at))
        if oldest.task is not None and oldest not in self._links.values():
            oldest.task.cancel()

    def _dial(self, principal: Principal) -> Carrier:
        spec, limit, in_turn = self.spec, self.spec.message, self._connections.in_turn
        match spec.kind:
            case UpstreamKind.COMMAND:
                start = partial(
                    Process,
                    spec.name,
                    spec.command,
                    env={name: value.reveal() for name, value in spec.env.items()},
                    cwd=spec.cwd,
                    limit=limit,
                    in_turn=in_turn,
                    reaper=self._connections.reaper,
                    leased=self._places is not None,
                )
                if self._places is None:
                    return start()
                return SharedProcess(spec.name, self._places, start, in_turn=in_turn, limit=limit)
            case UpstreamKind.INSIDE:
                from gateway.mcp.upstreams.transport.in_process import (  # noqa: PLC0415  it loads the high-level server
                    InProcess,
                )

                return InProcess(spec.target, limit=limit, in_turn=in_turn)
            case _:
                return self._remote(principal)

    def _remote(self, principal: Principal) -> Carrier:
        spec, credentials = self.spec, self._credentials(principal)
        if spec.kind is UpstreamKind.WEBSOCKET:
            session, in_turn = partial(self._connections.open, spec.network), self._connections.in_turn
            return WebSocket(session, spec.target, credentials=credentials, limit=spec.message, in_turn=in_turn)
        carrier = OlderSse if spec.kind is UpstreamKind.SSE else StreamableHttp
        return carrier(self._connections, spec.network, spec.target, credentials=credentials, limit=spec.message)

    def _credentials(self, principal: Principal) -> Credentials:
        name, authenticator = self.spec.credential, self._authenticator

        async def inject(method: str, url: str) -> InjectedFields:
            return await authenticator.inject(name, principal, method, url)

        async def take_response(credential_fields: InjectedFields, url: str, status: int, headers: Headers) -> bool:
            return await authenticator.take_response(name, principal, credential_fields, url, status, headers)

        echoed_before = False

        def on_echo() -> None:
            nonlocal echoed_before
            first, echoed_before = not echoed_before, True
            self._on_echo(principal, first)

        return Credentials(inject, take_response, on_echo)


async def _contain(name: str, job: Coroutine[Any, Any, None]) -> None:
    try:
        await job
    except Refusal as refusal:
        log.info("upstream %s: %s", name, refusal.detail)
    except Exception:  # an upstream's errors must not reach the others
        log.exception("upstream %s: a task failed", name)
