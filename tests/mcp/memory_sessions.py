"""The sessions of MCP clients in memory, for mounts that are tested without a database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gateway.model import Principal
from gateway.ports.sessions import McpClientState, TooManySessions


@dataclass
class _Row:
    principal: str
    mount: str
    state: McpClientState
    here: bool = True


class MemoryMcpSessions:
    """The port `McpSessions`, whose rows are a dictionary."""

    def __init__(self, most: int, each: int) -> None:
        self._most = most
        self._each = each
        self._rows: dict[str, _Row] = {}

    async def open(
        self, id: str, principal: Principal, mount: str, state: McpClientState, lost: Callable[[], None]
    ) -> None:
        """Register a new session. Raises `TooManySessions`."""
        at = [row for row in self._rows.values() if row.mount == mount]
        if sum(row.principal == principal.id for row in at) >= self._each:
            raise TooManySessions(self._each, of_all=False)
        if len(at) >= self._most:
            raise TooManySessions(self._most, of_all=True)
        self._rows[id] = _Row(principal.id, mount, state)

    async def adopt(self, id: str, principal: Principal, mount: str, lost: Callable[[], None]) -> McpClientState | None:
        """Take over a session that runs nowhere any more."""
        row = self._rows.get(id)
        if row is None or row.here or (row.principal, row.mount) != (principal.id, mount):
            return None
        row.here = True
        return row.state

    async def process_of(self, id: str, principal: Principal, mount: str) -> str | None:
        """Return the process that runs a session."""
        row = self._rows.get(id)
        return "here" if row is not None and (row.principal, row.mount) == (principal.id, mount) else None

    @contextmanager
    def use(self, id: str) -> Iterator[None]:
        """Do nothing: nothing expires."""
        yield

    async def change(self, id: str, change: Callable[[McpClientState], McpClientState]) -> None:
        """Store the changed state of a session."""
        if (row := self._rows.get(id)) is not None and row.here:
            row.state = change(row.state)

    async def end(self, id: str) -> None:
        """End a session."""
        self._rows.pop(id, None)

    def leave(self, id: str) -> None:
        """Forget a session without ending it."""
        if (row := self._rows.get(id)) is not None:
            row.here = False
