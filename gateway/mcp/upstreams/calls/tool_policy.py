"""A call of an upstream's tool under its policy: decide, limit, approve, record, call."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from msgspec import structs

from gateway.bounds import Area, Bound
from gateway.config import UpstreamSettings
from gateway.errors import Reason, Refusal
from gateway.exchange.approval_step import ApprovalStep, digest_of
from gateway.exchange.authenticate import Authenticator
from gateway.exchange.limit import Limiter
from gateway.exchange.missing_accounts import Absences
from gateway.exchange.record import Record, Recorder
from gateway.jsontext.portable import DEPTH_LIMIT, dump, is_deep, sayable
from gateway.jsontext.writing import is_large, written
from gateway.mcp.upstreams.calls.eras import needs_input
from gateway.mcp.upstreams.catalog.listing import held_back, pin_of, rule_of
from gateway.mcp.upstreams.transport.conversation import Message
from gateway.model import Caller, Effect, Tell
from gateway.owned import Owned
from gateway.policy import Decision, Policy, decide_tool
from gateway.ports.approvals import Approvals, Ask, Grants
from gateway.traces import Trace

ROUNDS = 10_000
"""Remembered calls whose repetition an upstream requested."""

ROUNDS_EACH = 256
"""Remembered calls of one principal."""

BOUNDS: Final = (
    Bound(
        Area.UPSTREAMS,
        "calls that an upstream wants to have repeated",
        f"{ROUNDS_EACH} per principal, {ROUNDS:,} in all, are let through once more without being counted again",
        "the oldest of that principal, or of whoever has most, is decided on as a new call",
    ),
)

(_REPEATED,) = BOUNDS

SHOWN = 2048
"""Characters of the largest arguments that the audit log contains."""

UNSAYABLE = f"The arguments hold a number that is too large for JSON, or are nested deeper than {DEPTH_LIMIT}."

ECHOED = ("inputResponses", "requestState", "_meta")
"""Members that a repeated call has besides the call itself."""

_in_one_form: Final = json.JSONEncoder(ensure_ascii=False, sort_keys=True, allow_nan=False).encode


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool of `spec`.
    `listed` returns the tool as currently listed, None if it is unknown. `admit` loads the tool, and raises `Refusal`
    if it is not for this caller. `run` executes the call; it receives the trace to propagate, if tracing is on. `tell`
    sends the client's person to a page, if the client can do that, and waits until they were there. `typed` means that
    such a client may be trusted to ask for a yes by itself, `own` that the tool is the gateway's, which no policy
    covers.
    """

    spec: UpstreamSettings
    params: Message
    caller: Caller
    listed: Callable[[], Mapping[str, Any] | None]
    admit: Callable[[], Awaitable[None]]
    run: Callable[[Trace | None], Awaitable[Message]]
    tell: Tell | None = None
    typed: bool = False
    own: bool = False

    @property
    def name(self) -> str:
        """The name of the tool at the upstream."""
        return str(self.params.get("name"))

    @property
    def arguments(self) -> Message:
        """The arguments of the call."""
        arguments = self.params.get("arguments")
        return arguments if isinstance(arguments, dict) else {}

    @property
    def body(self) -> str:
        """The arguments in canonical JSON, as shown to a person."""
        return _in_one_form(self.arguments)


class ToolGate:
    """Decides on calls. `spec_now` returns an upstream's current configuration, None if it was removed.
    `page` with an id is the page where a person answers one question.
    """

    def __init__(
        self,
        *,
        approvals: Approvals,
        grants: Grants,
        limiter: Limiter,
        recorder: Recorder,
        authenticator: Authenticator,
        absences: Absences,
        page: str,
        spec_now: Callable[[str], UpstreamSettings | None],
    ) -> None:
        self._step = ApprovalStep(approvals, grants, page)
        self._limiter = limiter
        self._recorder = recorder
        self._authenticator = authenticator
        self._absences = absences
        self._spec_now = spec_now
        self._rounds: Owned[str, bool] = Owned(ROUNDS_EACH, ROUNDS, _REPEATED)

    def may_ask(self, spec: UpstreamSettings, name: str) -> bool:
        """Whether a call of the tool may need a person: to approve it, or to connect an account."""
        rule = rule_of(spec, name)
        return spec.personal or (rule is not None and rule.confirm is not None)

    async def call(self, call: ToolCall) -> Message:
        """Return the result of the call, if it may run. Raises `Refusal` and the call's errors; both are recorded."""
        record = self._recorder.start("tool", call.caller, safe=False)
        record.note(method="tools/call", tool=call.name[:200], upstream=call.spec.name)
        try:
            with self._absences.telling(record.id, call.tell):
                result = await self._carry(call, record)
        except Refusal as refusal:
            await record.close(status=refusal.status, reason=refusal.reason, detail=refusal.detail)
            raise
        except MCPError as error:
            await record.close(status=502, detail=f"the upstream refused: {error.error.message[:300]}")
            raise
        except asyncio.CancelledError:
            await record.close(status=499, reason=Reason.CANCELLED)
            raise
        await record.close(status=_status(result))
        return result

    async def _carry(self, call: ToolCall, record: Record) -> Message:
        size = await _size(call)
        policy = call.spec.policy
        decision = _decided(call)
        version = policy.version if policy is not None else None
        record.note(decision=decision.effect, reasons=list(decision.reasons), policy_version=version)
        record.note(request_size=size, arguments=call.arguments if size <= SHOWN else f"{size} bytes")
        record.mark("decide")
        if decision.effect is Effect.DENY:
            raise decision.refusal()
        goes_on = self._continues(call)
        if not goes_on:
            await self._limit(decision, call, record)
            await self._account(call, record)  # checked first, since approving an unsendable call is useless
        await call.admit()
        tool = call.listed()
        if (pinned := _pinned(call, tool)) is not None:
            record.note(decision=pinned.effect, reasons=list(pinned.reasons))
            raise pinned.refusal()
        if not goes_on and policy is not None and decision.obligations.confirm is not None:
            await self._approve(policy, decision.obligations.confirm, decision, tool, call, record)
        await record.open()
        trace = record.span.going_out("upstream")
        result = await call.run(trace if record.span.wanted else None)
        record.mark("upstream")
        if needs_input(result):
            self._remember(call, result)
        return result

    async def _limit(self, decision: Decision, call: ToolCall, record: Record) -> None:
        if decision.obligations.reported:
            record.report(*decision.reasons)
        caller, name = call.caller, call.spec.name
        # One count, whichever path the call took.
        counted = caller if caller.app == name else structs.replace(caller, app=name)
        if exceeded := await self._limiter.take(decision.obligations, counted):
            record.report(*exceeded)
        record.mark("limit")

    async def _approve(
        self,
        policy: Policy,
        message: str,
        decision: Decision,
        tool: Mapping[str, Any] | None,
        call: ToolCall,
        record: Record,
    ) -> None:
        """Continue if a person approved the call of the tool as shown. Raises `Refusal`."""
        name, lasting = call.name, decision.obligations.grant if tool is not None else None
        rule = f"upstream {call.spec.name} tool {name} {pin_of(tool) if tool is not None else ''}"
        digest, shown = _digest(call, tool), call.body.encode("utf-8", "replace")
        ask = Ask(message, "tools/call", name, digest, policy.version, body=shown, grant=lasting, rule=rule)
        ask = replace(ask, patience=decision.obligations.patience)

        def now() -> tuple[str, str]:
            """Return digest and policy version again, which may have changed while the person decided."""
            spec = self._spec_now(call.spec.name)
            version = spec.policy.version if spec is not None and spec.policy is not None else ""
            return _digest(call, call.listed()), version

        await self._step.tool(ask, call.caller, record, now, call.tell, typed=call.typed)
        record.mark("approve")

    async def _account(self, call: ToolCall, record: Record) -> None:
        """Continue once the caller's account is connected, to which a capable client sends its person.
        Raises `Refusal`.
        """
        name = call.spec.credential
        if name is None or not call.spec.personal:
            return
        caller = structs.replace(call.caller, cause=record.id)
        ready = partial(self._authenticator.ready, name, caller.principal)
        try:
            await ready()
        except Refusal as refusal:
            await self._absences.until_there(refusal, ready, caller, name)

    def _continues(self, call: ToolCall) -> bool:
        """Whether this repeats an admitted call at the upstream's request."""
        state = call.params.get("requestState")
        return isinstance(state, str) and self._rounds.pop(_round(call, state)) is not None

    def _remember(self, call: ToolCall, result: Message) -> None:
        state = result.get("requestState")
        if isinstance(state, str):
            self._rounds.put(call.caller.principal.id, _round(call, state), True)


async def _size(call: ToolCall) -> int:
    """Return the characters of the arguments. Raises `Refusal` if no message or record can represent them."""
    arguments = call.arguments
    try:
        return await asyncio.to_thread(_in_pieces, arguments) if is_large(arguments) else len(sayable(arguments))
    except ValueError as error:
        raise Refusal(Reason.BAD_REQUEST, UNSAYABLE) from error


def _in_pieces(arguments: Message) -> int:
    if is_deep(arguments):
        raise ValueError("nested too deep")
    return sum(len(piece) for piece in written(arguments, dump))


def _decided(call: ToolCall) -> Decision:
    spec, name = call.spec, call.name
    if call.own:
        return Decision(Effect.ALLOW, ("the tool is the gateway's own",), name)
    if not spec.includes(name):
        return Decision(Effect.DENY, (f"the configuration of {spec.name} leaves the tool {name[:128]!r} out",))
    if spec.policy is None:
        return Decision(Effect.ALLOW, (f"{spec.name} has no policy, and includes it",), name)
    return decide_tool(spec.policy, name, call.caller, call.arguments, time.time())


def _pinned(call: ToolCall, tool: Mapping[str, Any] | None) -> Decision | None:
    """Return the denial if the policy pins the tool to another form, else None."""
    rule = rule_of(call.spec, call.name)
    if rule is None or rule.pin is None or (tool is not None and not held_back(rule, tool)):
        return None
    now = f"it is {pin_of(tool)} now" if tool is not None else "it is not listed now"
    return Decision(Effect.DENY, (f"the policy pins the tool {call.name} to {rule.pin}, and {now}",), call.name)


def _status(result: Message) -> int:
    if needs_input(result):
        return 202
    return 500 if result.get("isError") is True else 200


def _round(call: ToolCall, state: str) -> str:
    caller = call.caller
    plain = {key: value for key, value in call.params.items() if key not in ECHOED}
    return digest_of(caller.principal.id, caller.app, caller.view or "", json.dumps(plain, sort_keys=True), state)


def _digest(call: ToolCall, tool: Mapping[str, Any] | None) -> str:
    caller, shown = call.caller, pin_of(tool) if tool is not None else ""
    return digest_of("tool", caller.app, caller.view or "", call.name, shown, call.body)
