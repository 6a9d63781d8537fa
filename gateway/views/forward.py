"""The model's call of a page's tool: find the view, take the steps of every call, run it, keep its result."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

import mcp_types as mcp
from mcp.shared.exceptions import MCPError

from gateway.bounds import Area, Bound, size
from gateway.callers.entitlements import Admits, admit_all
from gateway.errors import Reason, Refusal, ViewMoves
from gateway.exchange.approval_step import digest_of
from gateway.exchange.drain import RunningCalls
from gateway.exchange.record import Record
from gateway.exchange.tool_calls import ToolCalls
from gateway.jsontext.sizes import text_size
from gateway.jsontext.writing import sorted_json
from gateway.model import Caller, Door, Initiator, Json, Principal, Tell, ViewTool
from gateway.policy import Decision, decide_tool
from gateway.ports.sessions import OneTimeValues
from gateway.traces import Trace, continue_trace
from gateway.views.registry import Views
from gateway.views.relay import Relay
from gateway.views.tools import first_problem
from gateway.views.view import View

DEADLINE = 30.0
"""Seconds that a page has to answer, unless the rule of its tool sets a timeout."""

GONE = "its view was closed, loaded again, or went to another page"
"""The reason why a call that a page received has no answer, if the mux reports only a lost connection."""

OPEN = "Open its app, then try again; list_view_tools lists the tools offered now."
"""Advice to a model for a tool that no view offers."""

SEVERAL = (
    "Several views of this app are open. Pass view: call_view_tool {view, tool, arguments}; list_view_tools names them."
)
"""Advice to a model whose call could be for several views."""

Redact = Callable[[Caller], Callable[[str], str] | None]
"""Return the function that masks the secrets of this caller in a text; None if there are none."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PageToolCall:
    """A call of the tool `tool` of the page of `view`, with the steps that are special to tools of pages."""

    views: Views
    calls: ToolCalls
    view: View
    tool: ViewTool
    caller: Caller
    arguments: Mapping[str, Any]
    redact: Redact

    fields: ClassVar[Mapping[str, Json]] = {}
    step: ClassVar[str] = "page"
    typed: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """The page's name of the tool."""
        return self.tool.page_name

    def decide(self) -> tuple[Decision, str | None]:
        """Decide under the policy of the app."""
        policy = self.views.rules(self.view.app).policy
        return decide_tool(policy, self.name, self.caller, self.arguments, time.time()), policy.version

    def check(self) -> None:
        """Check the arguments against the page's schema."""
        problem = first_problem(self.tool.input_schema, self.arguments)
        if problem is not None:
            raise Refusal(Reason.BAD_REQUEST, problem)

    def counts_for(self) -> Caller:
        """The caller itself."""
        return self.caller

    async def prepare(self, record: Record) -> None:
        """Do nothing: the page is open."""

    def definition(self) -> Sequence[str] | None:
        """Return title, description and schema of the tool as the page offers it now."""
        tool = next((tool for tool in self.view.tools if tool.page_name == self.name), None)
        return _definition(tool) if tool is not None else None

    def rule(self) -> str:
        """Return the tool with the digest of its definition."""
        return f"tool {self.name} {digest_of('tool', self.caller.app, '', self.name, *_definition(self.tool), '')}"

    def policy_version(self) -> str:
        """Return the version of the app's policy; empty once the app was removed."""
        rules = self.views.apps.get(self.view.app)
        return rules.policy.version if rules is not None else ""

    async def run(self, id: str, trace: Trace | None) -> mcp.CallToolResult:
        """Return the page's result, without parts that reach beyond it, or the error that it does not fit the schema.

        While the call runs, the view's requests count as caused by it.
        """
        if self.view.calls is None:
            raise self._not_run()
        rule = self.views.rules(self.view.app).policy.tools.get(self.name)
        seconds = DEADLINE if rule is None or rule.timeout is None else rule.timeout
        started = False
        try:
            await self.views.taints.begin_call(self.view, id)
            async with self._deadline(seconds) as begin:

                def on_start() -> None:
                    nonlocal started
                    started = True
                    self.views.taints.start_call(self.view, id)
                    begin()

                if self.view.calls is None:  # its taint was stored meanwhile
                    raise self._not_run()
                with continue_trace(dict(trace.headers()) if trace is not None else None):
                    result = await self.view.calls.call(self.tool, self.arguments, on_start)
        except TimeoutError as error:
            raise _unanswered_refusal(f"not within {seconds:g} seconds") from error
        except Refusal as refusal:
            if self.view.gone_on and not started:
                raise ViewMoves from refusal
            raise
        except MCPError as error:
            message = error.error.message
            raise _unanswered_refusal(GONE if message == Reason.CONNECTION_LOST else message[:300]) from error
        finally:
            self.views.taints.end_call(self.view, id)
        result_now = clean_result(check_output(self.tool, result))
        redact = self.redact(self.caller)
        return result_now if redact is None else await asyncio.to_thread(_redacted_result, result_now, redact)

    def status(self, result: mcp.CallToolResult) -> int:
        """Return 500 for an error of the page."""
        return 500 if result.is_error else 200

    def _not_run(self) -> Refusal:
        return ViewMoves() if self.view.gone_on else _closed_refusal()

    def refusal_result(self, refusal: Refusal, id: str) -> mcp.CallToolResult:
        """Return a refusal in words for the model. Raises `ViewMoves`: the call is sent to where its view is now."""
        if isinstance(refusal, ViewMoves):
            raise refusal
        return refusal_result(refusal, id)

    def failure(self, error: Exception) -> str | None:
        """Return None: `run` turns the errors of pages into refusals."""
        return None

    @asynccontextmanager
    async def _deadline(self, seconds: float) -> AsyncIterator[Callable[[], None]]:
        """Limit the page's time to answer to `seconds`, from the call of the yielded function.

        The time is suspended while a person is asked about a request of the view.
        """
        clock = asyncio.get_running_loop().time
        async with AsyncExitStack() as stack:
            limit = await stack.enter_async_context(asyncio.timeout(None))

            def adjust() -> None:
                if not limit.expired():  # rescheduling an expired timeout would raise an error at the answering person
                    limit.reschedule(None if self.calls.asks_about(self.view.id) else clock() + seconds)

            def begin() -> None:
                adjust()
                stack.callback(self.calls.watch(adjust))

            yield begin


class Forwarder:
    """Runs model calls in live views; `calls` takes their steps, and `redact` masks secrets in results.

    `new_id` makes the ids of calls whose results are collected later; what is left of these when the process ends goes
    to other processes by `other_results`.
    """

    def __init__(
        self,
        views: Views,
        calls: ToolCalls,
        redact: Redact = lambda _: None,
        new_id: Callable[[], str] = lambda: secrets.token_urlsafe(16),
        other_results: OneTimeValues | None = None,
    ) -> None:
        self._redact = redact
        self._views = views
        self._calls = calls
        self.later = BackgroundCalls(views.spawn, new_id, calls.running, other_results, self._may_use)

    async def call(
        self,
        principal: Principal,
        name: str,
        arguments: Mapping[str, Any],
        *,
        app: str | None,
        view: str | None = None,
        tell: Tell | None = None,
        door: Door = Door.MCP,
    ) -> mcp.CallToolResult:
        """Run the tool with the model's name `name`, or, in the given view, with the page's name `name`.

        Every refusal and failure is a result with `isError` and advice. `tell` notifies the client of each question to
        a person that the call leads to; such a call waits until the question is over. Raises `ViewMoves` if the call
        has not run, because its view moves to another process.
        """
        try:
            target, tool = await self._tool(principal, name, app, view)
            if await self._views.goes_on(target):
                raise ViewMoves
        except ViewMoves:
            raise
        except Refusal as refusal:
            return refusal_result(refusal)
        caller = Caller(principal, target.app, door, Initiator.MODEL, "model-call", target.id)
        call = PageToolCall(self._views, self._calls, target, tool, caller, arguments, self._redact)
        relay = target.relay
        if relay is None:
            return await self._calls.call(call, tell)

        def deliver(running: Coroutine[Any, Any, mcp.CallToolResult]) -> Awaitable[mcp.CallToolResult]:
            asks = partial(self._calls.asks_about, target.id)
            return self.later.run(principal, relay, running, asks, typed=tool.output_schema is not None, app=target.app)

        return await self._calls.call(call, tell, deliver=deliver)

    def _may_use(self, principal: Principal, app: str) -> bool:
        return self._views.admits(principal, app)

    async def collect(self, principal: Principal, call: str) -> mcp.CallToolResult:
        """Return the result of a call that still ran when it was answered; failures as in `call`."""
        try:
            return await self.later.collect(principal, call)
        except Refusal as refusal:
            return refusal_result(refusal)

    async def _tool(
        self, principal: Principal, name: str, app: str | None, handle: str | None
    ) -> tuple[View, ViewTool]:
        """Find view and tool; if the name is unknown, first read the announced tool changes of pages."""
        try:
            return await self._find(principal, name, app, handle)
        except Refusal:
            views = self._views.of(principal, app)
            if handle is not None:
                view_named = self._views.reach(handle, principal)
                views = [view_named] if view_named is not None and app in (None, view_named.app) else []
            reads = [view.calls.catch_up() for view in views if view.calls is not None]
            results = await asyncio.gather(*reads, return_exceptions=True)
            for failure in results:
                if isinstance(failure, BaseException):  # other pages' failures do not affect this call
                    log.warning("a page could not be asked for its tools: %r", failure)
            if True not in results:
                raise
            return await self._find(principal, name, app, handle)

    async def _find(
        self, principal: Principal, name: str, app: str | None, handle: str | None
    ) -> tuple[View, ViewTool]:
        if handle is not None:
            view = self._views.reach(handle, principal)
            if view is None and self._views.arrives(handle):
                raise ViewMoves
            if await self._views.launches.is_awaited(handle, principal, app):
                words = "has not come up yet. Try again in a moment; list_view_tools shows it then."
                raise Refusal(Reason.CONNECTION_LOST, f"The page of view {handle!r} {words}")
            if view is None or app not in (None, view.app):
                raise Refusal(Reason.CONNECTION_LOST, f"No view {handle!r} is open. Call list_view_tools to see those.")
            tools_offered = [tool for tool in view.tools if name in (tool.page_name, tool.name)]
            if not tools_offered and self._views.lists_soon(view):
                raise ViewMoves
            if not tools_offered:
                names = ", ".join(tool.page_name for tool in view.tools) or "none at present"
                raise Refusal(Reason.BAD_REQUEST, f"This view has no tool {name!r}. It has: {names}.")
            return view, tools_offered[0]
        if principal.shared:
            raise Refusal(Reason.BAD_REQUEST, "Name the view: call_view_tool {view, tool, arguments}.")
        matches = [(view, tool) for view in self._views.of(principal, app) for tool in view.tools if tool.name == name]
        if not matches:
            raise Refusal(Reason.CONNECTION_LOST, f"No open view offers {name!r}. {OPEN}")
        offering = [view for view, _ in matches]
        same_app = self._views.of(principal, offering[0].app)
        if sum(view in offering or self._views.may_offer_more(view) for view in same_app) > 1:
            raise Refusal(Reason.BAD_REQUEST, SEVERAL)
        return matches[0]


def check_output(tool: ViewTool, result: mcp.CallToolResult) -> mcp.CallToolResult:
    """Return `result` if it fits the output schema of `tool`, else an error: clients refuse a mismatch (MCP, Tools)."""
    if tool.output_schema is None or result.is_error:
        return result
    if result.structured_content is None:
        problem: str | None = "it has no structuredContent"
    else:
        problem = first_problem(tool.output_schema, result.structured_content)
    if problem is None:
        return result
    text = f"The tool has run, but its answer does not fit the outputSchema that its page declares: {problem}."
    return mcp.CallToolResult(content=[mcp.TextContent(type="text", text=text), *result.content], is_error=True)


def _redacted_result(result: mcp.CallToolResult, redact: Callable[[str], str]) -> mcp.CallToolResult:
    """Return the result without the tokens that the page sent to its backends: they are not for models."""
    text = result.model_dump_json(by_alias=True, exclude_none=True)
    text_shown = redact(text)
    return result if text_shown == text else mcp.CallToolResult.model_validate_json(text_shown)


def clean_result(result: mcp.CallToolResult) -> mcp.CallToolResult:
    """Return a page's result without parts that reach beyond it: `_meta`, resource links, embedded apps."""
    content = [clean for block in result.content if (clean := _clean(block)) is not None]
    return mcp.CallToolResult(content=content, structured_content=result.structured_content, is_error=result.is_error)


def _clean(block: mcp.ContentBlock) -> mcp.ContentBlock | None:
    if isinstance(block, mcp.ResourceLink):
        return None
    if not isinstance(block, mcp.EmbeddedResource):
        return block.model_copy(update={"meta": None})
    inner = block.resource
    # URL parsers drop spaces and control characters, and ignore the case of the scheme.
    address = "".join(char for char in inner.uri if char > " ").lower()
    if address.startswith(("ui:", "mcp-app:")) or "mcp-app" in (inner.mime_type or "").lower():
        return None
    return block.model_copy(update={"meta": None, "resource": inner.model_copy(update={"meta": None})})


def _closed_refusal() -> Refusal:
    return Refusal(Reason.CONNECTION_LOST, "The view is closed or reloads. Call list_view_tools, then try again.")


def _unanswered_refusal(why: str) -> Refusal:
    return Refusal(
        Reason.CONNECTION_LOST,
        f"The page did not answer: {why}. The tool may have run: look at the view's state before you try again.",
    )


def refusal_result(refusal: Refusal, audit: str | None = None) -> mcp.CallToolResult:
    """Return a refusal in words for the model; `audit` is the id of its record."""
    audit_text = f" (audit id {audit})" if audit is not None else ""
    text = mcp.TextContent(type="text", text=f"{refusal.reason}: {refusal.detail}{audit_text}")
    return mcp.CallToolResult(content=[text], is_error=True)


def _definition(tool: ViewTool) -> tuple[str, ...]:
    return tool.title, tool.description, sorted_json(tool.input_schema)


LONGEST_ANSWER = 45.0
"""Seconds after which a running call is answered with how to collect its result: hosts time out after sixty."""

ASKED_AGAIN = 0.5
"""Seconds after which a poll for a running call is answered at the earliest, to bound the polling rate."""

KEPT = 600.0
"""Seconds for which the result of a call is kept."""

MOST_KEPT = 64
"""Calls of one principal that may continue in the background, or wait to be collected."""

LARGEST_HANDED_OVER = 4 * 1024 * 1024
"""Bytes of the largest result that other processes get when this one ends."""

MOST_HANDED_OVER = 16_384
"""Such results of all principals."""

_HANDED = "result of a call"

KEPT_BYTES = 64 * 1024 * 1024
"""Bytes of the results that wait for one principal to collect them, the last one apart."""

BOUNDS: Final = (
    Bound(
        Area.VIEWS,
        "results to be collected",
        f"{MOST_KEPT} per principal, {size(KEPT_BYTES)} of them beside the last one, {KEPT:g} s",
        "the oldest of that principal is evicted",
    ),
)

(_KEPT_CALLS,) = BOUNDS

Work = Coroutine[Any, Any, mcp.CallToolResult]


@dataclass(slots=True, eq=False)
class _KeptCall:
    """A background call, and the bytes of its result once it has ended."""

    principal: Principal
    relay: Relay
    task: asyncio.Task[mcp.CallToolResult]
    asks: Callable[[], bool]
    app: str
    bytes: int = 0


class BackgroundCalls:
    """The background calls of all principals; `spawn` runs each of them, for as long as the views live.

    A drain waits for them as `running` calls. When the process ends, results that were not collected go to
    `other_results`, for other processes. `admits` returns whether a principal may still use an app.
    """

    def __init__(
        self,
        spawn: Callable[[Work], asyncio.Task[mcp.CallToolResult]],
        new_id: Callable[[], str] = lambda: secrets.token_urlsafe(16),
        running: RunningCalls | None = None,
        other_results: OneTimeValues | None = None,
        admits: Admits = admit_all,
    ) -> None:
        self._admits = admits
        self._spawn = spawn
        self._new_id = new_id
        self._running = running or RunningCalls()
        self._other_results = other_results
        self._calls: dict[str, _KeptCall] = {}

    async def run(
        self,
        principal: Principal,
        relay: Relay,
        work: Work,
        asks: Callable[[], bool],
        *,
        typed: bool = False,
        app: str = "",
    ) -> mcp.CallToolResult:
        """Return the result of `work`, or, if the view is quiet or slow, how to collect it. Cancelling this cancels it.

        `asks` tells whether a person is asked about a request of the view. For a `typed` tool, which has an output
        schema, the collect message is an error: clients accept no other result that does not fit the schema. `app` is
        that of the view.
        """
        task = self._spawn(work)
        call = _KeptCall(principal, relay, task, asks, app)
        try:
            if await _wait_finished(call):
                return task.result()
            later = self._keep(call)
            return mcp.CallToolResult(content=later.content, is_error=True) if typed else later
        except asyncio.CancelledError:
            task.cancel()
            raise

    async def collect(self, principal: Principal, id: str) -> mcp.CallToolResult:
        """Return the result of a background call, or its message again. Raises `Refusal`.

        Cancelling this does not cancel the call.
        """
        call = self._calls.get(id)
        if call is None and (result := await self._take(principal, id)) is not None:
            return result
        if call is None or call.principal != principal or not self._admits(principal, call.app):
            raise Refusal(
                Reason.BAD_REQUEST, f"No call {id[:64]!r} waits: it was collected, or is older than ten minutes."
            )
        if not await _wait_finished(call, ASKED_AGAIN):
            return _running_result(id, call)
        self._calls.pop(id, None)
        if call.task.cancelled():
            raise Refusal(Reason.CANCELLED, "This call was cancelled. It may have run: look at the view's state.")
        return call.task.result()

    async def hand_over(self) -> None:
        """Give the results that wait to be collected to other processes."""
        for id, call in list(self._calls.items()):
            if self._other_results is None or not call.task.done() or call.task.cancelled() or call.task.exception():
                continue
            text = call.task.result().model_dump_json(by_alias=True, exclude_none=True)
            if len(text) > LARGEST_HANDED_OVER:
                words = "The tool has run, but its result was too large to be kept while the gateway was restarted."
                text = refusal_result(Refusal(Reason.RESPONSE_TOO_LARGE, words)).model_dump_json(by_alias=True)
            owner = call.principal.id
            try:
                await self._other_results.put(
                    _HANDED,
                    f"{id} {owner}",
                    f"{call.app} {text}",
                    owner=owner,
                    life=KEPT,
                    each=MOST_KEPT,
                    most=MOST_HANDED_OVER,
                )
            except OSError as error:
                log.warning("the result of a call is lost with this process: %s", error)

    async def _take(self, principal: Principal, id: str) -> mcp.CallToolResult | None:
        """Return the result of a call that an ended process handed over, or None. Raises `Refusal`."""
        if self._other_results is None:
            return None
        try:
            text = await self._other_results.take(_HANDED, f"{id} {principal.id}")
        except OSError as error:
            raise Refusal(Reason.STATE_UNAVAILABLE, "Results cannot be looked up now. Try again.") from error
        app, _, result = (text or "").partition(" ")
        return mcp.CallToolResult.model_validate_json(result) if result and self._admits(principal, app) else None

    def _keep(self, call: _KeptCall) -> mcp.CallToolResult:
        mine = [id for id, other in self._calls.items() if other.principal == call.principal]
        for id in mine[: max(0, len(mine) - MOST_KEPT + 1)]:
            _KEPT_CALLS.report(call.principal.id)
            self._calls.pop(id).task.cancel()
        id = self._new_id()
        self._calls[id] = call
        self._running.begin_call(call.task)
        call.task.add_done_callback(lambda _: self._end(id, call))
        return _running_result(id, call)

    def _end(self, id: str, call: _KeptCall) -> None:
        """Keep the result of a call that has ended for a while."""
        self._running.end_call(call.task)
        loop = call.task.get_loop()
        loop.call_later(KEPT, self._calls.pop, id, None)
        if not call.task.cancelled() and call.task.exception() is None:
            measurement = loop.run_in_executor(None, text_size, call.task.result())
            measurement.add_done_callback(lambda done: self._make_room(id, call, done))

    def _make_room(self, id: str, call: _KeptCall, measurement: asyncio.Future[int]) -> None:
        """Evict the oldest results of the principal for one of `measurement` bytes."""
        if measurement.cancelled():  # the gateway ends
            return
        call.bytes = measurement.result()
        mine = {key: one.bytes for key, one in self._calls.items() if one.principal == call.principal and one.bytes}
        size = sum(mine.values()) - mine.get(id, 0)
        for key, count in mine.items():
            if size <= KEPT_BYTES:
                break
            if key != id:
                _KEPT_CALLS.report(call.principal.id)
                self._calls.pop(key)
                size -= count


async def _wait_finished(call: _KeptCall, shortest: float = 0.0) -> bool:
    """Wait while the view shows activity, at least `shortest` seconds; return False if the task still runs then."""
    clock = call.task.get_loop().time
    began = clock()
    while not call.task.done():
        seconds = clock() - began
        left = min(max(call.relay.timeout(), shortest - seconds), LONGEST_ANSWER - seconds)
        if left <= 0:
            return False
        await asyncio.wait({call.task}, timeout=left)
    return True


def _running_result(id: str, call: _KeptCall) -> mcp.CallToolResult:
    waits = "It waits for a person's approval." if call.asks() else "The page has not answered yet."
    text = f'{waits} Collect its answer with call_view_tool {{"call": "{id}"}}.'
    return mcp.CallToolResult(
        content=[mcp.TextContent(type="text", text=text)], structured_content={"status": "running", "call": id}
    )
