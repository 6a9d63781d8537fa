"""The gateway's end of a view's ui channel: a small JSON-RPC server, independent of the transport."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, Self, TypeGuard

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.methods import serialize_server_result
from pydantic import BaseModel

from gateway.bounds import Area, Bound
from gateway.contract import Handed
from gateway.errors import Refusal
from gateway.mcp.results import Aside
from gateway.mcp.standard_answers import version_of
from gateway.mcp.view_calls import Speaker, ViewServer
from gateway.model import Caller, Json

log = logging.getLogger(__name__)

MAX_CALLS = 64
"""Calls of one view in flight."""

BOUNDS: Final = (
    Bound(
        Area.VIEWS,
        "concurrent calls of a view over the bridge",
        f"{MAX_CALLS} per view",
        "`-32000 busy`",
    ),
)

(_CALLS,) = BOUNDS

BUSY = -32000
"""The JSON-RPC error code for calls beyond the limit."""

Message = Mapping[str, Json]
Id = str | int


class Send(Protocol):
    """Sends a message to a view; `own` marks an answer in the gateway's own words.
    `leaving` is called when the message leaves: until then it may be cancelled without a trace.
    """

    async def __call__(
        self, message: dict[str, Any], /, *, own: bool = False, leaving: Callable[[], object] = lambda: None
    ) -> None: ...


@dataclass(slots=True, eq=False)
class Beside:
    """The body that came beside a message, and the callback that releases it."""

    handed: Handed
    release: Callable[[], None]
    taken: bool = False


class UiPeer:
    """Answers the requests of a view. `answers` are those of the view's app.

    `caller` returns the view as the connection proves it; its argument is whether the view reports a model, and it
    raises `Refusal` once the view is gone. `send` sends answers and notifications of calls; `aside` stores the bytes of
    an answer beside it, and `turn` is awaited before each call. `owner` is the view's principal.
    An async context manager: leaving it cancels the calls in flight.
    """

    def __init__(
        self,
        answers: ViewServer,
        caller: Callable[[bool], Caller],
        send: Send,
        aside: Aside | None = None,
        turn: Callable[[], Awaitable[None]] | None = None,
        owner: str | None = None,
    ) -> None:
        self._answers = answers
        self._owner = owner
        self._turn = turn
        self._speaker = Speaker(caller, self._notify, aside)
        self._send = send
        self._tasks = asyncio.TaskGroup()
        self._running: set[asyncio.Task[None]] = set()
        self._calls: dict[Id, asyncio.Task[None]] = {}
        self._following: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._following = self._tasks.create_task(self._follow())
        return self

    async def __aexit__(self, *exc: Any) -> None:
        self.cancel_all()
        if self._following is not None:
            self._following.cancel()
        await self._tasks.__aexit__(*exc)

    async def _follow(self) -> None:
        try:
            await self._answers.follow(self._speaker)
        except (MCPError, Refusal) as error:
            log.info("a view is told of no changes: %s", error)

    def cancel_all(self) -> None:
        """Cancel every call in flight; none of them is answered."""
        for task in list(self._running):
            task.cancel()

    async def receive(self, message: Message, beside: Beside | None = None) -> None:
        """Process one message of the view, with the body that came beside it. Invalid messages never raise."""
        try:
            await self._receive(message, beside)
        finally:
            if beside is not None and not beside.taken:
                beside.release()

    async def _receive(self, message: Message, beside: Beside | None) -> None:
        method, id, params = message.get("method"), message.get("id"), message.get("params", {})
        if method is None and ("result" in message or "error" in message):
            return  # the gateway sends no requests on this channel, so no response is expected
        if message.get("jsonrpc") != "2.0" or not isinstance(method, str):
            await self._fail(None, types.INVALID_REQUEST, "This is no JSON-RPC 2.0 request.")
        elif "id" not in message:
            self._notified(method, params)
        elif not _is_id(id):
            await self._fail(None, types.INVALID_REQUEST, "An id must be a string or an integer.")
        elif not isinstance(params, dict):
            await self._fail(id, types.INVALID_PARAMS, "`params` must be an object.")
        else:
            await self._request(id, method, params, beside)

    async def _request(self, id: Id, method: str, params: Message, beside: Beside | None) -> None:
        if id in self._calls:
            await self._fail(id, types.INVALID_REQUEST, "A call with this id is in flight.")
        elif method not in self._answers.methods:
            await self._fail(id, types.METHOD_NOT_FOUND, f"Method not found: {method[:128]}")
        elif len(self._running) >= MAX_CALLS:
            _CALLS.exceeded(self._owner)
            await self._fail(id, BUSY, "busy")
        else:
            task = self._tasks.create_task(self._answer(id, method, params, beside))
            self._calls[id] = task
            self._running.add(task)
            task.add_done_callback(lambda task: self._ended(id, task))
            if beside is not None:
                beside.taken = True
                task.add_done_callback(lambda _: beside.release())

    def _ended(self, id: Id, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if self._calls.get(id) is task:
            del self._calls[id]

    def _notified(self, method: str, params: Json) -> None:
        if method == "notifications/cancelled" and isinstance(params, dict):
            id = params.get("requestId")
            task = self._calls.pop(id, None) if _is_id(id) else None
            if task is not None:
                task.cancel()

    async def _answer(self, id: Id, method: str, params: Message, beside: Beside | None) -> None:
        if self._turn is not None:
            await self._turn()
        speaker = self._speaker if beside is None else replace(self._speaker, handed=beside.handed)
        outcome, own = await _outcome(method, version_of(params), self._answers.answer(method, params, speaker))
        # At the latest now, since the view may use the id again from then on.
        await self._deliver({"jsonrpc": "2.0", "id": id, **outcome}, own=own, leaving=lambda: self._calls.pop(id, None))

    async def _fail(self, id: Id | None, code: int, message: str) -> None:
        await self._deliver({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})

    async def _notify(self, method: str, params: Mapping[str, Any]) -> None:
        await self._deliver({"jsonrpc": "2.0", "method": method, "params": dict(params)})

    async def _deliver(
        self, message: dict[str, Any], *, own: bool = False, leaving: Callable[[], object] = lambda: None
    ) -> None:
        with suppress(ConnectionError):  # the view disconnected
            await self._send(message, own=own, leaving=leaving)


async def _outcome(
    method: str, version: str, answering: Awaitable[BaseModel | dict[str, Any]]
) -> tuple[dict[str, Any], bool]:
    """Return the `result` or the `error` of a call, in this version, and whether it is the gateway's own."""
    try:
        result = await answering
        if isinstance(result, dict):
            return {"result": result}, False
        dumped = result.model_dump(by_alias=True, mode="json", exclude_none=True)
        try:
            return {"result": serialize_server_result(method, version, dumped)}, True
        except KeyError:
            raise MCPError(types.METHOD_NOT_FOUND, f"There is no {method} in protocol {version}.") from None
    except MCPError as error:
        return {"error": {"code": error.error.code, "message": error.error.message}}, False
    except Exception:  # one call must not end the others of its view
        log.exception("%s of a view failed", method)
        message = "The gateway failed at this call; its log says why."
        return {"error": {"code": types.INTERNAL_ERROR, "message": message}}, False


def _is_id(value: Json) -> TypeGuard[Id]:
    return isinstance(value, str | int) and not isinstance(value, bool)
