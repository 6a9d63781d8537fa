"""Subscriptions of clients of `/mcp`: to the changes of all upstreams, and to single resources of any of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import mcp_types as types
from mcp.shared.exceptions import MCPError

from gateway.errors import Refusal
from gateway.mcp.upstreams.calls.client import UpstreamClient
from gateway.mcp.upstreams.catalog.list_cache import Proxies
from gateway.mcp.upstreams.catalog.merging import public_uri
from gateway.mcp.upstreams.changes import feed
from gateway.mcp.upstreams.changes.feed import ChangeListener
from gateway.mcp.upstreams.changes.following import (
    ListenStreams,
    News,
    refuse_if_lost,
    refused_is_left_out,
    tell_all,
    uris_of,
)
from gateway.mcp.upstreams.mount import Proxy
from gateway.mcp.upstreams.transport.conversation import Message
from gateway.mcp.upstreams.upstream import JoinedLink
from gateway.model import Principal

TOOLS = feed.KINDS["toolsListChanged"]

AT_ONCE = 64
"""Resources whose upstreams are looked up concurrently: a client may name any number of them."""

_CHANGES = {
    "prompts/list": feed.KINDS["promptsListChanged"],
    "resources/list": feed.KINDS["resourcesListChanged"],
    "resources/templates/list": feed.KINDS["resourcesListChanged"],
}
"""The notification for a list that came late."""

Owner = Callable[[UpstreamClient, str], Awaitable[tuple[str, str] | None]]
"""Returns the upstream that has a resource of `/mcp`, and its own address of it."""

OwnChanges = Callable[[Principal, Callable[[], None]], Callable[[], None]]
"""Registers a listener for changes of a principal's tools on `/mcp`; the result unsubscribes."""


@dataclass(frozen=True, slots=True, eq=False)
class _MergedPart:
    name: str
    proxy: Proxy
    joined_link: JoinedLink
    follower: ChangeListener


class MergedSubscriptions:
    """One client's subscriptions at the current upstreams, `uris` with their owners; ended by `close`."""

    def __init__(self, client: UpstreamClient, proxies: Proxies, owner: Owner) -> None:
        self.client = client
        self.news = News(client.channel)
        self._proxies = proxies
        self._owner = owner
        self.uris: dict[str, str] = {}
        self._parts: dict[str, _MergedPart] = {}
        self.renew()

    def renew(self) -> None:
        """Follow the current upstreams that the client may use."""
        proxies = self._proxies(self.client.principal)
        for name in [name for name, part in self._parts.items() if proxies.get(name) is not part.proxy]:
            gone = self._parts.pop(name)
            if not gone.proxy.upstream.closed:
                gone.proxy.upstream.spawn(gone.joined_link.feed.remove(gone.joined_link.link, gone.follower))
        for name, proxy in proxies.items():
            if name not in self._parts:
                self._follow(name, proxy)

    async def subscribe(self, *uris: str) -> None:
        """Follow those of these resources that are not refused. Raises `MCPError` or `Refusal` if all are."""
        own: dict[_MergedPart, dict[str, str]] = {}
        refusals: list[MCPError | Refusal] = []
        for begin in range(0, len(uris), AT_ONCE):
            some = uris[begin : begin + AT_ONCE]
            for uri, owner in zip(some, await asyncio.gather(*map(self._find_owner, some)), strict=True):
                if isinstance(owner, tuple):
                    part, theirs = owner
                    own.setdefault(part, {})[theirs] = uri
                else:
                    refusals.append(owner)
        for part, uri_of_part in own.items():
            try:
                with refuse_if_lost():
                    await part.joined_link.feed.subscribe(part.joined_link.link, part.follower, *uri_of_part)
            except (MCPError, Refusal) as error:
                refusals.append(error)
            self.uris |= {uri: part.name for theirs, uri in uri_of_part.items() if theirs in part.follower.uris}
        if refusals and self.uris.keys().isdisjoint(uris):
            raise refusals[0]

    async def _find_owner(self, uri: str) -> tuple[_MergedPart, str] | MCPError | Refusal:
        """Return the upstream of a resource, and its own address of it, or the error."""
        try:
            with refuse_if_lost():
                owner = await self._owner(self.client, uri)
        except (MCPError, Refusal) as error:
            return error
        part = self._parts.get(owner[0]) if owner is not None else None
        if owner is None or part is None:
            return MCPError(types.INVALID_PARAMS, f"Unknown resource: {uri[:200]}", {"uri": uri[:200]})
        return part, owner[1]

    async def unsubscribe(self, uri: str) -> None:
        """Stop following a resource."""
        part = self._parts.get(self.uris.pop(uri, ""))
        owner = await self._owner(self.client, uri)
        if part is not None and owner is not None:
            await part.joined_link.feed.unsubscribe(part.joined_link.link, part.follower, owner[1])

    def close(self) -> None:
        """End all subscriptions."""
        for part in self._parts.values():
            part.proxy.upstream.spawn(part.joined_link.feed.remove(part.joined_link.link, part.follower))

    def _follow(self, name: str, proxy: Proxy) -> None:
        try:
            joined_link = proxy.upstream.link(self.client)
        except Refusal:
            return  # no room for this client at this upstream; the others are followed
        follower = ChangeListener(partial(self._pass_on, name), self.client.principal.id)
        self._parts[name] = _MergedPart(name, proxy, joined_link, follower)
        joined_link.feed.add(follower)
        if joined_link.link.now is not None:
            proxy.upstream.spawn(joined_link.feed.listen(joined_link.link.now))
        for uri in [uri for uri, owner in self.uris.items() if owner == name]:
            proxy.upstream.spawn(self.subscribe(uri))

    def _pass_on(self, name: str, method: str, params: Message) -> None:
        if method == feed.UPDATED:
            params = {**params, "uri": public_uri(name, str(params.get("uri")))}
        if method != TOOLS:  # `/mcp` has its own names of tools, and reports their changes itself
            self.news.tell(method, params)

    def own_tools_changed(self) -> None:
        """Queue a notification that the tools of `/mcp` changed."""
        self.news.tell(TOOLS, {})


class MergedChanges:
    """The clients with subscriptions. `own` reports changes of the tools on `/mcp`."""

    def __init__(self, proxies: Proxies, owner: Owner) -> None:
        self._proxies = proxies
        self._owner = owner
        self._all: set[MergedSubscriptions] = set()
        self._sessions: dict[str, MergedSubscriptions] = {}
        self.streams = ListenStreams()
        self.own: OwnChanges = lambda _, __: lambda: None

    def renew(self, principal: Principal | None = None) -> None:
        """Follow the upstreams of a changed configuration, or those that `principal` may use now."""
        for one in list(self._all):
            if principal is None or one.client.principal == principal:
                one.renew()

    def notify(self, method: str) -> None:
        """Notify clients of a list's change that no upstream reports."""
        for one in list(self._all):
            one.news.tell(_CHANGES[method], {})

    def follow(self, client: UpstreamClient) -> None:
        """Notify a session of the handshake protocols of changes, except those of tools, until it has ended."""
        self._session(client)

    def forget_session(self, who: str) -> None:
        """Forget a session that has ended."""
        session = self._sessions.pop(who, None)
        if session is not None:
            self._end(session)

    async def subscribe(self, client: UpstreamClient, params: Message) -> Message:
        """Send a session updates of one resource."""
        await self._session(client).subscribe(str(params["uri"]))
        return {}

    async def unsubscribe(self, client: UpstreamClient, params: Message) -> Message:
        """Send a session no more updates of the resource."""
        await self._session(client).unsubscribe(str(params["uri"]))
        return {}

    async def listen(self, client: UpstreamClient, params: Message) -> Message:
        """Serve the stream of changes of a modern client."""
        with self.streams.one(client.principal) as over:
            one = MergedSubscriptions(client, self._proxies, self._owner)
            self._all.add(one)
            stop = self.own(client.principal, one.own_tools_changed)
            try:
                with refused_is_left_out(params):
                    await one.subscribe(*uris_of(params))
                return await tell_all(client, params, one.uris, one.news, over)
            finally:
                stop()
                self._end(one)

    def _session(self, client: UpstreamClient) -> MergedSubscriptions:
        known = self._sessions.get(client.who)
        if known is None:
            known = self._sessions[client.who] = MergedSubscriptions(
                client.without_request(), self._proxies, self._owner
            )
            self._all.add(known)
        return known

    def _end(self, one: MergedSubscriptions) -> None:
        self._all.discard(one)
        one.close()
