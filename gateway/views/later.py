"""Model calls that go on after their request was answered: the answer is kept until it is collected."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from mcp import types as mcp

from gateway.bounds import Area, Bound
from gateway.errors import Reason, Refusal
from gateway.model import Principal
from gateway.views.relay import Relay

LONGEST_ANSWER = 45.0
"""Seconds after which a call that still runs is answered with where to collect it: hosts give up after sixty."""

ASKED_AGAIN = 0.5
"""Seconds after which who collects a call that still runs is answered at the earliest: nobody need ask more often."""

KEPT = 600.0
"""Seconds for which the answer of a call is kept."""

MOST_KEPT = 64
"""Calls of one principal that may run on, or wait to be collected."""

BOUNDS: Final = (
    Bound(
        Area.VIEWS,
        "answers that wait to be collected",
        f"{MOST_KEPT} per principal, {KEPT:g} s",
        "the oldest of that principal goes",
    ),
)

Work = Coroutine[Any, Any, mcp.CallToolResult]


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    principal: Principal
    relay: Relay
    task: asyncio.Task[mcp.CallToolResult]
    asked: Callable[[], bool]


class Later:
    """The calls of all principals; `spawn` runs each of them, for as long as the views live."""

    def __init__(self, spawn: Callable[[Work], asyncio.Task[mcp.CallToolResult]]) -> None:
        self._spawn = spawn
        self._kept: dict[str, _Kept] = {}

    async def run(
        self, principal: Principal, relay: Relay, work: Work, asked: Callable[[], bool], *, typed: bool = False
    ) -> mcp.CallToolResult:
        """The answer of `work`, or, if the view is quiet or slow, where to collect it. Cancelling this cancels it.

        `asked` says whether a person is asked about what the view does. Where to collect the answer of a `typed` tool,
        which has an output schema, is told as an error: clients take nothing else that does not fit the schema.
        """
        task = self._spawn(work)
        kept = _Kept(principal, relay, task, asked)
        try:
            if await _finished(kept):
                return task.result()
            later = self._keep(kept)
            return mcp.CallToolResult(content=later.content, is_error=True) if typed else later
        except asyncio.CancelledError:
            task.cancel()
            raise

    async def collect(self, principal: Principal, id: str) -> mcp.CallToolResult:
        """The same for a call that was answered so before. Raises `Refusal`; cancelling this leaves the call alone."""
        kept = self._kept.get(id)
        if kept is None or kept.principal != principal:
            raise Refusal(
                Reason.BAD_REQUEST, f"No call {id[:64]!r} waits: it was collected, or is older than ten minutes."
            )
        if not await _finished(kept, ASKED_AGAIN):
            return _running(id, kept)
        self._kept.pop(id, None)
        if kept.task.cancelled():
            raise Refusal(Reason.CANCELLED, "This call was cancelled. It may have run: look at the view's state.")
        return kept.task.result()

    def _keep(self, kept: _Kept) -> mcp.CallToolResult:
        mine = [id for id, other in self._kept.items() if other.principal == kept.principal]
        for id in mine[: max(0, len(mine) - MOST_KEPT + 1)]:
            self._kept.pop(id).task.cancel()
        id = secrets.token_urlsafe(16)
        self._kept[id] = kept
        kept.task.add_done_callback(lambda task: task.get_loop().call_later(KEPT, self._kept.pop, id, None))
        return _running(id, kept)


async def _finished(kept: _Kept, shortest: float = 0.0) -> bool:
    """Waits for the task while its view gives signs of life, and `shortest` seconds; False if it still runs then."""
    clock = kept.task.get_loop().time
    began = clock()
    while not kept.task.done():
        gone = clock() - began
        left = min(max(kept.relay.patience(), shortest - gone), LONGEST_ANSWER - gone)
        if left <= 0:
            return False
        await asyncio.wait({kept.task}, timeout=left)
    return True


def _running(id: str, kept: _Kept) -> mcp.CallToolResult:
    waits = "It waits for a person, who was asked first." if kept.asked() else "The page has not answered yet."
    text = f'{waits} Collect its answer with call_view_tool {{"call": "{id}"}}.'
    return mcp.CallToolResult(
        content=[mcp.TextContent(type="text", text=text)], structured_content={"status": "running", "call": id}
    )
