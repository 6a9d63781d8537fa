"""What an upstream was heard to offer: to all, or to each principal where each has an account of their own there."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final
from weakref import WeakValueDictionary

from gateway.bounds import Area, Bound, size
from gateway.mcp.upstreams.conversation import Message
from gateway.mcp.upstreams.fingerprints import Fingerprints
from gateway.mcp.upstreams.listing import tools_of
from gateway.mcp.upstreams.remembered import MOST_THINGS
from gateway.mcp.upstreams.turns import by_turns
from gateway.mcp.upstreams.whole_lists import LARGEST, size_of
from gateway.model import Principal
from gateway.stores.upstream_tools import key_of

MOST = 1000
"""Principals whose offers are remembered; the one that was looked at least lately is asked for anew."""

ROOM = 256 * 1024 * 1024
"""Bytes of the lists of all of them; beyond, those that were looked at least lately are asked for anew."""

WALKS = 16
"""Clients that read the pages of one list at a time, and whose pages are put together."""

BOUNDS: Final = (
    Bound(
        Area.UPSTREAMS,
        "lists of upstreams that are read page by page",
        f"{WALKS} per list, {size(ROOM)} of all lists, of {MOST:,} principals",
        "the one that was not used for longest is asked for anew",
    ),
)

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False, weakref_slot=True)
class Offer:
    """The tools by their names, as they were listed last; `asked` says that all were asked for once, `whole` that all
    were told.

    `left_out` are the keys of those for which there is no room: what they are, and whom they are for, is not known.
    Whoever keeps more of what is listed says so with `holds`, and keeps it no longer than this. `grown` hears of more.
    """

    fingerprints: Fingerprints
    grown: Callable[[], None]
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
        """Bytes of what is listed, written as JSON."""
        return self._size + sum(self._others.values())

    def holds(self, method: str, size: int) -> None:
        """The list of `method`, another than that of the tools, has so many bytes."""
        self._others[method] = size
        self.grown()

    async def take(self, result: Message, before: Collection[str] = ()) -> list[Message]:
        """The tools of one page, remembered; those whose change nobody would notice, or for which is no room, are not
        among them, nor are those whose names stood on the pages `before`."""
        listed = list(islice((tool for tool in tools_of(result) if tool["name"] not in before), MOST_THINGS))
        await self.fingerprints.look(listed)
        taken = [
            tool
            async for tool in by_turns(listed)
            if not self.fingerprints.holds_back(tool["name"]) and self._take(tool)
        ]
        self.grown()
        return taken

    def _take(self, tool: Message) -> bool:
        """Whether there is room for the tool."""
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
        """The names of the tools on the pages before that of `cursor`, as far as they are known."""
        walk = self._walks.get(cursor, []) if isinstance(cursor, str) else []
        return {tool["name"] for tool in walk}

    def page(self, tools: list[Message], cursor: object, following: object) -> None:
        """These stood on the page of `cursor`; on the last one of all it is known which tools there are."""
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
        """These are all that there are: forget every other."""
        names = {str(tool["name"]) for tool in tools}
        if len(names) < MOST_THINGS:
            for gone in self.tools.keys() - names:
                self._forget(gone)


class Offers:
    """Those of the upstream `name`; `make` the fingerprints of what is offered to a person, or to all (None).

    Clients of one person have an offer each, as they have connections; a change of a tool is one for the person.
    `full` says that there was no room for all of them.
    """

    def __init__(self, name: str, make: Callable[[Principal | None], Fingerprints]) -> None:
        self.full = False
        self._name = name
        self._make = make
        self._of: OrderedDict[str, Offer] = OrderedDict()
        self._fingerprints: WeakValueDictionary[str, Fingerprints] = WeakValueDictionary()

    def of(self, principal: Principal | None) -> Offer:
        """The offer to `principal`; to all where that is None."""
        owner = principal.id if principal is not None else ""
        offer = self._of.get(owner)
        if offer is None:
            person = principal.person if principal is not None else ""
            fingerprints = self._fingerprints.get(person) or self._make(principal)
            self._fingerprints[person] = fingerprints
            offer = self._of[owner] = Offer(fingerprints, self._fit)
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

    def all(self) -> list[Offer]:
        """Every one that is remembered."""
        return list(self._of.values())
