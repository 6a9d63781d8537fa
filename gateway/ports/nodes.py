"""The nodes of a gateway of several processes: the protocols of their leases, and of the owners of views."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class NameTaken(Exception):
    """A node with this name lives: its lease has not ended."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """The declaration of a node about itself: two nodes forward to each other only if `version` and `digest` are equal.

    `address` is where others reach it, `digest` that of the configuration as far as all nodes must agree on it, `keys`
    the ids of the keys that encrypt what is stored, `policies` the version of each policy.
    """

    incarnation: str
    name: str
    address: str
    version: str
    digest: str
    keys: str
    policies: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node as stored: `age` is the seconds since its last renewal, `life` those since its start.

    `signed`: its announcement was made by a process with the keys of the cluster. `draining`: it is about to stop.
    `owns` is the number of its live objects of each kind.
    """

    announced: Announcement
    age: float
    life: float
    draining: bool
    signed: bool
    owns: Mapping[str, int] = field(default_factory=dict)

    def state(self, ends_after: float) -> NodeState:
        """Return its state, if a lease ends so many seconds after the last renewal."""
        if self.age >= ends_after:
            return NodeState.ENDED
        if not self.signed:
            return NodeState.UNSIGNED
        return NodeState.DRAINING if self.draining else NodeState.SERVING


class NodeState(StrEnum):
    """The state of a node, as another one or a command sees it."""

    SERVING = "serving"
    DRAINING = "draining"
    ENDED = "ended"
    UNSIGNED = "unsigned"
    """Its row was not made with a key of this cluster."""


@dataclass(frozen=True, slots=True)
class Renewal:
    """The result of a renewal: the time of the database, in seconds since the epoch, and all nodes with a row.

    `lost`: the lease had ended, and the row is not renewed. `lost_views`: ids of views of this node that another node
    took; they are repeated until a renewal has returned them.
    """

    now: float
    nodes: Sequence[NodeRow]
    lost: bool
    lost_views: Sequence[str] = ()


class NodeStore(Protocol):
    """The rows of nodes. Times are those of the database, the one clock of all nodes. Methods raise OSError."""

    async def join(self, announced: Announcement) -> None:
        """Add a node. Raises `NameTaken`."""
        ...

    async def renew(self, announced: Announcement, *, draining: bool, owns: Mapping[str, int]) -> Renewal:
        """Renew the lease, if it has not ended, with what the node announces now, and read all nodes."""
        ...

    async def nodes(self) -> Sequence[NodeRow]:
        """Return all nodes with a row."""
        ...

    async def leave(self, incarnation: str) -> None:
        """End the lease of a node that stops."""
        ...


@dataclass(frozen=True, slots=True)
class ViewOwner:
    """The node that has a view now; `epoch` counts its owners."""

    incarnation: str
    epoch: int


class ViewOwners(Protocol):
    """The owners of views that are not, or not only, where their id says. Methods raise OSError."""

    async def take(self, view: str, incarnation: str, made_by: str) -> ViewOwner | None:
        """Make this node the owner; return the owner before, None if it was this one.

        `made_by` is the owner of a view without a row.
        """
        ...

    async def find(self, view: str) -> ViewOwner | None:
        """Return the owner of a view; None without a row."""
        ...

    async def drop(self, view: str, incarnation: str) -> None:
        """Delete the row of a view that ended at this node."""
        ...


class UpstreamOwners(Protocol):
    """The nodes that run the processes of shared upstreams. Methods raise OSError."""

    async def claim(self, upstream: str, incarnation: str) -> str:
        """Make this node the owner, unless the node that is lives; return the owner."""
        ...

    async def release(self, upstream: str, incarnation: str) -> None:
        """Leave the upstream to any other node, if this one is the owner."""
        ...


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """The head of another node's answer, and the chunks of its body."""

    status: int
    headers: tuple[tuple[str, str], ...]
    chunks: AsyncIterator[bytes]

    async def read(self, most: int) -> bytes:
        """Return the body. Raises OSError if it is longer than `most` bytes."""
        body = bytearray()
        async for chunk in self.chunks:
            body += chunk
            if len(body) > most:
                raise OSError(errno.EMSGSIZE, "another node's answer is too long")
        return bytes(body)

    def has(self, name: str) -> bool:
        """Return whether there is a field with this name in lower case."""
        return any(known.lower() == name for known, _ in self.headers)

    def header(self, name: str) -> str:
        """Return the first value of a field, by its name in lower case; empty without it."""
        return next((value for known, value in self.headers if known.lower() == name), "")
