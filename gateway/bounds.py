"""Bounds on what a caller can make the gateway hold, write or repeat: their declaration, and shares of a resource."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias


class Area(StrEnum):
    """The sections of the table in docs/security.md."""

    DOORS = "Connections, requests, logins"
    BRIDGE = "The console and its bridge"
    VIEWS = "Views and their tools"
    MCP = "MCP sessions and streams"
    EXCHANGE = "Requests to backends"
    APPROVALS = "Questions to people"
    CREDENTIALS = "Credentials"
    UPSTREAMS = "Upstream MCP servers"
    RECORD = "Record, log, metrics"


@dataclass(frozen=True, slots=True)
class Bound:
    """One bound, declared in `BOUNDS` of the module that enforces it, with the values of its constants.

    `what` names the bounded thing and identifies the bound in its test; `limit` is the amount, `beyond` the behaviour
    past it. scripts/bounds_doc.py writes them into the table of docs/security.md. `uncounted` is the reason for which
    this bound is not reported when it is exceeded.
    """

    area: Area
    what: str
    limit: str
    beyond: str
    uncounted: str = ""

    def report(self, by: str | None = None, *, client: str | None = None) -> None:
        """Report that a caller exceeded this bound: the principal `by`, or an unknown one at the address `client`."""
        for report in tuple(_reports):
            report(self, by, client)


Report: TypeAlias = Callable[[Bound, str | None, str | None], None]
"""Receives the exceeded bound, and the principal and the address of the caller, as far as they are known."""

_reports: list[Report] = []  # of the process, as the handlers of `logging` are: any module may reach a bound


@contextmanager
def report_exceeded(report: Report) -> Iterator[None]:
    """Call `report` whenever a bound is exceeded within the block."""
    _reports.append(report)
    try:
        yield
    finally:
        _reports.remove(report)


def size(count: int) -> str:
    """Format a number of bytes for people: `256 KiB`."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit and not count % unit:
            return f"{count // unit} {name}"
    return f"{count:,} bytes"


SMALL: Final = 64
"""Once half of the total is taken, an owner may hold at most this fraction of it."""


class Shares:
    """Slots or bytes by owner: `each` at most, `in_all` together.

    Once half of the total is taken, an owner with more than a small share gets no more while others hold some.
    """

    def __init__(self, each: int, in_all: int) -> None:
        self.limit(each, in_all)
        self._by_owner: dict[str, int] = {}
        self.total = 0
        self.elsewhere: Mapping[str, int] = {}
        """The amounts that owners hold in other processes, as far as they are known: they count for `each`."""

    def limit(self, each: int, in_all: int) -> None:
        """Change the limits; owners that hold more keep it, and get no more."""
        self.each = each
        self._in_all = in_all
        self._small = max(1, in_all // SMALL)

    def take(self, owner: str, amount: int = 1) -> bool:
        """Take `amount` for `owner`; return False if there is no room."""
        before = self._by_owner.get(owner, 0)
        mine, used = before + amount, self.total + amount
        if mine + self.elsewhere.get(owner, 0) > self.each or used > self._in_all:
            return False
        if 2 * used > self._in_all and mine > self._small and self.total > before:
            return False
        self._by_owner[owner], self.total = mine, used
        return True

    def give(self, owner: str, amount: int = 1) -> None:
        """Return what was taken."""
        left = self._by_owner.get(owner, 0) - amount
        self.total -= amount
        if left > 0:
            self._by_owner[owner] = left
        else:
            self._by_owner.pop(owner, None)

    def holders(self, least: int) -> dict[str, int]:
        """Return the owners that hold at least so much here, with their amounts."""
        return {owner: amount for owner, amount in self._by_owner.items() if amount >= least}

    @contextmanager
    def place(self, owner: str) -> Iterator[bool]:
        """Take one slot for the block, and yield whether there was one."""
        admitted = self.take(owner)
        try:
            yield admitted
        finally:
            if admitted:
                self.give(owner)
