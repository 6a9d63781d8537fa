"""What a model's call that opens an app says to the view that shows it (MCP Apps, `ui/notifications/tool-*`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from gateway.views.initiator import Taint

Notification = dict[str, Any]

Tell = Callable[[Notification], Awaitable[None]]
"""Carries a notification to a view on its ui channel."""


class Telling(Protocol):
    """What is known here of a view."""

    @property
    def id(self) -> str: ...
    @property
    def taint(self) -> Taint: ...
    @property
    def tell(self) -> Tell | None: ...


class Shown:
    """A view in a host page of ours, to which a model's call is told."""

    def __init__(self, view: Telling, clock: Callable[[], float]) -> None:
        self._view = view
        self._clock = clock

    @property
    def id(self) -> str:
        """The handle of the view."""
        return self._view.id

    async def call(self, arguments: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """Tell a call that is over as soon as it is made; `result` is as MCP writes it."""
        try:
            await self.input(arguments)
            await self.result(result)
        except asyncio.CancelledError:
            await self.cancelled("the call was cancelled")
            raise

    async def input(self, arguments: Mapping[str, Any]) -> None:
        """A call begins. What a model chose makes the model the initiator, until a person acts."""
        if arguments:
            self._view.taint.model_reported(self._clock())
        await self._say("tool-input", {"arguments": dict(arguments)})

    async def result(self, result: Mapping[str, Any]) -> None:
        """The call has its result, as MCP writes it."""
        await self._say("tool-result", dict(result))

    async def cancelled(self, reason: str) -> None:
        """The call will have none."""
        await self._say("tool-cancelled", {"reason": reason})

    async def _say(self, what: str, params: Notification) -> None:
        tell = self._view.tell
        if tell is not None:
            with suppress(ConnectionError):  # its page has gone
                await tell({"jsonrpc": "2.0", "method": f"ui/notifications/{what}", "params": params})
