"""The model's call of a page's tool: find the view, decide, limit, check, approve, record, call, clean the result."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from mcp import MCPError
from mcp import types as mcp
from msgspec import structs

from gateway.errors import Reason, Refusal
from gateway.exchange.approval_step import ApprovalStep, digest_of
from gateway.exchange.limit import Limiter
from gateway.exchange.missing_accounts import Absences
from gateway.exchange.record import Record, Recorder
from gateway.model import Caller, Door, Effect, Initiator, Principal, Tell, ViewTool, Visit
from gateway.policy import Decision, Policy, decide_tool
from gateway.ports.approvals import Approvals, Ask, Grants
from gateway.views.arguments import UNSAYABLE, first_problem
from gateway.views.later import Later
from gateway.views.registry import Views
from gateway.views.view import View

DEADLINE = 30.0
"""Seconds that a page has to answer, unless the rule of its tool sets a timeout."""

GONE = "its view was closed, loaded again, or went to another page"
"""Why a call that a page had taken has no answer any more, if the mux reports only a lost connection."""

OPEN = "Open its app, then try again; list_view_tools names what is offered now."
"""Advice to a model for a tool that no view offers."""

UNPROVEN = "unproven-view"
"""Evidence of a request whose view is unproven: its client may not take a typed code."""

log = logging.getLogger(__name__)

Arguments = Mapping[str, Any]
T = TypeVar("T")


class Forwarder:
    """Runs model calls in live views. `approval_url` followed by an id is the URL of one question."""

    def __init__(
        self,
        views: Views,
        *,
        approvals: Approvals,
        limiter: Limiter,
        recorder: Recorder,
        approval_url: str = "",
        grants: Grants,
        absences: Absences | None = None,
    ) -> None:
        self._absences = absences if absences is not None else Absences()
        self._views = views
        self._approvals = approvals
        self._step = ApprovalStep(approvals, grants, approval_url)
        self._limiter = limiter
        self._recorder = recorder
        self._later = Later(views.spawn)

    async def call(
        self,
        principal: Principal,
        name: str,
        arguments: Arguments,
        *,
        app: str | None,
        view: str | None = None,
        tell: Tell | None = None,
    ) -> mcp.CallToolResult:
        """Run the tool with the model's name `name`, or, in the given view, with the page's name `name`.

        Every refusal and failure is a result with `isError` and advice. `tell` notifies the client of each question to
        a person that the call leads to; such a call waits until the question is over.
        """
        try:
            target, tool = await self._found(principal, name, app, view)
        except Refusal as refusal:
            return failed(refusal)
        taint = target.taint.cause(self._views.now())
        caller = Caller(principal, target.app, Door.MCP, Initiator.MODEL, "model-call", target.id, cause=taint.id)
        record = self._recorder.start("tool", structs.replace(caller, cause=None), safe=False)
        record.note(method="tools/call", tool=tool.page_name)
        with self._telling(tell, record.id), self._absences.telling(record.id, tell):
            refused = await self._closed(record, self._admitted(target, tool, arguments, caller, record, tell))
            if refused is not None:
                return refused
            work = self._run_and_close(target, tool, arguments, record)
            if target.relay is None:
                return await work
            typed = tool.output_schema is not None
            return await self._later.run(principal, target.relay, work, lambda: self._asks_about(target), typed=typed)

    async def collect(self, principal: Principal, call: str) -> mcp.CallToolResult:
        """Return the result of a call that still ran when it was answered; failures as in `call`."""
        try:
            return await self._later.collect(principal, call)
        except Refusal as refusal:
            return failed(refusal)

    async def _closed(self, record: Record, step: Coroutine[Any, Any, T]) -> T | mcp.CallToolResult:
        """Return the result of `step`; if it is refused or cancelled, close the record with that."""
        try:
            return await step
        except Refusal as refusal:
            await record.close(status=refusal.status, reason=refusal.reason, detail=refusal.detail)
            return failed(refusal, record.id)
        except asyncio.CancelledError:
            self._approvals.cancel_caused(record.id)
            await record.close(status=499, reason=Reason.CANCELLED)
            raise

    async def _run_and_close(
        self, view: View, tool: ViewTool, arguments: Arguments, record: Record
    ) -> mcp.CallToolResult:
        result = await self._closed(record, self._run(view, tool, arguments, record.id))
        record.mark("page")
        result = _conforming(tool, result)
        await record.close(status=500 if result.is_error else 200)  # no effect if it is already closed
        return clean_result(result)

    async def _admitted(
        self, view: View, tool: ViewTool, arguments: Arguments, caller: Caller, record: Record, tell: Tell | None
    ) -> None:
        """Run the steps up to the open record. Raises `Refusal`."""
        record.note(request_size=_size(arguments))
        policy = self._views.apps[view.app].policy
        decision = decide_tool(policy, tool.page_name, caller, arguments, time.time())
        record.note(decision=decision.effect, reasons=list(decision.reasons), policy_version=policy.version)
        record.mark("decide")
        if decision.effect is Effect.DENY:
            raise decision.refusal()
        problem = first_problem(tool.input_schema, arguments)
        if problem is not None:
            raise Refusal(Reason.BAD_REQUEST, problem)
        if decision.obligations.reported:
            record.report(*decision.reasons)
        if exceeded := await self._limiter.take(decision.obligations, caller):
            record.report(*exceeded)
        record.mark("limit")
        await self._approve(policy, decision, view, tool, arguments, caller, record, tell)
        record.mark("approve")
        record.note(arguments=_shown(arguments))
        await record.open()

    async def _run(self, view: View, tool: ViewTool, arguments: Arguments, id: str) -> mcp.CallToolResult:
        if view.calls is None:
            raise Refusal(
                Reason.CONNECTION_LOST, "The view is closed or reloads. Call list_view_tools, then try again."
            )
        rule = self._views.apps[view.app].policy.tools.get(tool.page_name)
        seconds = DEADLINE if rule is None or rule.timeout is None else rule.timeout
        try:
            await self._views.call_begins(view, id)
            async with self._deadline(view, seconds) as begin:

                def started() -> None:
                    self._views.call_started(view, id)
                    begin()

                return await view.calls.call(tool, arguments, started)
        except TimeoutError as error:
            raise _unanswered(f"not within {seconds:g} seconds") from error
        except MCPError as error:
            said = error.error.message
            raise _unanswered(GONE if said == Reason.CONNECTION_LOST else said[:300]) from error
        finally:
            self._views.call_ended(view, id)

    @asynccontextmanager
    async def _deadline(self, view: View, seconds: float) -> AsyncIterator[Callable[[], None]]:
        """Limit the page's time to answer to `seconds`, from the call of the yielded function.

        The time is suspended while a person is asked about a request of the view.
        """
        clock = asyncio.get_running_loop().time
        async with AsyncExitStack() as stack:
            limit = await stack.enter_async_context(asyncio.timeout(None))

            def adjust() -> None:
                if not limit.expired():  # rescheduling an expired timeout would raise an error at the answering person
                    limit.reschedule(None if self._asks_about(view) else clock() + seconds)

            def begin() -> None:
                adjust()
                stack.callback(self._approvals.watch(adjust))
                stack.callback(self._absences.watch(adjust))

            yield begin

    def _asks_about(self, view: View) -> bool:
        """Whether a person is asked about a request of `view`."""
        return self._approvals.asks_about(view.id) or self._absences.asks_about(view.id)

    async def _approve(
        self,
        policy: Policy,
        decision: Decision,
        view: View,
        tool: ViewTool,
        arguments: Arguments,
        caller: Caller,
        record: Record,
        tell: Tell | None,
    ) -> None:
        message = decision.obligations.confirm
        if message is None:
            return
        body = json.dumps(arguments, ensure_ascii=False, sort_keys=True)
        ask = Ask(
            message,
            "tools/call",
            tool.page_name,
            _digest(caller, tool, body),
            policy.version,
            body=body.encode(),
            grant=decision.obligations.grant,
            patience=decision.obligations.patience,
            rule=f"tool {tool.page_name} {_digest(structs.replace(caller, view=None), tool, '')}",
        )

        def now() -> tuple[str, str]:
            """Return the current digest and version, which may have changed during the wait."""
            current = next((current for current in view.tools if current.page_name == tool.page_name), None)
            version = self._views.apps[view.app].policy.version
            return (_digest(caller, current, body) if current else "", version)

        await self._step.tool(ask, caller, record, now, tell, typed=caller.evidence != UNPROVEN)

    @contextmanager
    def _telling(self, tell: Tell | None, cause: str) -> Iterator[None]:
        """Notify the client of questions about the page's requests with this `cause`, and of their end."""
        if tell is None:
            yield
            return
        told: dict[str, Visit] = {}

        def look() -> None:
            questions = [one.question for one in self._approvals.open()]
            asked = {question.id: question for question in questions if question.cause == cause}
            for id in told.keys() - asked.keys():
                tell(replace(told.pop(id), over=True))
            for id in asked.keys() - told.keys():
                told[id] = self._step.visit(asked[id], typed=asked[id].evidence != UNPROVEN)
                tell(told[id])

        stop = self._approvals.watch(look)
        try:
            yield
        finally:
            stop()

    async def _found(
        self, principal: Principal, name: str, app: str | None, handle: str | None
    ) -> tuple[View, ViewTool]:
        """Find view and tool; if the name is unknown, first read the announced tool changes of pages."""
        try:
            return self._find(principal, name, app, handle)
        except Refusal:
            views = [view for view in self._views.of(principal, app) if handle in (None, view.id)]
            asked = [view.calls.catch_up() for view in views if view.calls is not None]
            told = await asyncio.gather(*asked, return_exceptions=True)
            for failure in told:
                if isinstance(failure, BaseException):  # other pages' failures do not affect this call
                    log.warning("a page could not be asked for its tools: %r", failure)
            if True not in told:
                raise
            return self._find(principal, name, app, handle)

    def _find(self, principal: Principal, name: str, app: str | None, handle: str | None) -> tuple[View, ViewTool]:
        if handle is not None:
            view = self._views.find(handle, principal)
            if self._views.awaited(handle, principal, app):
                words = "has not come up yet. Try again in a moment; list_view_tools shows it then."
                raise Refusal(Reason.CONNECTION_LOST, f"The page of view {handle!r} {words}")
            if view is None or app not in (None, view.app):
                raise Refusal(Reason.CONNECTION_LOST, f"No view {handle!r} is open. Call list_view_tools to see those.")
            offered = [tool for tool in view.tools if name in (tool.page_name, tool.name)]
            if not offered:
                names = ", ".join(tool.page_name for tool in view.tools) or "none at present"
                raise Refusal(Reason.BAD_REQUEST, f"This view has no tool {name!r}. It has: {names}.")
            return view, offered[0]
        if principal.shared:
            raise Refusal(Reason.BAD_REQUEST, "Name the view: call_view_tool {view, tool, arguments}.")
        found = [(view, tool) for view in self._views.of(principal, app) for tool in view.tools if tool.name == name]
        if not found:
            raise Refusal(Reason.CONNECTION_LOST, f"No open view offers {name!r}. {OPEN}")
        offering = [view for view, _ in found]
        same_app = self._views.of(principal, offering[0].app)
        if sum(view in offering or self._views.may_offer_more(view) for view in same_app) > 1:
            raise Refusal(
                Reason.BAD_REQUEST,
                "Several views of this app are open. Pass view: call_view_tool {view, tool, arguments}; "
                "list_view_tools names them.",
            )
        return found[0]


def _conforming(tool: ViewTool, result: mcp.CallToolResult) -> mcp.CallToolResult:
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


def _unanswered(why: str) -> Refusal:
    return Refusal(
        Reason.CONNECTION_LOST,
        f"The page did not answer: {why}. The tool may have run: look at the view's state before you try again.",
    )


def failed(refusal: Refusal, audit: str | None = None) -> mcp.CallToolResult:
    """Return a refusal in words for the model; `audit` is the id of its record."""
    named = f" (audit id {audit})" if audit is not None else ""
    text = mcp.TextContent(type="text", text=f"{refusal.reason}: {refusal.detail}{named}")
    return mcp.CallToolResult(content=[text], is_error=True)


def _digest(caller: Caller, tool: ViewTool, body: str) -> str:
    shown = [tool.title, tool.description, json.dumps(tool.input_schema, sort_keys=True)]
    return digest_of("tool", caller.app, caller.view or "", tool.page_name, *shown, body)


def _size(arguments: Arguments) -> int:
    """Return the arguments' characters as JSON. Raises `Refusal` if they nest too deeply for any JSON text."""
    try:
        return len(json.dumps(arguments))
    except RecursionError as error:
        raise Refusal(Reason.BAD_REQUEST, UNSAYABLE) from error


def _shown(arguments: Arguments) -> dict[str, Any] | str:
    size = _size(arguments)
    return dict(arguments) if size <= 2048 else f"{size} bytes"
