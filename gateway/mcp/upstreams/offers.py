"""What an upstream was heard to offer: to all, or to each principal where each has an account of their own there."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from gateway.mcp.upstreams.conversation import Message
from gateway.mcp.upstreams.fingerprints import MAX_TOOLS, Fingerprints
from gateway.mcp.upstreams.listing import tools_of
from gateway.model import Principal

MOST = 1000
"""Principals whose offers are remembered; the one that was looked at least lately is asked for anew."""


@dataclass(slots=True)
class Offer:
    """The tools by their names, as they were listed last; `asked` says that all were asked for once."""

    fingerprints: Fingerprints
    tools: dict[str, Message] = field(default_factory=dict)
    asked: bool = False

    async def take(self, result: Message) -> list[Message]:
        """The tools of one page, remembered; those whose change nobody would notice are left out."""
        listed = tools_of(result)[:MAX_TOOLS]
        await self.fingerprints.look(listed)
        tools = [tool for tool in listed if not self.fingerprints.holds_back(tool["name"])]
        for tool in tools:
            if tool["name"] in self.tools or len(self.tools) < MAX_TOOLS:
                self.tools[tool["name"]] = tool
        return tools

    def keep(self, tools: Iterable[Message]) -> None:
        """These are all that there are: forget every other."""
        names = {str(tool["name"]) for tool in tools}
        if len(names) < MAX_TOOLS:
            self.tools = {name: tool for name, tool in self.tools.items() if name in names}


class Offers:
    """Those of one upstream; `make` the fingerprints of what is offered to a person, or to all (None).

    Clients of one person have an offer each, as they have connections; a change of a tool is one for the person.
    """

    def __init__(self, make: Callable[[Principal | None], Fingerprints]) -> None:
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
            offer = self._of[owner] = Offer(fingerprints)
            if len(self._of) > MOST:
                self._of.popitem(last=False)
        self._of.move_to_end(owner)
        return offer

    def all(self) -> list[Offer]:
        """Every one that is remembered."""
        return list(self._of.values())
