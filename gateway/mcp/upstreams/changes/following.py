"""The followers of one upstream's changes: sessions of the handshake protocols, and streams of modern clients."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY

from gateway.bounds import Area, Bound, size
from gateway.errors import Reason, Refusal
from gateway.jsontext.writing import plain_json
from gateway.mcp.standing_streams import SessionChannel
from gateway.mcp.upstreams.calls.client import UpstreamClient
from gateway.mcp.upstreams.catalog.listing import account_is_missing
from gateway.mcp.upstreams.changes import feed
from gateway.mcp.upstreams.changes.feed import ChangeListener
from gateway.mcp.upstreams.transport.conversation import Message, UpstreamLost
from gateway.mcp.upstreams.upstream import JoinedLink, Upstream
from gateway.model import Principal

BACKLOG = 256
"""Notifications of other kinds queued for one client; beyond, further ones are dropped."""

MOST = 2 * feed.MAX_URIS
"""Limit of list and resource notifications in the queue: an upstream may report ever new parts of a resource."""

QUEUED = 8 * 1024 * 1024
"""Bytes of all of them."""

MAX_STREAMS = 1024

STREAMS_EACH = 128
"""Streams of one principal."""

BOUNDS: Final = (
    Bound(
        Area.UPSTREAMS,
        "change streams of an upstream",
        f"{STREAMS_EACH} per principal, {MAX_STREAMS:,} in all",
        "an error",
    ),
    Bound(
        Area.UPSTREAMS,
        "queued notifications for a client",
        f"{BACKLOG} per client; the latest per list and resource, {MOST:,}; {size(QUEUED)} together",
        "further ones are dropped",
    ),
)

_STREAMS, _NEWS = BOUNDS


class News:
    """The queue of notifications for a client, with at most one for each list and each resource that changed.

    They are sent on the `channel` of a session; without one, `get` returns them.
    """

    def __init__(self, channel: SessionChannel | None = None) -> None:
        self._waiting: dict[tuple[str, object], Message] = {}
        self._size = 0
        self._some = asyncio.Event()
        self._announce = channel.announcer(self.take) if channel is not None else self._some.set

    def tell(self, method: str, params: Message) -> None:
        """Add a notification; must not block."""
        if method == feed.UPDATED:
            self._put((method, str(params.get("uri"))), params, MOST)
        elif method in feed.KINDS.values():
            self._put((method, None), params, MOST)
        else:
            self._put((method, object()), params, BACKLOG)
        self._announce()

    def _put(self, key: tuple[str, object], params: Message, most: int) -> None:
        """Queue a notification, or update the queued one with this key; there may be `most` then."""
        known = self._waiting.get(key)
        growth = self._size + _bytes_of(params) - (0 if known is None else _bytes_of(known))
        full = (known is None and len(self._waiting) >= most) or growth > QUEUED
        if full and key[1] is not None:  # those of lists are few
            _NEWS.report()
            return
        self._waiting[key], self._size = params, growth

    async def get(self) -> tuple[str, Message]:
        """Return the oldest notification, once there is one."""
        while (oldest := self.take()) is None:
            self._some.clear()
            await self._some.wait()
        return oldest

    def take(self) -> tuple[str, Message] | None:
        """Return the oldest notification, if there is one."""
        key = next(iter(self._waiting), None)
        if key is None:
            return None
        params = self._waiting.pop(key)
        self._size -= _bytes_of(params)
        return key[0], params


def _bytes_of(params: Message) -> int:
    return len(plain_json(params))


class ListenStreams:
    """The open streams of modern clients at one mount."""

    def __init__(self) -> None:
        self._open: dict[asyncio.Event, Principal] = {}

    @contextmanager
    def one(self, principal: Principal) -> Iterator[asyncio.Event]:
        """Register a stream; yield the event that ends it. Raises `MCPError` beyond the limits."""
        mine = sum(other == principal for other in self._open.values())
        if len(self._open) >= MAX_STREAMS or mine >= STREAMS_EACH:
            _STREAMS.report(principal.id)
            raise MCPError(types.INTERNAL_ERROR, "Too many clients listen already.")
        over = asyncio.Event()
        self._open[over] = principal
        try:
            yield over
        finally:
            del self._open[over]

    def drain(self) -> None:
        """End all streams."""
        for stream in list(self._open):
            stream.set()


@dataclass(eq=False, slots=True)
class _FollowedSession:
    """One session of the handshake protocols, with its follower."""

    joined_link: JoinedLink
    follower: ChangeListener


class Following:
    """The followers of `upstream` at its own mount."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._sessions: dict[str, _FollowedSession] = {}
        self.streams = ListenStreams()

    async def follow(self, client: UpstreamClient) -> None:
        """Notify a session of changes, until it has ended."""
        try:
            await self._listen(client, self._session(client).joined_link)
        except Refusal:
            self.forget_session(client.who)  # a removed upstream sends no changes

    def forget_session(self, who: str) -> None:
        """Forget a session that has ended."""
        session = self._sessions.pop(who, None)
        if session is not None:
            self._upstream.spawn(session.joined_link.feed.remove(session.joined_link.link, session.follower))

    async def subscribe(self, client: UpstreamClient, params: Message) -> Message:
        """Send a session updates of one resource."""
        known = self._session(client)
        with refuse_if_lost():
            await known.joined_link.feed.subscribe(known.joined_link.link, known.follower, str(params["uri"]))
        return {}

    async def unsubscribe(self, client: UpstreamClient, params: Message) -> Message:
        """Send a session no more updates of the resource."""
        known = self._session(client)
        await known.joined_link.feed.unsubscribe(known.joined_link.link, known.follower, str(params["uri"]))
        return {}

    async def listen(self, client: UpstreamClient, params: Message) -> Message:
        """Serve the stream of changes of a modern client."""
        with self.streams.one(client.principal) as over:
            joined_link = self._upstream.link(client)
            news = News()
            follower = ChangeListener(news.tell, client.principal.id)
            joined_link.feed.add(follower)
            try:
                with refused_is_left_out(params), refuse_if_lost():
                    await joined_link.feed.subscribe(joined_link.link, follower, *uris_of(params))
                if not follower.uris:
                    with refuse_if_lost():
                        await self._listen(client, joined_link)
                return await tell_all(client, params, follower.uris, news, over)
            finally:
                self._upstream.spawn(joined_link.feed.remove(joined_link.link, follower))

    async def _listen(self, client: UpstreamClient, joined_link: JoinedLink) -> None:
        """Open the upstream's stream of changes; one that needs an account opens once that is connected."""
        try:
            _, session = await self._upstream.session(client)
        except Refusal as refusal:
            if not account_is_missing(refusal):
                raise
        else:
            await joined_link.feed.listen(session)

    def _session(self, client: UpstreamClient) -> _FollowedSession:
        known = self._sessions.get(client.who)
        if known is None:
            joined_link = self._upstream.link(client.without_request())
            follower = ChangeListener(News(client.channel).tell, client.principal.id)
            known = self._sessions[client.who] = _FollowedSession(joined_link, follower)
            joined_link.feed.add(known.follower)
        return known


async def tell_all(
    client: UpstreamClient, params: Message, followed: Collection[str], news: News, over: asyncio.Event
) -> Message:
    """Acknowledge a modern client's stream, and send it all notifications until `over`; return the stream's result."""
    notifications: Message = dict.fromkeys(_kinds_of(params), True)
    methods = {feed.KINDS[kind] for kind in notifications} | {feed.UPDATED}
    if uris := [uri for uri in uris_of(params) if uri in followed]:
        notifications["resourceSubscriptions"] = uris
    meta = {SUBSCRIPTION_ID_META_KEY: client.way.request_id if client.way is not None else None}
    await client.tell(feed.ACKNOWLEDGED, {"notifications": notifications, "_meta": meta})
    while (news_params := await _next(news, over)) is not None:
        method, told_params = news_params
        if method in methods:
            await client.tell(method, {**told_params, "_meta": meta})
    return {"resultType": "complete", "_meta": meta}


def uris_of(params: Message) -> list[str]:
    """Return the resources that a modern client wants to follow."""
    notifications = params.get("notifications")
    uris = notifications.get("resourceSubscriptions") if isinstance(notifications, dict) else None
    return [str(uri) for uri in uris] if isinstance(uris, list) else []


def _kinds_of(params: Message) -> list[str]:
    """Return the kinds of lists that a modern client wants to follow."""
    notifications = params.get("notifications")
    return [kind for kind in feed.KINDS if isinstance(notifications, dict) and notifications.get(kind) is True]


@contextmanager
def refused_is_left_out(params: Message) -> Iterator[None]:
    """Suppress a refusal of all resources if the client also follows lists."""
    try:
        yield
    except (MCPError, Refusal):
        if not _kinds_of(params):
            raise


@contextmanager
def refuse_if_lost() -> Iterator[None]:
    """Convert an unavailable or silent upstream into a `Refusal`."""
    try:
        yield
    except (UpstreamLost, TimeoutError) as error:
        raise Refusal(Reason.BACKEND_UNAVAILABLE, f"The upstream did not answer: {error}.") from error


async def _next(news: News, over: asyncio.Event) -> tuple[str, Message] | None:
    """Return the next notification; None when the stream ends."""
    coming, ending = asyncio.ensure_future(news.get()), asyncio.ensure_future(over.wait())
    try:
        await asyncio.wait({coming, ending}, return_when=asyncio.FIRST_COMPLETED)
        return coming.result() if coming.done() else None
    finally:
        coming.cancel()
        ending.cancel()
