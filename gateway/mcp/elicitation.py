"""Sends the person behind an MCP client to a page of the console while a call waits; the call itself runs once.
A client of protocol 2026-07-28 is answered with `InputRequiredResult` and repeats its call, which rejoins the running
one; a client of the handshake protocols is asked within its call (`elicitation/create`).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

import mcp_types as types
from anyio import BrokenResourceError, ClosedResourceError
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from gateway.bounds import Area, Bound, Shares
from gateway.crypto import equals_secret
from gateway.errors import Reason, Refusal
from gateway.jsontext.sizes import text_size
from gateway.mcp.asgi import ending_of
from gateway.model import Principal, Tell, Visit

ROUND = 50.0
"""Seconds that a repeated call waits before its client must repeat it once more."""

AWAY = 50.0
"""Seconds that a call continues without its client, which was asked to consult its person and come back."""

KEPT = 30.0
"""Seconds that a result is kept for a client that repeats its call."""

RUNS_EACH = 256
"""Calls of one principal at one mount that are in flight or may be resumed, of clients that can ask a person."""

RUNS = 4096
"""Such calls of all principals."""

BOUNDS: Final = (
    Bound(
        Area.MCP,
        "calls of clients with elicitation",
        f"{RUNS_EACH} per principal, {RUNS:,} in all, of a mount, running or to be resumed within {AWAY:g} s; "
        f"beyond half of it, a small share per principal; the result is kept for {KEPT:g} s",
        "`rate-limited`",
    ),
    Bound(
        Area.MCP,
        "bytes of calls and results whose client is to come back",
        "they count among the bytes of request bodies in memory",
        "the call ends, and its result is discarded: `rate-limited`",
    ),
)

_RUNS, _BYTES = BOUNDS

TRIES = 3
"""Attempts that a person has to type the code."""

ALPHABET = "23456789ABCDEFGHJKMNPQRSTUVWXYZ"
"""Letters and digits that are not easily mistaken for one another."""

_TOO_LARGE: Final = "Too many bytes of calls wait for a client to come back, so this call was given up."
_NOT_KEPT: Final = "The call has run, but its result was too large to be kept until its client came back."
_TOO_MANY: Final = "Too many calls of yours are under way here, or wait for you to come back. Try again later."

log = logging.getLogger(__name__)

Context = ServerRequestContext[Any, Any]

Answer = TypeVar("Answer")
"""The result of a call."""

STATE = "call-"
"""Prefix of the `requestState` of a repeated call, which distinguishes it from those of other senders."""


class TypedAnswers(Protocol):
    """Takes a typed yes or no from a client that may ask by itself: `ApprovalAnswers` in `gateway.exchange`."""

    async def answer_typed(self, id: str, approve: bool, by: Principal) -> None: ...


@dataclass(frozen=True, slots=True)
class Asking:
    """The elicitation settings: off unless it `visits`; `interactive` clients ask for a typed code instead."""

    visits: Callable[[], bool] = lambda: True
    interactive: Callable[[], Collection[str]] = tuple
    typed: TypedAnswers | None = None

    def of(self, visit: Visit, principal: Principal) -> TypedAnswers | None:
        """Return the receiver of a typed answer by a client of `principal`, or None if only the page counts."""
        return self.typed if visit.typed and principal.client in self.interactive() else None


@dataclass(slots=True, eq=False)
class _Ask:
    """One page that the person was sent to. `code` must be typed in an interactive client."""

    visit: Visit
    takes: TypedAnswers | None
    code: str = field(default_factory=lambda: "".join(secrets.choice(ALPHABET) for _ in range(4)))
    tries: int = TRIES

    def params(self) -> types.ElicitRequestParams:
        """Return the elicitation for the client."""
        if self.takes is None:
            return types.ElicitRequestURLParams(
                message=self.visit.message, url=self.visit.url, elicitation_id=self.visit.id
            )
        message = f"{self.visit.message}\nTo approve, type the code {self.code}. The raw request: {self.visit.url}"
        code = {"type": "string", "title": "Code", "minLength": 4, "maxLength": 4}
        schema = {"type": "object", "properties": {"code": code}, "required": ["code"]}
        return types.ElicitRequestFormParams(message=message, requested_schema=schema)


@dataclass(slots=True, eq=False)
class _Run(Generic[Answer]):
    """A running call, whose request has `size` bytes; `held_bytes` are those that are counted while its client is away.
    `untold` are the pages not yet announced to the client, `over` those no longer needed; `handed` means that the
    client received the call's id, to resume it. `on_refusal` converts a refusal into an answer, `on_move` is called
    with each request by which the client resumes.
    """

    principal: Principal
    on_refusal: Callable[[Refusal], Answer]
    on_move: Callable[[Context], None]
    size: int
    id: str = field(default_factory=lambda: STATE + secrets.token_urlsafe(16))
    untold: deque[_Ask] = field(default_factory=deque)
    asks: dict[str, _Ask] = field(default_factory=dict)
    over: set[str] = field(default_factory=set)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    result: Answer | None = None
    error: MCPError | None = None
    task: asyncio.Task[None] | None = None
    waiting: int = 0
    handed: bool = False
    held_bytes: int = 0
    away: asyncio.TimerHandle | None = None

    def outcome(self) -> Answer | None:
        """Return the result, None while the call runs. Raises the error that it raised."""
        if self.error is not None:
            raise self.error
        return self.result

    def ask(self, ask: _Ask) -> None:
        """Announce this page to the client next."""
        self.asks[ask.visit.id] = ask
        self.untold.append(ask)
        self.news.set()

    def end(self, refusal: Refusal | None = None) -> None:
        """End the call; a client that repeats it receives `refusal`."""
        if self.result is None and self.error is None:
            self.result = self.on_refusal(refusal or Refusal(Reason.CANCELLED, "This call was given up."))
        if self.task is not None:
            self.task.cancel()
        self.news.set()


class ElicitingCalls(Generic[Answer]):
    """The calls of one mount whose clients can ask a person.
    `tasks` runs them, also without their client. `on_refusal` converts a refusal into an answer. `room` limits the
    bytes of those that wait for their client, together with the bytes of running requests.
    """

    def __init__(
        self, tasks: asyncio.TaskGroup, asking: Asking, on_refusal: Callable[[Refusal], Answer], room: Shares
    ) -> None:
        self._bytes = room
        self._tasks = tasks
        self._asking = asking
        self._on_refusal = on_refusal
        self._runs: dict[str, _Run[Answer]] = {}
        self._room = Shares(RUNS_EACH, RUNS)

    async def carry(
        self,
        context: Context,
        params: types.CallToolRequestParams,
        principal: Principal,
        work: Callable[[Tell], Awaitable[Answer]],
        on_move: Callable[[Context], None] = lambda _: None,
    ) -> Answer | types.InputRequiredResult:
        """Return the answer of `work`, or the elicitation that must come first. Raises `MCPError`, as `work` does.
        `work` receives a callback that announces the pages where a person answers. `on_move` is called with each
        request by which the client resumes.
        """
        opens = _opens_pages(context.session.client_capabilities)
        modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        if (not modern or params.request_state is None) and not self._room.take(principal.id):
            _RUNS.report(principal.id)
            return self._on_refusal(Refusal(Reason.RATE_LIMITED, _TOO_MANY))
        if not modern:
            return await self._within(context, self._begin(context, principal, work, on_move, opens=opens))
        if params.request_state is None:
            run = self._begin(context, principal, work, on_move, opens=opens)
        else:
            stored_run = self._runs.get(params.request_state)
            if stored_run is None or stored_run.principal.id != principal.id:
                return self._on_refusal(
                    Refusal(Reason.APPROVAL_EXPIRED, "This call is unknown or expired. Start again.")
                )
            run = stored_run
            run.on_move(context)
            for id, response in (params.input_responses or {}).items():
                again = await _process_answer(run, run.asks[id], response) if id in run.asks else None
                if again is not None:
                    run.ask(again)
        return await self._round(run)

    def can_ask(self, capabilities: types.ClientCapabilities | None, principal: Principal) -> bool:
        """Return whether a client with these capabilities can send its person to a page or ask for a code."""
        modes = capabilities.elicitation if capabilities is not None else None
        if modes is None or not self._asking.visits():
            return False
        return _opens_pages(capabilities) or principal.client in self._asking.interactive()

    def close(self) -> None:
        """End all running calls."""
        for run in list(self._runs.values()):
            run.end()

    def _begin(
        self,
        context: Context,
        principal: Principal,
        work: Callable[[Tell], Awaitable[Answer]],
        on_move: Callable[[Context], None],
        *,
        opens: bool,
    ) -> _Run[Answer]:
        """Start `work`; `opens` means that its client can open pages."""
        run = _Run(principal, self._on_refusal, on_move, ending_of(context.request).size)

        def tell(visit: Visit) -> None:
            takes = self._asking.of(visit, principal)
            if visit.over:
                run.over.add(visit.id)
                run.news.set()
            elif visit.id not in run.asks and (opens or takes is not None):
                run.ask(_Ask(visit, takes))

        self._runs[run.id] = run
        run.task = self._tasks.create_task(self._carry_out(run, work, tell))
        return run

    async def _carry_out(self, run: _Run[Answer], work: Callable[[Tell], Awaitable[Answer]], tell: Tell) -> None:
        try:
            result = await work(tell)
            run.result = run.result or result
            run.news.set()
            if run.handed:
                await self._hold_result(run, result)
        except MCPError as error:
            run.error = error
        finally:
            run.end()
            if run.handed and run.id in self._runs:
                asyncio.get_running_loop().call_later(KEPT, self._forget, run)
            else:  # the client has no state with which it could resume
                self._forget(run)

    async def _hold_result(self, run: _Run[Answer], result: Answer) -> None:
        """Count the result instead of the request; without room for it, only a client that waits now receives it."""
        size = await asyncio.to_thread(text_size, result)
        if self._hold(run, size):
            return
        if run.waiting:
            self._forget(run)
        else:
            run.result = self._on_refusal(Refusal(Reason.RATE_LIMITED, _NOT_KEPT))

    def _hold(self, run: _Run[Answer], size: int) -> bool:
        """Count `size` bytes for a call that its client can resume, instead of what was counted for it."""
        self._bytes.give(run.principal.id, run.held_bytes)
        run.held_bytes = size if self._bytes.take(run.principal.id, size) else 0
        if run.held_bytes < size:
            _BYTES.report(run.principal.id)
        return run.held_bytes == size

    def _forget(self, run: _Run[Answer]) -> None:
        """Forget a call that can no longer be resumed, and free its place."""
        if self._runs.pop(run.id, None) is not None:
            self._room.give(run.principal.id)
            self._bytes.give(run.principal.id, run.held_bytes)
            run.held_bytes = 0

    async def _round(self, run: _Run[Answer]) -> Answer | types.InputRequiredResult:
        """Wait until the call ends or needs an elicitation, or until its client must repeat it."""
        run.waiting += 1
        if run.away is not None:
            run.away.cancel()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(ROUND):
                    while run.outcome() is None and not run.untold:
                        run.news.clear()
                        await run.news.wait()
        except asyncio.CancelledError:
            if run.waiting == 1:
                run.end()
            raise
        finally:
            run.waiting -= 1
        if (result := run.outcome()) is not None:
            return result
        asks: dict[str, types.InputRequest] = {
            ask.visit.id: types.ElicitRequest(params=ask.params()) for ask in _take_untold(run)
        }
        if not run.handed and not self._hold(run, run.size):
            run.end(Refusal(Reason.RATE_LIMITED, _TOO_LARGE))
            return self._on_refusal(Refusal(Reason.RATE_LIMITED, _TOO_LARGE))
        run.handed = True
        if not run.waiting:
            refusal = Refusal(Reason.APPROVAL_EXPIRED, "The client did not come back for this call in time.")
            run.away = asyncio.get_running_loop().call_later(AWAY, run.end, refusal)
        return types.InputRequiredResult(input_requests=asks or None, request_state=run.id)

    async def _within(self, context: Context, run: _Run[Answer]) -> Answer:
        """Serve the whole call of a client that is asked over its connection."""
        tasks: dict[str, asyncio.Task[None]] = {}
        try:
            while (result := run.outcome()) is None:
                for ask in _take_untold(run):
                    tasks[ask.visit.id] = self._tasks.create_task(_elicit(context, run, ask))
                for id in run.over & tasks.keys():
                    self._end(context, id, tasks.pop(id))
                run.news.clear()
                await run.news.wait()
            return result
        finally:
            run.end()
            self._forget(run)
            for id, task in tasks.items():
                self._end(context, id, task)

    def _end(self, context: Context, id: str, asking: asyncio.Task[None]) -> None:
        """Cancel an elicitation that is no longer needed, and notify the client."""
        asking.cancel()
        self._tasks.create_task(_complete(context, id))


def _opens_pages(capabilities: types.ClientCapabilities | None) -> bool:
    modes = capabilities.elicitation if capabilities is not None else None
    return modes is not None and modes.url is not None


async def _elicit(context: Context, run: _Run[Any], ask: _Ask) -> None:
    """Ask the client, and again after a mistyped code."""
    session, request = context.session, context.request_id
    asking: _Ask | None = ask
    with _reachable():
        while asking is not None:
            params = asking.params()
            if isinstance(params, types.ElicitRequestURLParams):
                result = await session.elicit_url(params.message, params.url, asking.visit.id, request)
            else:
                result = await session.elicit_form(params.message, params.requested_schema, request)
            asking = await _process_answer(run, asking, result)


async def _complete(context: Context, id: str) -> None:
    with _reachable():
        await context.session.send_elicit_complete(id, context.request_id)


@contextmanager
def _reachable() -> Iterator[None]:
    """Treat a disconnected client or an invalid reply as no answer; the other ways to ask continue."""
    try:
        yield
    except (MCPError, ConnectionError, RuntimeError, ValueError, BrokenResourceError, ClosedResourceError) as error:
        log.info("a client could not ask its person: %r", error)


async def _process_answer(run: _Run[Any], ask: _Ask, result: object) -> _Ask | None:
    """Process the client's reply to one question; return a question to repeat, or None."""
    if not isinstance(result, types.ElicitResult) or result.action == "cancel":
        return None  # no answer was given: the other ways to ask continue
    if result.action == "decline":
        if ask.takes is not None:
            await _answer_typed(run, ask, ask.takes, approve=False)
        else:
            run.end(Refusal(Reason.APPROVAL_DECLINED, "The person did not want to be asked about this call."))
        return None
    if ask.takes is None:
        return None  # the person opens the page, where the answer is given
    code = (result.content or {}).get("code")
    code_typed = code.strip().upper() if isinstance(code, str) else ""
    if equals_secret(code_typed, ask.code):
        await _answer_typed(run, ask, ask.takes, approve=True)
        return None
    return _Ask(ask.visit, ask.takes, tries=ask.tries - 1) if ask.tries > 1 else None


async def _answer_typed(run: _Run[Any], ask: _Ask, takes: TypedAnswers, *, approve: bool) -> None:
    try:
        await takes.answer_typed(ask.visit.id, approve, run.principal)
    except Refusal as refusal:
        log.info("a typed answer was not taken: %s", refusal.detail)


def _take_untold(run: _Run[Any]) -> list[_Ask]:
    asks = [ask for ask in run.untold if ask.visit.id not in run.over]
    run.untold.clear()
    return asks
