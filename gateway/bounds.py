"""The declaration of a bound: what a caller can make the gateway hold, write or repeat, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Area(StrEnum):
    """The parts of the table in docs/security.md."""

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
    """One bound, declared in `BOUNDS` of the module that holds to it, with the numbers of its constants.

    `what` names what is bounded, and is the name by which a test says that it drives this bound; `limit` says how
    much, and `beyond` what happens then. The table of docs/security.md is made of them by scripts/bounds_doc.py.
    """

    area: Area
    what: str
    limit: str
    beyond: str


def size(count: int) -> str:
    """A number of bytes as a person reads it: `256 KiB`."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit and not count % unit:
            return f"{count // unit} {name}"
    return f"{count:,} bytes"
