"""What the fast path of an upstream's mount needs of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from gateway.mcp.upstreams.client import UpstreamClient
from gateway.mcp.upstreams.conversation import Message


class Calls(Protocol):
    """The tools of one upstream: `gateway.mcp.upstreams.proxy.Proxy`."""

    def tool(self, name: str) -> Mapping[str, Any] | None:
        """A tool as it was listed; None for one that never was."""
        ...

    def may_ask(self, name: str) -> bool:
        """Whether a call of the tool may send the person behind its client somewhere."""
        ...

    async def carry(self, client: UpstreamClient, params: Message) -> Message:
        """The answer to a call, as `client` is told it. Raises `MCPError`."""
        ...
