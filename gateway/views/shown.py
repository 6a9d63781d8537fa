"""Notifies the view that shows an app of the model's call that opens it (MCP Apps, `ui/notifications/tool-*`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from gateway.views.initiator import Taint

Notification = dict[str, Any]

Result = Mapping[str, Any]

Tell = Callable[[Notification], Awaitable[None]]
"""Sends a notification to a view on its ui channel."""

LEAVES, COMES = 2.0, 10.0
"""Seconds in which a host page closes the view of the previous call, and in which its successor opens."""


class NotifiedView(Protocol):
    """The part of a view that is used here."""

    @property
    def id(self) -> str: ...
    @property
    def taint(self) -> Taint: ...
    @property
    def tell(self) -> Tell | None: ...


class ShownView:
    """A view in our host page that is notified of a model's call.

    `successor` gives the view that the host page opens in its place, since each view is notified of one call.
    """

    def __init__(
        self, view: NotifiedView, clock: Callable[[], float], successor: Callable[[], asyncio.Task[NotifiedView | None]]
    ) -> None:
        self._view = view
        self._clock = clock
        self._successor = successor
        self._moving: asyncio.Task[NotifiedView | None] | None = None

    @property
    def id(self) -> str:
        """The handle of the view."""
        return self._view.id

    async def call(self, arguments: Mapping[str, Any], result: Result | Callable[[str], Result]) -> None:
        """Notify of input and result of a finished call; `result`, in MCP's JSON form, may depend on the handle."""
        try:
            await self.input(arguments)
            await self._follow()
            await self.result(result(self.id) if callable(result) else result)
        except asyncio.CancelledError:
            await self.cancel("the call was cancelled")
            raise

    async def input(self, arguments: Mapping[str, Any]) -> None:
        """A call begins. Arguments chosen by a model make the model the initiator, until a person acts."""
        if arguments:
            self._view.taint.model_reported(self._clock())  # its successor inherits that
        await self._say("tool-input", {"arguments": dict(arguments)})
        self._moving = self._successor()

    async def result(self, result: Mapping[str, Any]) -> None:
        """The call has its result, in MCP's JSON form."""
        await self._follow()
        await self._say("tool-result", dict(result))

    async def cancel(self, reason: str) -> None:
        """The call will have no result."""
        await self._follow()
        await self._say("tool-cancelled", {"reason": reason})

    async def _follow(self) -> None:
        """Switch to the view that the host page opened for this call, if it did."""
        moving, self._moving = self._moving, None
        view = await asyncio.shield(moving) if moving is not None else None
        if view is not None:
            self._view = view

    async def _say(self, what: str, params: Notification) -> None:
        tell = self._view.tell
        if tell is not None:
            with suppress(ConnectionError):  # its page has gone
                await tell({"jsonrpc": "2.0", "method": f"ui/notifications/{what}", "params": params})


class Successions:
    """Waits for the views that our host page opens in the place of others."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: set[asyncio.Event] = set()

    def find(
        self,
        showing: Callable[[], Sequence[NotifiedView]],
        is_open: Callable[[NotifiedView], bool],
        tasks: asyncio.TaskGroup,
    ) -> ShownView | None:
        """Return the one view that is `showing`, None if there are none or several; `tasks` wait for successors."""
        views = showing()
        if len(views) != 1:
            return None
        first = views[0]
        return ShownView(
            first, self._clock, lambda: tasks.create_task(self._successor(lambda: is_open(first), showing))
        )

    def note_change(self) -> None:
        """A view came or went."""
        for waiting in self._waiting:
            waiting.set()

    async def _successor(
        self, is_open: Callable[[], bool], showing: Callable[[], Sequence[NotifiedView]]
    ) -> NotifiedView | None:
        """Return the one view that is `showing` after another is no longer open; None if there is none in time."""
        change = asyncio.Event()
        self._waiting.add(change)
        try:
            async with asyncio.timeout(LEAVES) as timeout:
                while is_open():
                    change.clear()
                    await change.wait()
                timeout.reschedule(asyncio.get_running_loop().time() + COMES)
                while True:
                    state = showing()
                    if state:
                        return state[0] if len(state) == 1 else None
                    change.clear()
                    await change.wait()
        except TimeoutError:
            return None
        finally:
            self._waiting.discard(change)
