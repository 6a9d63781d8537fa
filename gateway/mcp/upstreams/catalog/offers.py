"""The known offer of an upstream, to all or to each principal with an account there, and reading its lists whole."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final
from weakref import WeakValueDictionary

from gateway.bounds import Area, Bound, size
from gateway.eventloop.fair_share import by_turns
from gateway.jsontext.messages import THINGS, encode
from gateway.mcp.upstreams.catalog.listing import KEYS, pin_of, tools_of
from gateway.mcp.upstreams.transport.conversation import Message
from gateway.model import Principal
from gateway.stores.upstream_tools import KnownTool, UpstreamTools, key_of

MOST_FINGERPRINTS = THINGS
MOST_THINGS = THINGS
"""Things of one kind that are remembered, per person where persons have accounts."""

log = logging.getLogger(__name__)


class RememberedTools:
    """Stored in `store` under the name of `upstream`; `tools` has them by `key_of` their names."""

    def __init__(self, upstream: str, store: UpstreamTools) -> None:
        self._upstream = upstream
        self._store = store
        self._loaded = False
        self._reading: asyncio.Task[None] | None = None
        self.tools: dict[str, KnownTool] = {}

    @property
    def full(self) -> bool:
        """True if there is no room for another one."""
        return len(self.tools) >= MOST_FINGERPRINTS

    def knew(self, name: str) -> bool:
        """Return whether one of this name was listed before."""
        return key_of(name) in self.tools

    async def meet(self, names: Iterable[str]) -> None:
        """Remember names that are listed now, without a fingerprint."""
        await self.load()
        news: dict[str, KnownTool] = {}
        async for name in by_turns(names):
            key = key_of(name)
            if key not in self.tools and not self.full:
                self.tools[key] = news[key] = KnownTool("", "")
        await self.keep(news)

    async def load(self) -> None:
        """Load what was listed before the gateway started: once for all that wait for it."""
        if self._loaded:
            return
        if self._reading is None or self._reading.done():
            self._reading = asyncio.ensure_future(self._read())
        await asyncio.shield(self._reading)

    async def _read(self) -> None:
        try:
            before = await self._store.of(self._upstream)
        except OSError as error:
            log.warning("what %s listed before cannot be read: %s", self._upstream, error)
            return
        new_tools = {key: known for key, known in self.tools.items() if key not in before}
        self.tools |= before
        self._loaded = True
        await self.keep(new_tools)

    async def keep(self, news: Mapping[str, KnownTool]) -> None:
        """Store these."""
        if not news or not self._loaded:  # entries not loaded yet must not be overwritten as new ones
            return
        try:
            await self._store.keep(self._upstream, news)
        except OSError as error:
            log.warning("the lists of %s cannot be stored: %s", self._upstream, error)


class Fingerprints:
    """The tools of one upstream, and the names of its other things.
    `on_change` is called with a changed tool's name, its former and its present form. The first form of a tool is
    accepted, and every form that the policy pins, by `pin`. `held_back` is the last tool beyond the limit.
    """

    def __init__(
        self,
        upstream: str,
        *,
        store: UpstreamTools,
        pin: Callable[[str], str | None],
        on_change: Callable[[str, str, str], None],
    ) -> None:
        self._tools = RememberedTools(upstream, store)
        self._others = {
            method: RememberedTools(f"{upstream} {method}", store) for method in KEYS.keys() - {"tools/list"}
        }
        self._pin = pin
        self._on_change = on_change
        self.changes: dict[str, tuple[str, str]] = {}
        self.held_back: str | None = None

    async def look(self, tools: Iterable[Mapping[str, Any]]) -> None:
        """Compare `tools` with their former forms; `changes` are those that differ, with both forms."""
        await self._tools.load()
        news: dict[str, KnownTool] = {}
        async for tool in by_turns(tools):
            name, now = str(tool["name"]), pin_of(tool)
            key = key_of(name)
            known = self._tools.tools.get(key)
            if known is None and self._tools.full:
                self.held_back = name if self.holds_back(name) else self.held_back
                continue
            accepted_now = now if known is None or self._pin(name) == now else known.accepted
            if known is not None and now not in (known.latest, accepted_now):
                self._on_change(name, known.latest, now)
            if accepted_now != now:
                self.changes[name] = (accepted_now, now)
            else:
                self.changes.pop(name, None)
            if known != (tool_found := KnownTool(accepted_now, now)):
                self._tools.tools[key] = news[key] = tool_found
        await self._tools.keep(news)

    async def meet(self, method: str, names: Iterable[str]) -> None:
        """Remember the names, or addresses, of listed things other than tools."""
        await self._others[method].meet(names)

    def had(self, method: str, name: str) -> bool:
        """Return whether a thing of this name, or address, was listed before."""
        return self._of(method).knew(name)

    def may_have(self, method: str, name: str) -> bool:
        """Return whether an unknown list may have such a thing: it had, or nothing of it is remembered."""
        return self._of(method).knew(name) or not self._of(method).tools

    def holds_back(self, name: str) -> bool:
        """Return whether a change of the tool would go unnoticed, for lack of room to remember it."""
        return self._tools.full and not self._tools.knew(name) and self._pin(name) is None

    async def load(self, method: str) -> None:
        """Load what was listed before the gateway started."""
        await self._of(method).load()

    def _of(self, method: str) -> RememberedTools:
        return self._others.get(method, self._tools)


PAGES: Final = 100
"""Pages of a list that are read."""

LARGEST: Final = 16 * 1024 * 1024
"""Bytes of the entries of one list; those beyond are left out."""

Page = Callable[[Message], Awaitable[tuple[list[Message], object]]]
"""Reads one page: its entries, and the cursor of the next one."""


async def whole(page: Page, what: str) -> tuple[list[Message], int]:
    """Return the entries of the list `what`, within the limits, and their bytes.
    Raises what `page` does.
    """
    tools: list[Message] = []
    size, params, cursors = 0, Message(), set[str]()
    for _ in range(PAGES):
        things, cursor = await page(params)
        async for thing in by_turns(things):
            more = size_of(thing)
            if size + more > LARGEST:
                log.warning("%s: what has more than %d bytes together is left out", what, LARGEST)
                return tools, size
            tools.append(thing)
            size += more
        if not isinstance(cursor, str) or cursor in cursors or len(tools) > MOST_THINGS:
            break
        cursors.add(cursor)
        params = {"cursor": cursor}
    return tools[:MOST_THINGS], size


def size_of(thing: Message) -> int:
    """Return its bytes, serialized as JSON."""
    return len(encode(thing))


MOST = 1000
"""Principals whose offers are remembered; the least recently used one is evicted."""

ROOM = 256 * 1024 * 1024
"""Bytes of all their lists; beyond, the least recently used ones are evicted."""

WALKS = 16
"""Concurrent page-by-page reads of one list whose pages are put together."""

BOUNDS: Final = (
    Bound(
        Area.UPSTREAMS,
        "paginated lists of upstreams",
        f"{WALKS} per list, {size(ROOM)} of all lists, of {MOST:,} principals",
        "the least recently used is evicted, and read again when needed",
        uncounted="a cache",
    ),
)


@dataclass(slots=True, eq=False, weakref_slot=True)
class OfferedTools:
    """The tools by name, as listed last; `asked` means that all were requested once, `whole` that all were received.
    `left_out` are the keys of those beyond the limits: their definition and audience are unknown. Code that caches more
    of the lists reports its size with `holds`, and keeps it no longer than this. `on_growth` is called when the size
    grows.
    """

    fingerprints: Fingerprints
    on_growth: Callable[[], None]
    tools: dict[str, Message] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    asked: bool = False
    whole: bool = False
    _sizes: dict[str, int] = field(default_factory=dict)
    _size: int = 0
    _others: dict[str, int] = field(default_factory=dict)
    _walks: dict[str, list[Message]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of the lists, serialized as JSON."""
        return self._size + sum(self._others.values())

    def holds(self, method: str, size: int) -> None:
        """Account for the size of another list than that of the tools."""
        self._others[method] = size
        self.on_growth()

    async def take(self, result: Message, before: Collection[str] = ()) -> list[Message]:
        """Store and return the tools of one page, without those held back because a change would go unnoticed, those
        beyond the limits, and those whose names were on the pages `before`.
        """
        tools_listed = list(islice((tool for tool in tools_of(result) if tool["name"] not in before), MOST_THINGS))
        await self.fingerprints.look(tools_listed)
        tools_taken = [
            tool
            async for tool in by_turns(tools_listed)
            if not self.fingerprints.holds_back(tool["name"]) and self._take(tool)
        ]
        self.on_growth()
        return tools_taken

    def _take(self, tool: Message) -> bool:
        """Store the tool; return whether there is room."""
        name, size = tool["name"], size_of(tool)
        self._forget(name)
        if len(self.tools) >= MOST_THINGS or self._size + size > LARGEST:
            self.left_out[key_of(name)] = name[:128]
            return False
        self.tools[name], self._sizes[name] = tool, size
        self._size += size
        return True

    def _forget(self, name: str) -> None:
        self.tools.pop(name, None)
        self._size -= self._sizes.pop(name, 0)
        self.left_out.pop(key_of(name), None)

    def before(self, cursor: object) -> Collection[str]:
        """Return the names of the tools on the pages before that of `cursor`, as far as known."""
        walk = self._walks.get(cursor, []) if isinstance(cursor, str) else []
        return {tool["name"] for tool in walk}

    def page(self, tools: list[Message], cursor: object, following: object) -> None:
        """Record the page of `cursor`; after the last page, tools on none of them are forgotten."""
        before = self._walks.pop(cursor, None) if isinstance(cursor, str) else []
        if before is None:
            return
        if following is None:
            self.keep([*before, *tools])
        elif isinstance(following, str) and len(before) < MOST_THINGS:
            self._walks[following] = [*before, *tools]
            if len(self._walks) > WALKS:
                del self._walks[next(iter(self._walks))]

    def keep(self, tools: Iterable[Message]) -> None:
        """Forget every tool but these."""
        names = {str(tool["name"]) for tool in tools}
        if len(names) < MOST_THINGS:
            for key in self.tools.keys() - names:
                self._forget(key)


class Offers:
    """The offers of the upstream `name`; `make` returns the fingerprints of the offer to a person, or to all (None).
    Clients of one person have separate offers, like connections, but share the fingerprints. `full` means that some
    were evicted for lack of room.
    """

    def __init__(self, name: str, make: Callable[[Principal | None], Fingerprints]) -> None:
        self.full = False
        self._name = name
        self._make = make
        self._of: OrderedDict[str, OfferedTools] = OrderedDict()
        self._fingerprints: WeakValueDictionary[str, Fingerprints] = WeakValueDictionary()

    def of(self, principal: Principal | None) -> OfferedTools:
        """Return the offer to `principal`; to all if that is None."""
        owner = principal.id if principal is not None else ""
        offer = self._of.get(owner)
        if offer is None:
            person = principal.person if principal is not None else ""
            fingerprints = self._fingerprints.get(person) or self._make(principal)
            self._fingerprints[person] = fingerprints
            offer = self._of[owner] = OfferedTools(fingerprints, self._fit)
            if len(self._of) > MOST:
                self._of.popitem(last=False)
        self._of.move_to_end(owner)
        return offer

    def _fit(self) -> None:
        size = sum(offer.size for offer in self._of.values())
        while size > ROOM and len(self._of) > 1:
            size -= self._of.popitem(last=False)[1].size
            if not self.full:
                self.full = True
                log.warning("upstream %s: its lists for all persons have more than %d bytes", self._name, ROOM)

    def all(self) -> list[OfferedTools]:
        """Return every offer in memory."""
        return list(self._of.values())
