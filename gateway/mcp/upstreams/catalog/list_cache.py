"""A cache of the upstreams' lists, refreshed concurrently; a slow upstream delays none of the others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias
from weakref import WeakKeyDictionary

from mcp.shared.exceptions import MCPError

from gateway.config.upstreams import UpstreamKind
from gateway.errors import Refusal
from gateway.mcp.upstreams.calls.client import UpstreamClient
from gateway.mcp.upstreams.catalog.listing import KEYS, account_is_missing, list_without_account
from gateway.mcp.upstreams.catalog.offers import OfferedTools
from gateway.mcp.upstreams.changes import feed
from gateway.mcp.upstreams.changes.feed import ChangeListener
from gateway.mcp.upstreams.mount import Proxy
from gateway.mcp.upstreams.transport.conversation import Message
from gateway.mcp.upstreams.transport.link import unreachable
from gateway.mcp.upstreams.upstream import JoinedLink
from gateway.model import Principal

FIRST = 3.0
"""Seconds that lists wait for an upstream started by the gateway.
They are counted from the first request for any of its lists; no client waits that long again.
"""

NEW = 1.0
"""Seconds that they wait for a remote upstream, or for a new list of one that gave others; later it is announced."""

LATER = 0.25
"""Seconds that they wait for an upstream whose last list is known."""

NEEDS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resources",
    "prompts/list": "prompts",
}

STARTED = frozenset((UpstreamKind.COMMAND, UpstreamKind.INSIDE))
"""The kinds of upstreams that the gateway itself starts."""

NAMES = {"resources/list": "uri", "resources/templates/list": "uriTemplate", "prompts/list": "name"}
"""The member that identifies an entry of a list."""


Proxies: TypeAlias = Callable[[Principal | None], Mapping[str, Proxy]]
"""The current upstreams that a caller may use, in the order of the configuration; all for None."""


@dataclass(eq=False, slots=True)
class KnownLists:
    """The known lists of one upstream for one offer, by method, the running requests, and the last refusals.
    `since` is the time of each list's first request. `omissions` are those without which clients were answered, and
    `slow` those that are not awaited until they arrive.
    """

    lists: dict[str, list[Message]] = field(default_factory=dict)
    asking: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    refusals: dict[str, Refusal] = field(default_factory=dict)
    since: dict[str, float] = field(default_factory=dict)
    omissions: set[str] = field(default_factory=set)
    slow: set[str] = field(default_factory=set)
    watched_link: JoinedLink | None = None

    def timeout(self, method: str, *, starts: bool) -> float:
        """Return the seconds to wait for this list now; `starts` means that the gateway itself starts the upstream."""
        now = time.monotonic()
        self.since.setdefault(method, now)
        if method in self.slow:
            return 0.0
        if method in self.lists:
            return LATER
        if self.lists:
            return self.since[method] + NEW - now
        return min(self.since.values()) + (FIRST if starts else NEW) - now


class Lists:
    """The lists of all upstreams. `proxies` returns the current ones that a caller may use; all for None.
    `on_change` is called for each list that differs from what clients received.
    """

    def __init__(self, proxies: Proxies, on_change: Callable[[str], None]) -> None:
        self._proxies = proxies
        self._on_change = on_change
        self._by_offer: WeakKeyDictionary[OfferedTools, KnownLists] = WeakKeyDictionary()

    def known_lists(self, method: str, principal: Principal | None) -> dict[str, list[Message]]:
        """Return what each upstream lists to `principal`, in the order of the configuration."""
        lists: dict[str, list[Message]] = {}
        for name, proxy in self._proxies(principal).items():
            own_lists = self._by_offer.get(proxy.upstream.offer(principal))
            if own_lists is not None and (things := own_lists.lists.get(method)) is not None:
                lists[name] = things
        return lists

    async def refresh(self, client: UpstreamClient, method: str) -> None:
        """Request every upstream's list concurrently, and wait for each no longer than `Heard.timeout` allows."""
        waiting = [self._refresh(proxy, client, method) for proxy in self._proxies(client.principal).values()]
        await asyncio.gather(*waiting)

    async def _refresh(self, proxy: Proxy, client: UpstreamClient, method: str) -> None:
        known_lists, task = self._request_list(proxy, client, method)
        timeout = known_lists.timeout(method, starts=proxy.upstream.spec.kind in STARTED)
        if timeout > 0:
            await asyncio.wait({task}, timeout=timeout)
        if not task.done():
            known_lists.slow.add(method)
        if method not in known_lists.lists:
            known_lists.omissions.add(method)

    async def hear(
        self, client: UpstreamClient, methods: Iterable[str], names: Iterable[str], enough: Callable[[], bool]
    ) -> None:
        """Wait for these lists of upstreams, concurrently, until `enough` returns True.
        Raises the first `Refusal` if they all end before that.
        """
        proxies = self._proxies(client.principal)  # once: the configuration may be reloaded meanwhile
        hearing = [asyncio.ensure_future(self._hear(client, methods, name, proxies[name])) for name in names]
        pending = set(hearing)
        try:
            while pending and not enough():
                _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in pending:
                one.cancel()
        if not enough() and (refusals := [refusal for one in hearing if (refusal := one.result()) is not None]):
            raise refusals[0]

    async def _hear(self, client: UpstreamClient, methods: Iterable[str], name: str, proxy: Proxy) -> Refusal | None:
        """Wait for lists of one upstream, each as long as one of its calls may take; return the refusal, if any."""
        for method in methods:
            known_lists, task = self._request_list(proxy, client, method)
            await asyncio.wait({task}, timeout=proxy.upstream.spec.timeout)
            if name not in self.known_lists(method, client.principal):
                return known_lists.refusals.get(method) or unreachable(name, "it has not answered yet")
        return None

    async def remember(self, principal: Principal | None, *methods: str) -> None:
        """Load what all upstreams listed before the gateway started, concurrently, as the database may be down."""
        offers = [proxy.upstream.offer(principal) for proxy in self._proxies(principal).values()]
        await asyncio.gather(*(offer.fingerprints.load(method) for offer in offers for method in methods))

    def _request_list(self, proxy: Proxy, client: UpstreamClient, method: str) -> tuple[KnownLists, asyncio.Task[None]]:
        """Return what is known of an upstream, and the task that requests a list now."""
        known_lists = self._by_offer.setdefault(proxy.upstream.offer(client.principal), KnownLists())
        task = known_lists.asking.get(method)
        if task is None or task.done():
            task = known_lists.asking[method] = proxy.upstream.spawn(self._ask(proxy, client, method, known_lists))
        return known_lists, task

    async def _ask(self, proxy: Proxy, client: UpstreamClient, method: str, known_lists: KnownLists) -> None:
        known_lists.refusals.pop(method, None)
        try:
            await self._read(proxy, client, method, known_lists)
        except Refusal as refusal:
            known_lists.refusals[method] = refusal
            raise

    async def _read(self, proxy: Proxy, client: UpstreamClient, method: str, known_lists: KnownLists) -> None:
        alone = UpstreamClient(client.principal, "", client.version, client.capabilities, client.info)
        fingerprints = proxy.upstream.offer(client.principal).fingerprints
        await self.remember(client.principal, method)  # otherwise its names would go to a faster upstream
        try:
            joined_link, session = await proxy.upstream.session(alone)
        except Refusal as refusal:
            if not account_is_missing(refusal):
                raise
            known_lists.lists[method] = list_without_account(proxy.upstream.spec, method)[KEYS[method]]
            known_lists.slow.discard(method)
            return
        await self._watch(proxy, joined_link, known_lists)
        before = known_lists.lists.get(method)
        now: list[Message] = []
        if session.terms.can(NEEDS[method]):
            try:
                pages = proxy.all_tools(alone) if method == "tools/list" else proxy.pages(alone, method)
                now = await pages
            except MCPError:
                now = []  # the upstream has none
        if before != now:  # keep the known list if it is equal, so that caches made from it stay valid
            known_lists.lists[method] = now
        has_news = method in known_lists.omissions or (method == "tools/list" and before is not None)
        known_lists.omissions.discard(method)
        known_lists.slow.discard(method)
        if method != "tools/list":
            await fingerprints.meet(method, (name for one in now if isinstance(name := one.get(NAMES[method]), str)))
        else:
            proxy.upstream.offer(client.principal).keep(now)
        if has_news and before != now:
            self._on_change(method)

    async def _watch(self, proxy: Proxy, joined_link: JoinedLink, known_lists: KnownLists) -> None:
        """Follow its changes on one of its connections, as the others may be closed."""
        if known_lists.watched_link is not None and proxy.upstream.has(known_lists.watched_link):
            return
        known_lists.watched_link = joined_link

        def tell(method: str, _: Message) -> None:
            if method == feed.KINDS["toolsListChanged"]:
                self._on_change("tools/list")

        joined_link.feed.add(ChangeListener(tell))
        if joined_link.link.now is not None:
            await joined_link.feed.listen(joined_link.link.now)
