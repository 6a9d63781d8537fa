"""What the upstreams were heard to list, side by side; one that is slow delays none of the others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from mcp.shared.exceptions import MCPError

from gateway.config.upstreams import Kind
from gateway.errors import Refusal
from gateway.mcp.upstreams import accounts, feed
from gateway.mcp.upstreams.client import UpstreamClient
from gateway.mcp.upstreams.conversation import Message
from gateway.mcp.upstreams.feed import Follower
from gateway.mcp.upstreams.link import unreachable
from gateway.mcp.upstreams.listing import KEYS
from gateway.mcp.upstreams.offers import Offer
from gateway.mcp.upstreams.proxy import Proxy
from gateway.mcp.upstreams.upstream import Joined
from gateway.model import Principal

FIRST = 3.0
"""Seconds that lists wait for an upstream which the gateway itself starts, from when it was first asked for one: all
of them together, and no call of a client waits as long again."""

NEW = 1.0
"""Seconds that they wait for one that runs elsewhere, and for a list of one that gave others: it comes later, then."""

LATER = 0.25
"""Seconds that it waits for one whose last list is known."""

NEEDS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resources",
    "prompts/list": "prompts",
}

STARTED = frozenset((Kind.COMMAND, Kind.INSIDE))
"""What the gateway itself starts."""

NAMES = {"resources/list": "uri", "resources/templates/list": "uriTemplate", "prompts/list": "name"}
"""By what member a client asks for a thing of a list."""


@dataclass(eq=False, slots=True)
class Heard:
    """What one upstream was heard to list, by method, to whom an offer of it is for, what is being asked, and why
    that was not answered.

    `since` says when each list was first asked for. `missed` are those without which clients were answered, and `slow`
    those that no list waits for until they are there.
    """

    known: dict[str, list[Message]] = field(default_factory=dict)
    asking: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    refused: dict[str, Refusal] = field(default_factory=dict)
    since: dict[str, float] = field(default_factory=dict)
    missed: set[str] = field(default_factory=set)
    slow: set[str] = field(default_factory=set)
    watched: Joined | None = None

    def patience(self, method: str, *, starts: bool) -> float:
        """Seconds that a list waits for this one now; `starts` says that the gateway itself starts the upstream."""
        now = time.monotonic()
        self.since.setdefault(method, now)
        if method in self.slow:
            return 0.0
        if method in self.known:
            return LATER
        if self.known:
            return self.since[method] + NEW - now
        return min(self.since.values()) + (FIRST if starts else NEW) - now


class Lists:
    """The lists of all upstreams. `proxies` are those that there are now.

    `changed` hears of each list that is another now than clients were told.
    """

    def __init__(self, proxies: Callable[[], Mapping[str, Proxy]], changed: Callable[[str], None]) -> None:
        self._proxies = proxies
        self._changed = changed
        self._heard: WeakKeyDictionary[Offer, Heard] = WeakKeyDictionary()

    def known(self, method: str, principal: Principal | None) -> dict[str, list[Message]]:
        """What each upstream lists to `principal`, in the order of the configuration."""
        found: dict[str, list[Message]] = {}
        for name, proxy in self._proxies().items():
            heard = self._heard.get(proxy.upstream.offer(principal))
            if heard is not None and (listed := heard.known.get(method)) is not None:
                found[name] = listed
        return found

    async def refresh(self, client: UpstreamClient, method: str) -> None:
        """Ask every upstream for its list, side by side, and wait for each only as long as it does not delay others."""
        waiting = [self._refreshed(proxy, client, method) for proxy in self._proxies().values()]
        await asyncio.gather(*waiting)

    async def _refreshed(self, proxy: Proxy, client: UpstreamClient, method: str) -> None:
        heard, task = self._asked(proxy, client, method)
        patience = heard.patience(method, starts=proxy.upstream.spec.kind in STARTED)
        if patience > 0:
            await asyncio.wait({task}, timeout=patience)
        if not task.done():
            heard.slow.add(method)
        if method not in heard.known:
            heard.missed.add(method)

    async def hear(
        self, client: UpstreamClient, methods: Iterable[str], names: Iterable[str], enough: Callable[[], bool]
    ) -> None:
        """Wait for these lists of upstreams, side by side, until it is `enough`. Raises the `Refusal` of the first of
        them without which it is not.
        """
        proxies = self._proxies()  # once: the configuration may be read anew meanwhile
        hearing = [asyncio.ensure_future(self._hear(client, methods, name, proxies[name])) for name in names]
        pending = set(hearing)
        try:
            while pending and not enough():
                _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in pending:
                one.cancel()
        if not enough() and (refused := [refusal for one in hearing if (refusal := one.result()) is not None]):
            raise refused[0]

    async def _hear(self, client: UpstreamClient, methods: Iterable[str], name: str, proxy: Proxy) -> Refusal | None:
        """Wait for lists of one upstream, each for as long as a call of it may take; why there is none."""
        for method in methods:
            heard, task = self._asked(proxy, client, method)
            await asyncio.wait({task}, timeout=proxy.upstream.spec.timeout)
            if name not in self.known(method, client.principal):
                return heard.refused.get(method) or unreachable(name, "it has not answered yet")
        return None

    async def remember(self, principal: Principal | None, *methods: str) -> None:
        """Read what all upstreams listed before the gateway was started, side by side: the database may be down."""
        offers = [proxy.upstream.offer(principal) for proxy in self._proxies().values()]
        await asyncio.gather(*(offer.fingerprints.load(method) for offer in offers for method in methods))

    def _asked(self, proxy: Proxy, client: UpstreamClient, method: str) -> tuple[Heard, asyncio.Task[None]]:
        """What is known of an upstream, and the task that asks it for a list now."""
        heard = self._heard.setdefault(proxy.upstream.offer(client.principal), Heard())
        task = heard.asking.get(method)
        if task is None or task.done():
            task = heard.asking[method] = proxy.upstream.spawn(self._ask(proxy, client, method, heard))
        return heard, task

    async def _ask(self, proxy: Proxy, client: UpstreamClient, method: str, heard: Heard) -> None:
        heard.refused.pop(method, None)
        try:
            await self._read(proxy, client, method, heard)
        except Refusal as refusal:
            heard.refused[method] = refusal
            raise

    async def _read(self, proxy: Proxy, client: UpstreamClient, method: str, heard: Heard) -> None:
        alone = UpstreamClient(client.principal, "", client.version, client.capabilities, client.info)
        fingerprints = proxy.upstream.offer(client.principal).fingerprints
        await self.remember(client.principal, method)  # or its names would go to who is faster than the database
        try:
            joined, session = await proxy.upstream.session(alone)
        except Refusal as refusal:
            if not accounts.is_missing(refusal):
                raise
            heard.known[method] = accounts.listed(proxy.upstream.spec, method)[KEYS[method]]
            heard.slow.discard(method)
            return
        await self._watch(proxy, joined, heard)
        before = heard.known.get(method)
        now: list[Message] = []
        if session.terms.can(NEEDS[method]):
            try:
                pages = proxy.all_tools(alone) if method == "tools/list" else proxy.pages(alone, method)
                now = await pages
            except MCPError:
                now = []  # it has none
        if before != now:  # what was made of the list that was known is good as long as it stays
            heard.known[method] = now
        told = method in heard.missed or (method == "tools/list" and before is not None)
        heard.missed.discard(method)
        heard.slow.discard(method)
        if method != "tools/list":
            await fingerprints.meet(method, (name for one in now if isinstance(name := one.get(NAMES[method]), str)))
        else:
            proxy.upstream.offer(client.principal).keep(now)
        if told and before != now:
            self._changed(method)

    async def _watch(self, proxy: Proxy, joined: Joined, heard: Heard) -> None:
        """Hear of its changes, from now on, on one of its connections: the others may be given up."""
        if heard.watched is not None and proxy.upstream.has(heard.watched):
            return
        heard.watched = joined

        def tell(method: str, _: Message) -> None:
            if method == feed.KINDS["toolsListChanged"]:
                self._changed("tools/list")

        joined.feed.add(Follower(tell))
        if joined.link.now is not None:
            await joined.feed.listen(joined.link.now)
