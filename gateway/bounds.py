"""The declaration of a bound: a limit on what a caller can make the gateway hold, write or repeat."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
    past it. scripts/bounds_doc.py writes them into the table of docs/security.md.
    """

    area: Area
    what: str
    limit: str
    beyond: str


def size(count: int) -> str:
    """Format a number of bytes for people: `256 KiB`."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit and not count % unit:
            return f"{count // unit} {name}"
    return f"{count:,} bytes"
