"""Model calls that outlast their request: the result is kept until it is collected."""

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
"""Seconds after which a running call is answered with how to collect its result: hosts time out after sixty."""

ASKED_AGAIN = 0.5
"""Seconds after which a poll for a running call is answered at the earliest, to bound the polling rate."""

KEPT = 600.0
"""Seconds for which the result of a call is kept."""

MOST_KEPT = 64
"""Calls of one principal that may continue in the background, or wait to be collected."""

BOUNDS: Final = (
    Bound(
        Area.VIEWS,
        "results to be collected",
        f"{MOST_KEPT} per principal, {KEPT:g} s",
        "the oldest of that principal is evicted",
    ),
)

(_KEPT_CALLS,) = BOUNDS

Work = Coroutine[Any, Any, mcp.CallToolResult]


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    principal: Principal
    relay: Relay
    task: asyncio.Task[mcp.CallToolResult]
    asked: Callable[[], bool]


class Later:
    """The background calls of all principals; `spawn` runs each of them, for as long as the views live."""

    def __init__(self, spawn: Callable[[Work], asyncio.Task[mcp.CallToolResult]]) -> None:
        self._spawn = spawn
        self._kept: dict[str, _Kept] = {}

    async def run(
        self, principal: Principal, relay: Relay, work: Work, asked: Callable[[], bool], *, typed: bool = False
    ) -> mcp.CallToolResult:
        """Return the result of `work`, or, if the view is quiet or slow, how to collect it. Cancelling this cancels it.

        `asked` tells whether a person is asked about a request of the view. For a `typed` tool, which has an output
        schema, the collect message is an error: clients accept no other result that does not fit the schema.
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
        """Return the result of a background call, or its message again. Raises `Refusal`.

        Cancelling this does not cancel the call.
        """
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
            _KEPT_CALLS.exceeded(kept.principal.id)
            self._kept.pop(id).task.cancel()
        id = secrets.token_urlsafe(16)
        self._kept[id] = kept
        kept.task.add_done_callback(lambda task: task.get_loop().call_later(KEPT, self._kept.pop, id, None))
        return _running(id, kept)


async def _finished(kept: _Kept, shortest: float = 0.0) -> bool:
    """Wait while the view shows activity, at least `shortest` seconds; return False if the task still runs then."""
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
