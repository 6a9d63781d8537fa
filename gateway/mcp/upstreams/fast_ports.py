"""The interface that the fast path of an upstream's mount needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from gateway.mcp.upstreams.calls.client import UpstreamClient
from gateway.mcp.upstreams.transport.conversation import Message


class UpstreamCalls(Protocol):
    """The tools of one upstream: `gateway.mcp.upstreams.mount.Proxy`."""

    def tool(self, name: str) -> Mapping[str, Any] | None:
        """Return a tool as listed; None for an unknown one."""
        ...

    def may_ask(self, name: str) -> bool:
        """Whether a call of the tool may send the client's person to a page."""
        ...

    async def carry(self, client: UpstreamClient, params: Message) -> Message:
        """Return the answer to a call, in the form for `client`. Raises `MCPError`."""
        ...
