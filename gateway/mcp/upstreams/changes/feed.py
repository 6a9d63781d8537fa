"""Change notifications of an upstream, shared by all followers: of lists, and of single resources."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final
from weakref import WeakValueDictionary

import mcp_types as types
from mcp.shared.exceptions import MCPError

from gateway.bounds import Area, Bound, Shares
from gateway.errors import Refusal
from gateway.jsontext.writing import plain_json
from gateway.mcp.upstreams.transport.conversation import Message, UpstreamLost
from gateway.mcp.upstreams.transport.handshake import INFO, envelope, headers
from gateway.mcp.upstreams.transport.link import FIRST_WAIT, LONGEST_WAIT, STEADY, Link, LinkSession
from gateway.mcp.upstreams.transport.notifications import LARGEST_CHANGE

log = logging.getLogger(__name__)

KINDS = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}
UPDATED = "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
ANSWER_TIMEOUT = 10.0
"""Seconds that an upstream has to acknowledge a subscription."""

INTERVAL = 1.0
"""Seconds between two notifications of the same list's change: after each, all followers request the list."""

MAX_URIS = 1000
"""Resources of one upstream that one principal may follow at a time; each of its clients counts."""

ALL_URIS = 16 * 1024
"""Subscribed resources of all principals on one connection."""

LONGEST, DEEPEST = 4096, 64
"""Limits on a resource's address, in characters and parts: no longer one is followed, and enclosing resources are
matched within them."""

BOUNDS: Final = (
    Bound(
        Area.UPSTREAMS,
        "subscribed resources of an upstream",
        f"{MAX_URIS:,} per principal, {ALL_URIS:,} in all, of each connection; beyond half of it, a small share "
        f"per principal; {LONGEST:,} characters each",
        "an error",
    ),
)

(_FOLLOWED,) = BOUNDS

_BORDER: Final = re.compile("[/?#]")


@dataclass(eq=False, slots=True)
class ChangeListener:
    """A follower of changes for the principal `owner`; `tell` must not block."""

    tell: Callable[[str, Message], None]
    owner: str = ""
    uris: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Resource:
    """One resource with its number of followers; `asked` means that the upstream was asked to send its updates."""

    followers: int = 0
    asked: bool = False


@dataclass(eq=False, frozen=True, slots=True)
class _Coverage:
    """The resources that a modern upstream's stream was opened for, and those that the upstream acknowledged."""

    session: LinkSession
    uris: frozenset[str]
    acknowledged_uris: frozenset[str]


class Feed:
    """The followers of one link; `level` is the log level set at a handshake upstream for them."""

    def __init__(self, spawn: Callable[..., asyncio.Task[None]]) -> None:
        self.followers: set[ChangeListener] = set()
        self.level: str | None = None
        self._spawn = spawn
        self._uris: dict[str, _Resource] = {}
        self._places = Shares(MAX_URIS, ALL_URIS)
        self._listening: asyncio.Task[None] | None = None
        self._coverage: _Coverage | None = None
        self._changing = asyncio.Lock()
        self._busy = WeakValueDictionary[str, asyncio.Lock]()
        self._notified_at: dict[str, float] = {}
        self._due: set[str] = set()

    def add(self, follower: ChangeListener) -> None:
        """Send the follower changes of lists from now on."""
        self.followers.add(follower)

    async def remove(self, link: Link, follower: ChangeListener) -> None:
        """Remove the follower; without followers the stream ends."""
        self.followers.discard(follower)
        if not self.followers and self._listening is not None:
            self._listening.cancel()
            self._coverage = None
        await self.unsubscribe(link, follower, *follower.uris)

    async def subscribe(self, link: Link, follower: ChangeListener, *uris: str) -> None:
        """Send the follower updates of those of the resources `uris` that the upstream accepts.
        They are then among its `uris`. Raises `MCPError` if all are refused, `UpstreamLost`, `Refusal`.
        """
        short = [uri for uri in uris if len(uri) <= LONGEST]
        if len(short) < len(uris):
            _FOLLOWED.report(follower.owner or None)
        if uris and not short:
            raise MCPError(types.INVALID_PARAMS, f"A resource is followed if its URI has at most {LONGEST} characters.")
        async with self._alone(*short):
            if follower not in self.followers:
                return  # it was removed meanwhile
            new = set(short) - follower.uris
            if not self._places.take(follower.owner, len(new)):
                _FOLLOWED.report(follower.owner or None)
                raise MCPError(-32603, "Too many resources of this upstream are followed already.")
            follower.uris |= new
            for uri in new:
                self._uris.setdefault(uri, _Resource()).followers += 1
            try:
                refusals = await self._have_told(link, new)
            except BaseException:  # also on cancellation, as there is no follower then
                self._leave(follower, *new)
                raise
            self._leave(follower, *refusals)
            if refusals and follower.uris.isdisjoint(short):
                raise next(iter(refusals.values()))

    @asynccontextmanager
    async def _alone(self, *uris: str) -> AsyncIterator[None]:
        """Lock these resources, so that subscriptions reach the upstream in order."""
        async with AsyncExitStack() as stack:
            for uri in sorted(set(uris)):
                await stack.enter_async_context(self._busy.setdefault(uri, asyncio.Lock()))
            yield

    async def _have_told(self, link: Link, uris: set[str]) -> dict[str, MCPError]:
        """Subscribe to resources at the upstream; return those that it refuses, with the errors."""
        refusals: dict[str, MCPError] = {}
        if not uris:
            return refusals
        session = await link.session()
        if session.terms.modern:
            await self._open(session)
            silent = (
                uris & (self._coverage.uris - self._coverage.acknowledged_uris) if self._coverage is not None else ()
            )
            return dict.fromkeys(silent, MCPError(types.INVALID_PARAMS, "The upstream does not tell of this resource."))
        for uri in uris:
            try:
                await self._subscribe(link, uri)
            except MCPError as error:
                refusals[uri] = error
        return refusals

    async def _subscribe(self, link: Link, uri: str) -> None:
        """Subscribe at a handshake upstream, once for all followers; after a refusal the next follower tries again."""
        resource = self._uris.get(uri)
        if resource is None or resource.asked:
            return
        try:
            await _ask(await link.session(), "resources/subscribe", {"uri": uri})
        except UpstreamLost as lost:
            if not lost.unsent:
                raise
            await _ask(await link.session(), "resources/subscribe", {"uri": uri})
        resource.asked = True

    async def unsubscribe(self, link: Link, follower: ChangeListener, *uris: str) -> None:
        """Send the follower no more updates of the resources `uris`."""
        async with self._alone(*uris):
            left = self._leave(follower, *uris)
            session, unfollowed_uris = link.now, left - self._uris.keys()
            if not unfollowed_uris or session is None:
                return
            if session.terms.modern:
                await self.listen(session)
                return
            for uri in unfollowed_uris:
                try:
                    await _ask(session, "resources/unsubscribe", {"uri": uri})
                except (MCPError, UpstreamLost, TimeoutError) as error:
                    log.debug("a resource was not unsubscribed: %s", error)

    def pass_on(self, method: str, params: Message) -> None:
        """Pass on a notification of the upstream."""
        if method == UPDATED:
            means = set(_with_wholes(str(params.get("uri"))))
            for follower in [one for one in self.followers if not one.uris.isdisjoint(means)]:
                follower.tell(method, params)
        elif method in KINDS.values():
            self._notify_change(method, params)
        elif method not in (ACKNOWLEDGED, "notifications/message", "notifications/progress"):
            if len(plain_json(params)) > LARGEST_CHANGE:
                log.warning("a notification of more than %d bytes is not passed on: %s", LARGEST_CHANGE, method[:100])
                return
            for follower in list(self.followers):
                follower.tell(method, params)

    def tell_owner(self, owner: str, method: str) -> None:
        """Notify the followers of one principal alone."""
        for follower in [one for one in self.followers if one.owner == owner]:
            follower.tell(method, {})

    def _notify_change(self, method: str, params: Message) -> None:
        """Notify followers of a list's change: at once, and then at most once per `INTERVAL`."""
        now, due = asyncio.get_running_loop().time(), self._notified_at.get(method, -math.inf) + INTERVAL
        if method in self._due:
            return
        if now >= due:
            self._tell(method, params)
        else:
            self._due.add(method)
            asyncio.get_running_loop().call_at(due, self._tell, method, params)

    def _tell(self, method: str, params: Message) -> None:
        self._due.discard(method)
        self._notified_at[method] = asyncio.get_running_loop().time()
        for follower in list(self.followers):
            follower.tell(method, params)

    async def listen(self, session: LinkSession) -> None:
        """Reopen the stream of a modern upstream if the followed resources changed; the old one ends."""
        try:
            if session.terms.modern:
                await self._open(session)
        except MCPError as error:
            log.debug("an upstream refuses to tell of changes: %s", error)

    async def _open(self, session: LinkSession) -> None:
        """Do the same as `listen`. Raises `MCPError` if the upstream refuses, and keeps the old stream."""
        async with self._changing:
            if not self.followers or self._covers(session):
                return
            before, acknowledgement = self._listening, asyncio.get_running_loop().create_future()
            self._listening = self._spawn(self._stream(session, acknowledgement))
            try:
                await asyncio.wait(
                    {acknowledgement, self._listening}, timeout=ANSWER_TIMEOUT, return_when=asyncio.FIRST_COMPLETED
                )
                if acknowledgement.done():
                    acknowledgement.result()
            except MCPError:
                if self._coverage is not None:
                    before, self._listening = self._listening, before
                raise
            finally:
                if before is not None:
                    before.cancel()

    def _covers(self, session: LinkSession) -> bool:
        coverage = self._coverage
        return coverage is not None and coverage.session is session and coverage.acknowledged_uris == self._uris.keys()

    async def restore(self, session: LinkSession, *, again: bool) -> None:
        """Follow the same changes on a new connection, and report that everything may have changed."""
        try:
            if session.terms.modern:
                await self.listen(session)
            elif again:
                await self._subscribe_again(session)
        except (MCPError, UpstreamLost, TimeoutError, Refusal) as error:
            log.warning("what was followed could not be followed again: %s", error)
        if again:
            self._report_gap()

    async def log_again(self, session: LinkSession) -> None:
        """Set the former log level on a new connection, before its first use."""
        if self.level is not None and not session.terms.modern:
            with suppress(MCPError, UpstreamLost, TimeoutError):
                await _ask(session, "logging/setLevel", {"level": self.level}, timeout=ANSWER_TIMEOUT)

    async def _subscribe_again(self, session: LinkSession) -> None:
        """Subscribe to each resource again; a refusal does not affect the others."""
        for uri in list(self._uris):
            async with self._alone(uri):
                resource = self._uris.get(uri)
                if resource is None:
                    continue  # no longer followed
                try:
                    await _ask(session, "resources/subscribe", {"uri": uri})
                except MCPError as error:
                    resource.asked = False
                    log.warning("a resource could not be followed again: %s", error)

    def _report_gap(self) -> None:
        """Report every list and resource as changed after a gap."""
        for method in KINDS.values():
            self.pass_on(method, {})
        for uri in list(self._uris):
            self.pass_on(UPDATED, {"uri": uri})

    async def _stream(self, session: LinkSession, acknowledgement: asyncio.Future[None]) -> None:
        """Keep a stream open while there are followers and the connection is open.
        `acknowledgement` resolves when the upstream acknowledges the stream, or refuses it.
        """
        failures = 0
        while True:
            began = time.monotonic()
            try:
                await self._listen_once(
                    session, self._report_gap if acknowledgement.done() else partial(acknowledgement.set_result, None)
                )
            except (UpstreamLost, MCPError) as error:
                log.debug("an upstream sends no notifications of changes: %s", error)
                if isinstance(error, MCPError) and not acknowledgement.done():
                    acknowledgement.set_exception(error)
                    acknowledgement.exception()  # marks the exception as retrieved
                if isinstance(error, MCPError) and error.error.code == types.METHOD_NOT_FOUND:
                    return
            if not acknowledgement.done():
                acknowledgement.set_result(None)
            if session.conversation.over.done() or not self.followers:
                return
            failures = 0 if time.monotonic() - began > STEADY else failures + 1
            await asyncio.sleep(min(FIRST_WAIT * 2 ** min(failures, 10), LONGEST_WAIT))

    async def _listen_once(self, session: LinkSession, on_start: Callable[[], None]) -> None:
        """Read one stream until it ends; `on_start` is called when the upstream acknowledges it."""
        uris = frozenset(self._uris)
        notifications: Message = dict.fromkeys(KINDS, True) | ({"resourceSubscriptions": list(uris)} if uris else {})
        params: Message = {"notifications": notifications, "_meta": envelope(session.terms.version, {}, INFO)}
        fields = headers(session.terms, "subscriptions/listen", params)
        coverage: _Coverage | None = None

        def hear(method: str, params: Message) -> None:
            nonlocal coverage
            if method == ACKNOWLEDGED:
                first, acknowledged_uris = coverage is None, uris & _read_acknowledged(params)
                coverage = self._coverage = _Coverage(session, uris, acknowledged_uris)
                if first:
                    on_start()
            else:
                self.pass_on(method, {key: value for key, value in params.items() if key != "_meta"})

        request = session.conversation.request
        try:
            await request("subscriptions/listen", params, hear=hear, headers=fields, timeout=math.inf)
        finally:
            if self._coverage is coverage:
                self._coverage = None

    def _leave(self, follower: ChangeListener, *uris: str) -> set[str]:
        """Remove the follower from these resources; return those that it followed."""
        left = follower.uris & set(uris)
        follower.uris -= left
        self._places.give(follower.owner, len(left))
        for uri in left:
            self._uris[uri].followers -= 1
            if not self._uris[uri].followers:
                del self._uris[uri]
        return left


def _read_acknowledged(params: Message) -> frozenset[str]:
    """Return the resources that an upstream acknowledged."""
    notifications = params.get("notifications")
    uris = notifications.get("resourceSubscriptions") if isinstance(notifications, dict) else None
    return frozenset(uri for uri in uris if isinstance(uri, str)) if isinstance(uris, list) else frozenset()


def _with_wholes(uri: str) -> Iterator[str]:
    """Yield an address and those that may enclose it: an upstream may report a part of a followed resource."""
    yield uri
    for part in islice(_BORDER.finditer(uri), DEEPEST) if len(uri) <= LONGEST else ():
        yield uri[: part.start()]
        yield uri[: part.end()]


async def _ask(session: LinkSession, method: str, params: Message, timeout: float | None = None) -> None:
    fields = headers(session.terms, "", {})
    await session.conversation.request(method, params, headers=fields, timeout=timeout)
