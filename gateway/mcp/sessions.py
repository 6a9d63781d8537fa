"""The sessions of MCP clients in memory: counted per mount and principal."""

from __future__ import annotations

from collections import Counter

from gateway.ports.sessions import TooManySessions


class MemoryMcpSessions:
    """Implements the port `McpSessions` for one process.

    `most`: the limit of sessions at one mount.
    `each`: the limit of sessions of one principal at one mount.
    """

    def __init__(self, most: int, each: int) -> None:
        self._most = most
        self._each = each
        self._owners: dict[str, tuple[str, str]] = {}
        self._of: Counter[tuple[str, str]] = Counter()
        self._at: Counter[str] = Counter()

    async def open(self, id: str, principal: str, mount: str) -> None:
        """Register a new session. Raises `TooManySessions`."""
        if self._of[principal, mount] >= self._each:
            raise TooManySessions(self._each, of_all=False)
        if self._at[mount] >= self._most:
            raise TooManySessions(self._most, of_all=True)
        self._owners[id] = principal, mount
        self._of[principal, mount] += 1
        self._at[mount] += 1

    def end(self, id: str) -> None:
        """Forget a session."""
        owner = self._owners.pop(id, None)
        if owner is not None:
            self._of[owner] -= 1
            if not self._of[owner]:
                del self._of[owner]
            self._at[owner[1]] -= 1
