"""A call of an upstream's tool under its policy: decide, limit, approve, record, call."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcp.shared.exceptions import MCPError

from gateway.config import Upstream
from gateway.errors import Reason, Refusal
from gateway.exchange.approve import Approvals, Ask, Parked, State
from gateway.exchange.grants import Grants
from gateway.exchange.limit import Limiter
from gateway.exchange.record import Record, Recorder
from gateway.mcp.upstreams.conversation import Message
from gateway.mcp.upstreams.eras import needs_input
from gateway.mcp.upstreams.listing import held_back, pin_of, rule_of
from gateway.model import Caller, Effect
from gateway.policy import Decision, Policy, decide_tool

PATIENCE = 50.0
"""Seconds that a call waits for a person before it says that it waits; repeating the call goes on waiting."""

ROUNDS = 10_000
"""Calls that upstreams asked to be repeated, and that are remembered."""

SHOWN = 2048
"""Bytes of the largest arguments that stand in the record."""

ECHOED = ("inputResponses", "requestState", "_meta")
"""What a repeated call brings besides the call itself."""


class Gate:
    """Decides on calls. `spec_now` gives an upstream as it is configured now, None where it is gone."""

    def __init__(
        self,
        *,
        approvals: Approvals,
        grants: Grants,
        limiter: Limiter,
        recorder: Recorder,
        spec_now: Callable[[str], Upstream | None],
    ) -> None:
        self._approvals = approvals
        self._grants = grants
        self._limiter = limiter
        self._recorder = recorder
        self._spec_now = spec_now
        self._rounds: OrderedDict[str, None] = OrderedDict()

    async def call(
        self,
        spec: Upstream,
        tool: Mapping[str, Any] | None,
        params: Message,
        caller: Caller,
        run: Callable[[], Awaitable[Message]],
        now: Callable[[], Mapping[str, Any] | None],
    ) -> Message:
        """The result of `run`, if the call may run. `tool` is as the upstream lists it, None where it is unknown.

        `now` gives it as it is listed once a person has answered: the answer is for the tool that they were shown.

        Raises `Refusal`, and what `run` raises; both stand in the record.
        """
        name = str(params.get("name"))
        arguments = params.get("arguments")
        record = self._recorder.start("tool", caller, safe=False)
        record.note(method="tools/call", tool=name[:200], upstream=spec.name)
        values = arguments if isinstance(arguments, dict) else {}
        try:
            result = await self._carry(spec, tool, name, values, params, caller, record, run, now)
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

    async def _carry(
        self,
        spec: Upstream,
        tool: Mapping[str, Any] | None,
        name: str,
        arguments: Message,
        params: Message,
        caller: Caller,
        record: Record,
        run: Callable[[], Awaitable[Message]],
        now: Callable[[], Mapping[str, Any] | None],
    ) -> Message:
        decision = _decided(spec, tool, name, arguments, caller)
        body = json.dumps(arguments, ensure_ascii=False, sort_keys=True)
        version = spec.policy.version if spec.policy is not None else None
        record.note(decision=decision.effect, reasons=list(decision.reasons), policy_version=version)
        record.note(request_size=len(body), arguments=arguments if len(body) <= SHOWN else f"{len(body)} bytes")
        record.mark("decide")
        if decision.effect is Effect.DENY:
            raise decision.refusal()
        if not self._continues(caller, params):
            await self._limit(decision, caller, record)
            await self._approve(spec, decision, tool, name, body, caller, record, now)
        await record.open()
        result = await run()
        record.mark("upstream")
        if needs_input(result):
            self._remember(caller, params, result)
        return result

    async def _limit(self, decision: Decision, caller: Caller, record: Record) -> None:
        if decision.obligations.reported:
            record.report(*decision.reasons)
        if exceeded := await self._limiter.take(decision.obligations, caller):
            record.report(*exceeded)
        record.mark("limit")

    async def _approve(
        self,
        spec: Upstream,
        decision: Decision,
        tool: Mapping[str, Any] | None,
        name: str,
        body: str,
        caller: Caller,
        record: Record,
        listed: Callable[[], Mapping[str, Any] | None],
    ) -> None:
        message = decision.obligations.confirm
        if message is None or spec.policy is None:
            return
        version, lasting = spec.policy.version, decision.obligations.grant
        rule = f"upstream {spec.name} tool {name} {pin_of(tool) if tool is not None else ''}"
        grant = lasting and tool is not None and self._grants.covering(caller, rule, version)
        if grant:
            record.note(grant=grant.id, answered_by=grant.by)
            return
        digest, shown = _digest(caller, tool, name, body), body.encode("utf-8", "replace")
        ask = Ask(message, "tools/call", name, digest, version, body=shown, grant=lasting, rule=rule)
        question = self._approvals.park(ask, caller).question
        record.note(approval=question.id)
        parked = await self._wait(question.id, caller)
        if parked.state is State.OPEN:
            raise Refusal(
                Reason.APPROVAL_UNAVAILABLE,
                "This call still waits for a person's approval. Repeat the very same call to go on waiting.",
                status=202,
            )
        record.note(answered_by=parked.answered_by)
        now = self._spec_now(spec.name)
        policy: Policy | None = now.policy if now is not None else None
        digest = _digest(caller, listed(), name, body)
        await self._approvals.dispatch(parked, digest, policy.version if policy is not None else "")
        record.mark("approve")

    async def _wait(self, id: str, caller: Caller) -> Parked:
        """The question `id` after a person answered it; it dies with this call if that is given up."""
        parked = self._approvals.find(id, caller)
        try:
            return await self._approvals.wait(id, caller, PATIENCE)
        except asyncio.CancelledError:
            if not parked.holding:
                self._approvals.cancel(parked)
            raise

    def _continues(self, caller: Caller, params: Message) -> bool:
        """Whether this is the next round of a call that was let through, which the upstream asked to be repeated."""
        state = params.get("requestState")
        return isinstance(state, str) and self._rounds.pop(_round(caller, params, state), 0) is None

    def _remember(self, caller: Caller, params: Message, result: Message) -> None:
        state = result.get("requestState")
        if isinstance(state, str):
            self._rounds[_round(caller, params, state)] = None
            if len(self._rounds) > ROUNDS:
                self._rounds.popitem(last=False)


def _decided(spec: Upstream, tool: Mapping[str, Any] | None, name: str, arguments: Message, caller: Caller) -> Decision:
    if not spec.includes(name):
        return Decision(Effect.DENY, (f"the configuration of {spec.name} leaves the tool {name[:128]!r} out",))
    if spec.policy is None:
        return Decision(Effect.ALLOW, (f"{spec.name} has no policy, and includes it",), name)
    rule = rule_of(spec, name)
    if rule is not None and rule.pin is not None and (tool is None or held_back(rule, tool)):
        now = f"it is {pin_of(tool)} now" if tool is not None else "it is not listed now"
        return Decision(Effect.DENY, (f"the policy pins the tool {name} to {rule.pin}, and {now}",), name)
    return decide_tool(spec.policy, name, caller, arguments, time.time())


def _status(result: Message) -> int:
    if needs_input(result):
        return 202
    return 500 if result.get("isError") is True else 200


def _round(caller: Caller, params: Message, state: str) -> str:
    plain = {key: value for key, value in params.items() if key not in ECHOED}
    return _hash(caller.principal.id, caller.app, caller.view or "", json.dumps(plain, sort_keys=True), state)


def _digest(caller: Caller, tool: Mapping[str, Any] | None, name: str, body: str) -> str:
    shown = pin_of(tool) if tool is not None else ""
    return _hash("tool", caller.app, caller.view or "", name, shown, body)


def _hash(*parts: str) -> str:
    sha = hashlib.sha256()
    for text in parts:
        part = text.encode("utf-8", "surrogatepass")
        sha.update(b"%d:" % len(part))
        sha.update(part)
    return sha.hexdigest()
