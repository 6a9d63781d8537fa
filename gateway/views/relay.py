"""Queues the model's calls of one view whose host only forwards `tools/call`, until the view polls for them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import mcp_types as mcp
from mcp.shared.exceptions import MCPError

from gateway.bounds import Area, Bound
from gateway.errors import Reason, Refusal
from gateway.model import ViewTool
from gateway.token_buckets import Rate, take
from gateway.views.tools import result_of

LONGEST_POLL = 20.0
"""Seconds that a poll waits for a call."""

BUSY_POLL = 1.0
"""The same in a drain, while a call of the page runs."""

QUIET = 2.0
"""Seconds without activity of the view after which a model's call does not wait for it any longer."""

UNTAKEN = 75.0
"""Seconds for which a call waits to be fetched: browsers let a hidden tab act once a minute."""

LOST = 10.0
"""Seconds without a poll after which the view's tools are not offered, until it polls again."""

DOUBTED = 5.0
"""The same once another view of the app came, since a tab may be closed without notice."""

ASLEEP = 90.0
"""The same for a view that reported its tab as hidden."""

LIST_PAUSE = 1.0
"""Seconds between two lists of a page's tools that take effect."""

ASKING = Rate(100, 1.0)
"""The rate at which a view may poll and answer: more than twice the rate of the runtime."""

ABSENT = "its view has not polled for calls: its tab is suspended or closed"

MOST_CALLS = 64
"""Calls of one view that may be under way."""

BOUNDS: Final = (
    Bound(
        Area.VIEWS,
        "queued model calls of a view",
        f"{MOST_CALLS} per view",
        "the call is refused",
    ),
    Bound(
        Area.VIEWS,
        "polls of a view",
        f"{ASKING.count} in {ASKING.period:g} s",
        "`rate-limited`",
    ),
)

_CALLS, _ASKING = BOUNDS


@dataclass(frozen=True, slots=True)
class RelayEvent:
    """An event for the view: a call to run, or, without a tool, a cancelled call. Numbers count up from 1."""

    number: int
    call: str
    tool: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PollAnswer:
    """The answer to a poll; `overtaken` if another poll of the view arrived while it waited."""

    events: tuple[RelayEvent, ...]
    overtaken: bool = False


@dataclass(slots=True, eq=False)
class _RelayedCall:
    tool: ViewTool
    on_start: Callable[[], None]
    timeout: asyncio.Timeout
    answer: asyncio.Future[mcp.CallToolResult]
    taken: bool = False


class Relay:
    """One view's relay; `on_tools` receives its tools whenever they change. Times are those of the event loop.

    `owner` is the principal of the view.
    """

    def __init__(self, on_tools: Callable[[Sequence[mcp.Tool]], None], owner: str | None = None) -> None:
        self._on_tools = on_tools
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._calls: dict[str, _RelayedCall] = {}
        self._events: list[RelayEvent] = []
        self._count = 0
        self._last_number = 0
        self._poll: asyncio.Future[bool] | None = None
        self._polled_at = self._loop.time()
        self._asks = 0.0
        self._tool_list: Sequence[mcp.Tool] = ()
        self._list_due = float("-inf")
        self._listing: asyncio.TimerHandle | None = None
        self._losing: asyncio.TimerHandle | None = None
        self._closed = False
        self._draining = False
        self._hidden = False
        self._doubted = False
        self.lost = False

    # ── the model's side ─────────────────────────────────────────────────────────────────────────────────────

    async def call(
        self, tool: ViewTool, arguments: Mapping[str, Any], on_start: Callable[[], None]
    ) -> mcp.CallToolResult:
        """Run a tool of the page; `on_start` is called when the view takes the call.

        Raises `Refusal` if it never took it, and `MCPError` if it did and cannot answer. Cancelling this cancels the
        call in the page.
        """
        if len(self._calls) >= MOST_CALLS:
            _CALLS.report(self._owner)
            raise Refusal(Reason.RATE_LIMITED, f"{MOST_CALLS} calls of this view are under way already.")
        id = secrets.token_urlsafe(16)
        try:
            async with asyncio.timeout(UNTAKEN) as timeout:
                call = self._calls[id] = _RelayedCall(tool, on_start, timeout, self._loop.create_future())
                self._tell(RelayEvent(self._next(), id, tool.page_name, arguments))
                return await call.answer
        except TimeoutError as error:
            raise _not_run(ABSENT) from error
        finally:
            self._end(id)

    @property
    def busy(self) -> bool:
        """True while a model's call waits for the page, or runs in it."""
        return bool(self._calls)

    @property
    def behind(self) -> bool:
        """True if a list of the page's tools waits to take effect."""
        return self._listing is not None

    async def catch_up(self) -> bool:
        """Apply the waiting list at once; False if there is none."""
        if self._listing is None:
            return False
        self._listing.cancel()
        self._list_now()
        return True

    def timeout(self) -> float:
        """Seconds for which it makes sense to wait for the view: 0 once it has been quiet for too long."""
        return QUIET if self._poll is not None else max(0.0, self._polled_at + QUIET - self._loop.time())

    def waits(self) -> bool:
        """Return whether there are events that the view has not received yet."""
        return self._count > self._last_number and any(event.number > self._last_number for event in self._events)

    def offer(self, tools: Sequence[ViewTool]) -> None:
        """The page offers these now: fail the calls that it has not taken if their tool has changed."""
        for call in list(self._calls.values()):
            if not call.taken and call.tool not in tools:
                _fail(call, _not_run("its page changed or removed it meanwhile"))

    # ── the view's side ──────────────────────────────────────────────────────────────────────────────────────

    def spend(self) -> None:
        """Count a poll or an answer. Raises `Refusal` (`rate-limited`) if the view sends too many."""
        result = take(self._asks, self._loop.time(), ASKING)
        self._asks = result.tat
        if not result.allowed:
            _ASKING.report(self._owner)
            detail = f"A view may ask for calls, and answer them, {ASKING.count} times a second."
            raise Refusal(Reason.RATE_LIMITED, detail)

    def note_activity(self) -> None:
        """Note activity of the view."""
        self._polled_at = self._loop.time()

    def list(self, tools: Sequence[mcp.Tool]) -> None:
        """Take the view's tools; one list a second takes effect, and the last one of that time later."""
        self._tool_list = tools
        if self._loop.time() >= self._list_due:
            self._list_now()
        elif self._listing is None:
            self._listing = self._loop.call_at(self._list_due, self._list_now)

    async def poll(self, after: int, wait: float, *, hidden: bool = False) -> PollAnswer:
        """Return the events after number `after`; wait for one up to `wait` seconds.

        A newer poll ends this one. Events are repeated until a poll acknowledges them by `after`. `hidden`: the tab is
        not visible, so the view may be silent for longer.
        """
        self._hidden, self._doubted = hidden, False
        self._awake()
        self._release(overtaken=True)
        self._events = [event for event in self._events if event.number > after]
        overtaken = False
        if not self._events and wait > 0 and (not self._draining or self.busy):
            overtaken = await self._wait(min(wait, BUSY_POLL if self._draining else LONGEST_POLL))
        return PollAnswer((), True) if overtaken else PollAnswer(self._take())

    def answer(self, id: str, result: Mapping[str, Any]) -> None:
        """Take the page's answer to a call. Raises `Refusal` for one that it did not take, or answered before."""
        call = self._calls.get(id)
        if call is None or not call.taken or call.answer.done():
            raise Refusal(
                Reason.BAD_REQUEST, "No such call waits for an answer: it was cancelled, answered, or too old."
            )
        try:
            call.answer.set_result(result_of(result))
        except MCPError as error:
            _fail(call, error)

    def doubt(self) -> None:
        """Another view of the app came: require a poll soon, unless this one runs a call or may sleep."""
        if not (self.lost or self._hidden or any(call.taken for call in self._calls.values())):
            self._doubted = True
            self._awake()
            self._release(overtaken=False)

    def drain(self) -> None:
        """Drain: polls wait no longer than the calls of the page run."""
        self._draining = True
        self._release(overtaken=False)

    def close(self) -> None:
        """The view is closed, or reloaded."""
        self._closed = True
        self._stop_losing()
        if self._listing is not None:
            self._listing.cancel()
        self._end_all()

    def leave(self) -> None:
        """The page is unloaded, or reloaded. If it stays, it polls again."""
        self._stop_losing()
        self._end_all()
        self._lose()

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _tell(self, event: RelayEvent) -> None:
        self._events.append(event)
        self._release(overtaken=False)

    def _end(self, id: str) -> None:
        call = self._calls.pop(id)
        # A view may never acknowledge events: keep those of running calls, and the last cancellations.
        stops = [event.number for event in self._events if event.tool is None][1 - MOST_CALLS :]
        self._events = [event for event in self._events if event.call in self._calls or event.number in stops]
        if call.taken and (not call.answer.done() or call.answer.cancelled()):
            self._tell(RelayEvent(self._next(), id))
        elif self._draining and not self.busy:
            self._release(overtaken=False)

    def _end_all(self) -> None:
        self._release(overtaken=True)
        for call in list(self._calls.values()):
            error = MCPError(mcp.CONNECTION_CLOSED, "it was closed, or loaded again")
            _fail(call, error if call.taken else _not_run("its view was closed, or loaded again"))

    def _take(self) -> tuple[RelayEvent, ...]:
        for event in self._events:
            call = self._calls.get(event.call)
            if call is not None and event.tool is not None and not call.taken:
                call.taken = True
                call.timeout.reschedule(None)
                call.on_start()
            self._last_number = event.number
        return tuple(self._events)

    async def _wait(self, seconds: float) -> bool:
        mine: asyncio.Future[bool] = self._loop.create_future()
        self._poll = mine
        self._stop_losing()  # a view whose poll waits is alive
        try:
            async with asyncio.timeout(seconds):
                return await mine
        except TimeoutError:
            return False
        finally:
            if self._poll is mine:
                self._poll = None
            if self._poll is None and not self._closed and not self.lost:
                self._awake()

    def _release(self, *, overtaken: bool) -> None:
        poll, self._poll = self._poll, None
        if poll is not None and not poll.done():
            poll.set_result(overtaken)

    def _awake(self) -> None:
        self.note_activity()
        self._stop_losing()
        silence = DOUBTED if self._doubted else ASLEEP if self._hidden else LOST
        self._losing = self._loop.call_later(silence, self._lose)
        if self.lost:
            self.lost = False
            self.list(self._tool_list)

    def _stop_losing(self) -> None:
        if self._losing is not None:
            self._losing.cancel()

    def _lose(self) -> None:
        self.lost = True
        for call in list(self._calls.values()):
            if not call.taken:
                _fail(call, _not_run(ABSENT))
        self._on_tools(())

    def _list_now(self) -> None:
        self._listing = None
        self._list_due = self._loop.time() + LIST_PAUSE
        if not self.lost:
            self._on_tools(self._tool_list)


def _fail(call: _RelayedCall, error: Exception) -> None:
    if not call.answer.done():
        call.answer.set_exception(error)


def _not_run(why: str) -> Refusal:
    return Refusal(
        Reason.CONNECTION_LOST,
        f"The tool has not run: {why}. Ask the person to bring the app to the front, or open it again.",
    )
