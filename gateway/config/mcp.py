"""Reads `mcp` of gateway.yaml: limits and options for MCP clients."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.documents import Section
from gateway.model import LARGEST_BODY


@dataclass(frozen=True, slots=True)
class Mcp:
    """`sessions` limits the open sessions of the handshake protocols per mount; `session_idle` is in seconds.

    `sessions_each` limits those of one principal, and `views_each` their live views. `bodies` limits the bytes in
    transit beside the frames of the bridge, `bodies_each` those of one principal.
    """

    fast_path: bool = True
    sessions: int = 10_000
    sessions_each: int = 1000
    session_idle: float = 1800.0
    views_each: int = 32
    bodies: int = 1024 * 1024 * 1024
    bodies_each: int = 4 * LARGEST_BODY


def read_mcp(section: Section) -> Mcp:
    """Read the section; `Mcp` has the defaults."""
    default = Mcp()
    idle = section.duration("session_idle", default.session_idle)
    if idle <= 0:
        section.problem("must be longer than nothing, such as 30m", "session_idle")
    bodies, bodies_each = section.size("bodies", default.bodies), section.size("bodies_each", default.bodies_each)
    for key, size in (("bodies", bodies), ("bodies_each", bodies_each)):
        if size < LARGEST_BODY:
            section.problem(f"must leave room for the largest body, {LARGEST_BODY // 2**20}MiB", key)
    return Mcp(
        fast_path=section.flag("fast_path", default.fast_path),
        sessions=section.integer("sessions", default.sessions, minimum=1),
        sessions_each=section.integer("sessions_each", default.sessions_each, minimum=1),
        session_idle=idle,
        views_each=section.integer("views_each", default.views_each, minimum=1),
        bodies=bodies,
        bodies_each=bodies_each,
    )
