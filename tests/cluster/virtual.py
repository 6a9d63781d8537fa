"""Nodes under virtual time: a clock that tests set, and the rows of all nodes in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from gateway.cluster.lease import ADOPT_AFTER
from gateway.cluster.node import ClusterNode
from gateway.ports.nodes import Announcement, NameTaken, NodeRow, Renewal

BLANK = Announcement("", "a", "unix:a", "1", "digest", "key", {})


@dataclass
class Time:
    """The time of the database, in seconds; each node has a steady clock with another zero."""

    now: float = 5000.0

    def steady(self, zero: float) -> float:
        """Return the steady clock that began at `zero`."""
        return self.now - zero


@dataclass
class MemoryNodes:
    """The port `NodeStore` in memory, on virtual time; while `down` it raises OSError."""

    time: Time
    rows: dict[str, tuple[Announcement, float, float, bool]] = field(default_factory=dict)
    taken: dict[str, list[str]] = field(default_factory=dict)
    down: bool = False
    renewals: int = 0

    async def join(self, announced: Announcement) -> None:
        """Add a node. Raises `NameTaken`."""
        self._reach()
        if any(one.name == announced.name and self._age(one) < ADOPT_AFTER for one, *_ in self.rows.values()):
            raise NameTaken(announced.name)
        self.rows[announced.incarnation] = (announced, self.time.now, self.time.now, False)

    async def renew(self, announced: Announcement, *, draining: bool, owns: Mapping[str, int]) -> Renewal:
        """Renew the lease, if it has not ended."""
        self._reach()
        self.renewals += 1
        row = self.rows.get(announced.incarnation)
        lost = row is None or self._age(announced) >= ADOPT_AFTER
        if not lost and row is not None:
            self.rows[announced.incarnation] = (announced, self.time.now, row[2], draining)
        return Renewal(self.time.now, await self.nodes(), lost, self.taken.pop(announced.incarnation, []))

    async def nodes(self) -> Sequence[NodeRow]:
        """Return all rows."""
        self._reach()
        now = self.time.now
        return [
            NodeRow(one, now - renewed, now - start, drains, True) for one, renewed, start, drains in self.rows.values()
        ]

    async def leave(self, incarnation: str) -> None:
        """End a lease."""
        self._reach()
        announced, renewed, started, draining = self.rows[incarnation]
        self.rows[incarnation] = (announced, renewed - ADOPT_AFTER, started, draining)

    def _age(self, announced: Announcement) -> float:
        return self.time.now - self.rows[announced.incarnation][1]

    def _reach(self) -> None:
        if self.down:
            raise ConnectionError("the database is down")


_numbers = count(1)


def node(
    store: MemoryNodes, name: str, *, keys: str = "key", version: str = "1", digest: str = "digest"
) -> ClusterNode:
    """Return a node that has not joined; its clock began at another time than others'."""
    zero = float(len(name)) + next(_numbers)

    async def sleep(seconds: float) -> None:
        store.time.now += seconds

    def random(size: int) -> bytes:
        return next(_numbers).to_bytes(size, "big")

    announced = replace(BLANK, name=name, address=f"unix:{name}", keys=keys, version=version, digest=digest)
    return ClusterNode(store, announced, clock=lambda: store.time.steady(zero), sleep=sleep, random=random)
