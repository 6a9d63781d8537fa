"""Calls at `/mcp` and its mounts, read without aiohttp's server.

Measured at 32 connections, in one run: a third less processor time for each request than with `server.fast_path: false`
(0.31 ms against 0.45 ms).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from gateway.doors.access import IncomingRequest
from gateway.fastpath.request_head import RequestHead
from gateway.fastpath.responses import JsonAnswer
from gateway.fastpath.route import ResponseWriter
from gateway.mcp.fast import Fast, Traced
from gateway.model import Principal
from gateway.traces import continue_trace

C = TypeVar("C", bound=Traced)


class McpRoute(Generic[C]):
    """Calls of `tool` at the MCP server `mount`; `current` returns the fast path that the mount has now."""

    def __init__(
        self,
        head: RequestHead,
        mount: str,
        fast: Fast[C],
        tool: bytes,
        current: Callable[[], Fast[Any] | None],
        identify: Callable[[IncomingRequest, str], Awaitable[Principal | None]],
    ) -> None:
        self._mount = mount
        self._fast = fast
        self._tool = tool
        self._current = current
        self._identify = identify
        self._last = head.last
        self._traced = head.headers if "traceparent" in head.headers else None

    def is_current(self) -> bool:
        """Whether the mount still has this fast path."""
        return self._current() is self._fast

    def read(self, body: bytes) -> C | None:
        """Return the call; None if the SDK has to judge it."""
        return self._fast.read(self._tool, body)

    async def caller(self, request: IncomingRequest) -> Principal | None:
        """Return the authorized caller, or None."""
        principal = await self._identify(request, self._mount)
        return principal if principal is not None and principal.may("mcp") else None

    async def answer(self, request: C, principal: Principal, writer: ResponseWriter) -> None:
        """Call the tool, and write the JSON-RPC message that answers."""
        fast = self._fast
        answer = JsonAnswer(writer.send, writer.alarms(fast.silence), last=self._last)
        try:
            with continue_trace(request.trace or self._traced):
                text, status = await fast.message(request, principal)
        finally:
            answer.end()
        if isinstance(text, str):
            writer.write(answer.rest(text, status), principal.person)
        else:
            await writer.write_parts(answer.pieces(text, status), principal.person, sum(map(len, text)))
