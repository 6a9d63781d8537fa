"""The steps of a tool call: decide, check, limit, prepare, approve, open the entry, run, close the entry.

The page's requests take the same steps in `pipeline`, and share the approval step.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar

from gateway.callers.entitlements import Admits, admit_all
from gateway.errors import NOT_SERVED, Reason, Refusal
from gateway.exchange.approval_step import UNPROVEN, ApprovalStep, digest_of
from gateway.exchange.authenticate import MissingAccounts
from gateway.exchange.drain import RunningCalls
from gateway.exchange.limit import Limiter
from gateway.exchange.record import Record, Recorder
from gateway.exchange.streams import internal_error
from gateway.jsontext.sizes import MAX_DEPTH, nests_deeper
from gateway.jsontext.writing import compact_portable, is_large, plain_within, sorted_json_utf8, write_pieces
from gateway.model import Caller, Effect, Json, Tell, Visit
from gateway.policy import Decision
from gateway.ports.approvals import Ask
from gateway.traces import Trace

RECORDED: Final = 2048
"""Bytes of the largest arguments that the audit log contains."""

UNSAYABLE: Final = f"arguments: a number is too large for JSON, or values are nested deeper than {MAX_DEPTH}."

log = logging.getLogger(__name__)

T = TypeVar("T")
S = TypeVar("S")

Deliver = Callable[[Coroutine[Any, Any, T]], Awaitable[T]]
"""Awaits a running call, or returns what its client gets while the call continues in the background."""


class ToolCall(Protocol[T]):
    """One call of a tool, as `views` or `mcp.upstreams` runs it. Its steps raise `Refusal`."""

    @property
    def name(self) -> str:
        """The owner's name of the tool."""
        ...

    @property
    def caller(self) -> Caller:
        """The caller, which is asked about and recorded."""
        ...

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments."""
        ...

    @property
    def fields(self) -> Mapping[str, Json]:
        """The fields of the entry that are special to the owner of the tool."""
        ...

    @property
    def step(self) -> str:
        """The name of the run among the entry's steps."""
        ...

    @property
    def typed(self) -> bool:
        """True if a trusted client may ask its person for a typed code."""
        ...

    def decide(self) -> tuple[Decision, str | None]:
        """Return the decision, and the version of the policy that made it."""
        ...

    def check(self) -> None:
        """Check an allowed call before it counts."""
        ...

    def counts_for(self) -> Caller:
        """Return the caller whose limits the call counts against."""
        ...

    async def prepare(self, record: Record) -> None:
        """Get what the call needs before a person is asked: approving a call that cannot be sent is useless."""
        ...

    def definition(self) -> Sequence[str] | None:
        """Return the texts that define the tool as it is offered now; None if it is not offered any more."""
        ...

    def rule(self) -> str:
        """Return the rule that a grant would cover; empty if the tool cannot be granted for a while."""
        ...

    def policy_version(self) -> str:
        """Return the version of the policy that applies now."""
        ...

    async def run(self, id: str, trace: Trace | None) -> T:
        """Run the call whose entry is `id`; `trace` is to be propagated, if it is wanted."""
        ...

    def status(self, result: T) -> int:
        """Return the HTTP status that describes a result in the entry."""
        ...

    def refusal_result(self, refusal: Refusal, id: str) -> T:
        """Return a refusal as a result; `id` is that of its entry."""
        ...

    def failure(self, error: Exception) -> str | None:
        """Return what the entry says about an error that the tool's owner reports; None if it is unexpected."""
        ...


class ToolCalls:
    """Runs calls of tools. `step` asks persons, `absences` are the calls that wait for an account.

    Apps and upstreams do not exist for callers that they do not admit, by `admits`. `check` raises `Refusal` if this
    process may not run a call any more.
    """

    def __init__(
        self,
        step: ApprovalStep,
        *,
        limiter: Limiter,
        recorder: Recorder,
        absences: MissingAccounts | None = None,
        admits: Admits = admit_all,
        running: RunningCalls | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._check = check
        self._admits = admits
        self.running = running or RunningCalls()
        self._step = step
        self._limiter = limiter
        self._recorder = recorder
        self._absences = absences if absences is not None else MissingAccounts()

    async def call(self, call: ToolCall[T], tell: Tell | None = None, *, deliver: Deliver[T] | None = None) -> T:
        """Return the result of a call. Every refusal is a result, too, and whatever happens is recorded.

        `tell` notifies the client of each question to a person that the call leads to; such a call waits until the
        question is over. `deliver` awaits the admitted call. Raises the errors that the tool's owner reports.
        """
        record = self._recorder.start("tool", call.caller, safe=False)
        record.note(method="tools/call", tool=call.name[:200], **call.fields)
        if tell is None and deliver is None:
            with self.running.call():
                return await self._close_on_error(call, record, self._run_admitted(call, record))
        with self.running.call(), self._notify(tell, record.id), self._absences.telling(record.id, tell):
            result = await self._close_on_error(call, record, self._admit(call, record, tell))
            if result is not None:
                return result
            running = self._close_on_error(call, record, self._run(call, record))
            return await (running if deliver is None else deliver(running))

    def asks_about(self, view: str) -> bool:
        """Return whether a person is asked about a request of `view`."""
        return self._step.approvals.asks_about(view) or self._absences.asks_about(view)

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever `asks_about` may have changed; the returned function unregisters it."""
        stops = self._step.approvals.watch(callback), self._absences.watch(callback)

        def stop() -> None:
            for one in stops:
                one()

        return stop

    async def _admit(self, call: ToolCall[T], record: Record, tell: Tell | None) -> None:
        """Run the steps up to the open entry. Raises `Refusal`."""
        self._check_access(call)
        size = await _size(call.arguments)
        decision, version = call.decide()
        record.note(decision=decision.effect, reasons=list(decision.reasons), policy_version=version)
        record.note(request_size=size, arguments=dict(call.arguments) if size <= RECORDED else f"{size} bytes")
        record.mark("decide")
        if decision.effect is Effect.DENY:
            raise decision.refusal()
        call.check()
        if decision.obligations.reported:
            record.report(*decision.reasons)
        record.report(*await self._limiter.take(decision.obligations, call.counts_for()))
        record.mark("limit")
        await call.prepare(record)
        if decision.obligations.confirm is not None:
            await self._approve(decision.obligations.confirm, decision, version or "", call, record, tell)
            self._check_access(call)  # its caller's claims were looked up
            record.mark("approve")
        await record.open()

    async def _approve(
        self, message: str, decision: Decision, version: str, call: ToolCall[T], record: Record, tell: Tell | None
    ) -> None:
        """Return once a person has approved the call of the tool as shown. Raises `Refusal`."""
        body, rule = sorted_json_utf8(call.arguments), call.rule()
        digest = _digest(call, body)
        if not digest:
            raise Refusal(Reason.CONNECTION_LOST, f"The tool {call.name[:128]!r} is not offered any more.")
        ask = Ask(
            message,
            "tools/call",
            call.name,
            digest,
            version,
            body=body.encode("utf-8", "replace"),
            grant=decision.obligations.grant if rule else None,
            question_timeout=decision.obligations.question_timeout,
            rule=rule,
        )

        def now() -> tuple[str, str]:
            """Return digest and policy version again, which may have changed while the person decided, like access."""
            self._check_access(call)
            return _digest(call, body), call.policy_version()

        await self._step.tool(ask, call.caller, record, now, tell, typed=call.typed)

    def _check_access(self, call: ToolCall[T]) -> None:
        """Raise `Refusal` if the caller may not use the app, or the upstream that the call is for."""
        for one in (call.caller.app, call.fields.get("upstream")):
            if isinstance(one, str) and not self._admits(call.caller.principal, one):
                raise Refusal(Reason.CONNECTION_LOST, NOT_SERVED)

    async def _run_admitted(self, call: ToolCall[T], record: Record) -> T:
        await self._admit(call, record, None)
        return await self._run(call, record)

    async def _run(self, call: ToolCall[T], record: Record) -> T:
        trace = record.span.going_out(call.step)
        self._check()
        result = await call.run(record.id, trace if record.span.wanted else None)
        record.mark(call.step)
        await record.close(status=call.status(result))
        return result

    async def _close_on_error(self, call: ToolCall[T], record: Record, steps: Coroutine[Any, Any, S]) -> S | T:
        """Return the result of `steps`; close the entry if they end in another way."""
        try:
            with self.running.refusing_cuts:
                try:
                    return await steps
                except asyncio.CancelledError:
                    self._step.approvals.cancel_caused(record.id)
                    raise
        except Refusal as refusal:
            await record.refuse(refusal)
            return call.refusal_result(refusal, record.id)
        except asyncio.CancelledError:
            await record.cancel()
            raise
        except Exception as error:
            known = call.failure(error)
            if known is not None:
                await record.close(status=502, detail=known)
                raise
            log.exception("the call %s of the tool %s failed", record.id, call.name[:200])
            fault = internal_error()
            await record.refuse(fault)
            return call.refusal_result(fault, record.id)

    @contextmanager
    def _notify(self, tell: Tell | None, cause: str) -> Iterator[None]:
        """Notify the client of questions about requests that the call `cause` leads to, and of their end."""
        if tell is None:
            yield
            return
        known: dict[str, Visit] = {}
        approvals = self._step.approvals

        def look() -> None:
            now = {one.question.id: one.question for one in approvals.own() if one.question.cause == cause}
            for id in known.keys() - now.keys():
                tell(replace(known.pop(id), over=True))
            for id in now.keys() - known.keys():
                known[id] = self._step.visit(now[id], typed=now[id].evidence != UNPROVEN)
                tell(known[id])

        stop = approvals.watch(look)
        try:
            yield
        finally:
            stop()


def _digest(call: ToolCall[T], body: str) -> str:
    """Return the digest of the call of the tool as it is offered now; empty if it is not offered any more."""
    caller, definition = call.caller, call.definition()
    if definition is None:
        return ""
    return digest_of("tool", caller.app, caller.view or "", call.name, *definition, body)


async def _size(arguments: Mapping[str, Any]) -> int:
    """Return the bytes of the arguments as JSON. Raises `Refusal` if no message or record can represent them."""
    values = dict(arguments)
    try:
        if is_large(values):
            return await asyncio.to_thread(_size_in_pieces, values)
        return len(plain_within(values).encode("utf-8", "surrogatepass"))
    except ValueError as error:
        raise Refusal(Reason.BAD_REQUEST, UNSAYABLE) from error


def _size_in_pieces(values: dict[str, Any]) -> int:
    if nests_deeper(values):
        raise ValueError("nested too deep")
    return sum(len(piece.encode()) for piece in write_pieces(values, compact_portable))
