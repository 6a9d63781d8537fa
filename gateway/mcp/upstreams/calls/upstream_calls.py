"""The calls of upstreams' tools: the steps that are special to them, approvals by elicitation, and the views shown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError
from msgspec import structs

from gateway.bounds import Area, Bound
from gateway.caches import OwnerCache
from gateway.config import UpstreamSettings
from gateway.errors import Reason, Refusal
from gateway.exchange.approval_step import digest_of
from gateway.exchange.authenticate import Authenticator, MissingAccounts
from gateway.exchange.record import Record
from gateway.exchange.tool_calls import ToolCalls
from gateway.jsontext.writing import sorted_json
from gateway.mcp.asgi import ending_of
from gateway.mcp.elicitation import STATE, ElicitingCalls
from gateway.mcp.results import of_refusal
from gateway.mcp.upstreams.calls.client import Context, UpstreamClient, needs_input
from gateway.mcp.upstreams.calls.relay import UpstreamRelay
from gateway.mcp.upstreams.catalog import listing
from gateway.mcp.upstreams.catalog.listing import CONNECT, account_connected, held_back, pin_of, rule_of
from gateway.mcp.upstreams.catalog.offers import LARGEST
from gateway.mcp.upstreams.transport.conversation import Message, timeout_notes
from gateway.mcp.upstreams.upstream import Upstream
from gateway.model import Caller, Effect, Json, Principal
from gateway.policy import Decision, Obligations, decide_tool
from gateway.stores.upstream_tools import key_of
from gateway.traces import Trace
from gateway.views.shown import ShownView

ROUNDS = 10_000
"""Remembered calls whose repetition an upstream requested."""

ROUNDS_EACH = 256
"""Remembered calls of one principal."""

BOUNDS: Final = (
    Bound(
        Area.UPSTREAMS,
        "calls to repeat for an upstream",
        f"{ROUNDS_EACH} per principal, {ROUNDS:,} in all, are repeated once without counting against limits",
        "the repetition of the oldest of that principal, or of the largest holder, counts as a new call",
    ),
)

(_REPEATED,) = BOUNDS

ECHOED = ("inputResponses", "requestState", "_meta")
"""Members that a repeated call has besides the call itself."""

ShownIn = Callable[[Principal, str], ShownView | None]
"""Returns the view of an app, by address, that a host page of the gateway shows to a principal, or None."""

RevocationWatch = Callable[[Principal, Callable[[], None], str], AbstractContextManager[None]]
"""Calls the callback if the principal's credential is revoked or expires within the block, or its access to the app."""


class RepeatedCalls:
    """The admitted calls that an upstream wants to have repeated, with further input."""

    def __init__(self) -> None:
        self._rounds: OwnerCache[str, bool] = OwnerCache(ROUNDS_EACH, ROUNDS, _REPEATED)

    def remember(self, caller: Caller, params: Message, result: Message) -> None:
        """Let the call through once more, if `result` asks for it."""
        state = result.get("requestState")
        if needs_input(result) and isinstance(state, str):
            self._rounds.put(caller.principal.id, _round(caller, params, state), True)

    def take(self, caller: Caller, params: Message) -> bool:
        """Return whether this is such a repetition; it is one only once."""
        state = params.get("requestState")
        return isinstance(state, str) and self._rounds.pop(_round(caller, params, state)) is not None


@dataclass(frozen=True, slots=True)
class CallServices:
    """The services of the calls of all upstreams. `settings` returns an upstream's settings, None if it is gone.

    `eliciting` are the calls whose clients can ask a person, `shown_in` finds the view that shows what a tool opens;
    `revocation` watches over calls that continue without a connection.
    """

    calls: ToolCalls
    authenticator: Authenticator
    absences: MissingAccounts
    repetition: RepeatedCalls
    settings: Callable[[str], UpstreamSettings | None]
    revocation: RevocationWatch


class UpstreamCaller:
    """Calls the tools of one upstream.

    `eliciting` are the calls whose clients can ask a person, `load` requests a tool that is unknown, `shown_in` finds
    the view that shows what a tool opens.
    """

    def __init__(
        self,
        upstream: Upstream,
        relay: UpstreamRelay,
        services: CallServices,
        eliciting: ElicitingCalls[Message],
        shown_in: ShownIn,
        load: Callable[[UpstreamClient, str], Awaitable[Message | None]],
    ) -> None:
        self.upstream = upstream
        self.services = services
        self.load = load
        self._relay = relay
        self._eliciting = eliciting
        self._shown_in = shown_in

    def may_ask(self, name: str) -> bool:
        """Return whether a call of the tool may need a person: to approve it, or to connect an account."""
        spec = self.upstream.spec
        rule = rule_of(spec, name)
        return spec.personal or (rule is not None and rule.asks)

    def close(self) -> None:
        """End the calls that wait for a person."""
        self._eliciting.close()

    async def call(self, client: UpstreamClient, params: Message, context: Context | None = None) -> Message:
        """Return the result of a call; the gateway's refusals are results, too. Raises the upstream's `MCPError`.

        With its `context`, a client that can ask its person is sent to a page if the call needs that.
        """
        name, state = str(params.get("name")), params.get("requestState")
        own = name == CONNECT and self.upstream.spec.personal and self.find_listed(client, name) is None
        spec = self.upstream.spec
        call = UpstreamToolCall(self, spec, client, client.calls(spec.name), params, context, own)
        ours = isinstance(state, str) and state.startswith(STATE)
        asks = context is not None and self._eliciting.can_ask(context.session.client_capabilities, client.principal)
        if context is None or not asks or not (ours or self.may_ask(name)):
            return complete(client, await self.services.calls.call(call))
        state_members = {key: params[key] for key in ("requestState", "inputResponses") if ours and key in params}
        request_params = types.CallToolRequestParams.model_validate({"name": name, **state_members}, by_name=False)
        work = partial(self.services.calls.call, call)
        answer = await self._eliciting.carry(context, request_params, client.principal, work, call.move)
        if isinstance(answer, types.InputRequiredResult):
            return answer.model_dump(by_alias=True, mode="json", exclude_none=True)
        return complete(client, answer)

    def find_listed(self, client: UpstreamClient, name: str) -> Mapping[str, Any] | None:
        """Return the tool as it is listed to the client now; None if it is unknown."""
        return self.upstream.offer(client.principal).tools.get(name)

    async def forward(self, client: UpstreamClient, tool: Mapping[str, Any] | None, params: Message) -> Message:
        """Return the result of a call, and pass it to the view that shows what it opens.

        A client that shows apps shows this one itself; for another client it may be in a host page of the gateway.
        """
        uri = listing.app_of(tool) if tool is not None and client.caller is None and not client.is_app else None
        view_shown = self._shown_in(client.principal, uri) if uri is not None else None
        if view_shown is None:
            return await self._relay.forward(client, "tools/call", params)
        arguments = params.get("arguments")
        if "requestState" not in params and "inputResponses" not in params:
            await view_shown.input(arguments if isinstance(arguments, dict) else {})
        result: Message | None = None
        why = "the call was cancelled"
        try:
            result = await self._relay.forward(client, "tools/call", params)
        except Refusal as refusal:
            why = refusal.detail
            raise
        except MCPError as error:
            why = error.error.message[:500]
            raise
        finally:
            if result is None:
                self.upstream.spawn(view_shown.cancel(why))
        if not needs_input(result):
            await view_shown.result({key: value for key, value in result.items() if key != "resultType"})
        return result


@dataclass(slots=True, eq=False)
class UpstreamToolCall:
    """A call of a tool of the upstream `spec`, with the steps that are special to it.

    `own` means that the tool is the gateway's, which no policy covers: it connects an account. Its client may repeat
    the request while a person is asked.
    """

    owner: UpstreamCaller
    spec: UpstreamSettings
    client: UpstreamClient
    caller: Caller
    params: Message
    context: Context | None
    own: bool
    repeated: bool = False

    step: ClassVar[str] = "upstream"

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
    def fields(self) -> Mapping[str, Json]:
        """The upstream."""
        return {"upstream": self.spec.name}

    @property
    def typed(self) -> bool:
        """True if the client shows no apps: a call may come from one."""
        return not self.client.is_app

    def move(self, context: Context) -> None:
        """Send later notifications to the client's new request, with its new progress token."""
        if (way := self.client.way) is not None:
            way.session, way.request_id, way.request = context.session, context.request_id, context.request
        meta = (context.params or {}).get("_meta")
        self.params = {**self.params, **({"_meta": meta} if isinstance(meta, dict) else {})}

    def decide(self) -> tuple[Decision, str | None]:
        """Decide under the policy of the upstream; a repetition that it asked for has no obligations left."""
        policy = self.spec.policy
        decision = self._decision()
        if decision.effect is Effect.ALLOW and self.owner.services.repetition.take(self.caller, self.params):
            self.repeated, decision = True, replace(decision, obligations=Obligations())
        return decision, policy.version if policy is not None else None

    def _decision(self) -> Decision:
        spec, name = self.spec, self.name
        if self.own:
            return Decision(Effect.ALLOW, ("the tool is the gateway's own",), name)
        if not spec.includes(name):
            return Decision(Effect.DENY, (f"the configuration of {spec.name} leaves the tool {name[:128]!r} out",))
        if spec.policy is None:
            return Decision(Effect.ALLOW, (f"{spec.name} has no policy, and includes it",), name)
        return decide_tool(spec.policy, name, self.caller, self.arguments, time.time())

    def check(self) -> None:
        """Do nothing: the upstream checks the arguments."""

    def counts_for(self) -> Caller:
        """Return the caller at the upstream's mount: one count, whichever path the call took."""
        caller, name = self.caller, self.spec.name
        return caller if caller.app == name else structs.replace(caller, app=name)

    async def prepare(self, record: Record) -> None:
        """Wait for the caller's account, then load the tool, and refuse one that is not for this caller."""
        if not self.repeated:
            await self._connect_account(record)
        if not self.own:
            await self._check_offered()
        if (pin := self._denied_by_pin()) is not None:
            record.note(decision=pin.effect, reasons=list(pin.reasons))
            raise pin.refusal()

    async def _connect_account(self, record: Record) -> None:
        """Return once the caller's account is connected, to which a capable client sends its person."""
        name = self.spec.credential
        if name is not None and self.spec.personal:
            caller, services = structs.replace(self.caller, cause=record.id), self.owner.services
            ready = partial(services.authenticator.ready, name, caller.principal)
            await services.absences.wait_for(ready, caller, name)

    async def _check_offered(self) -> None:
        owner, client, spec, name = self.owner, self.client, self.spec, self.name
        tool, offer = await owner.load(client, name), owner.upstream.offer(client.principal)
        if offer.left_out and key_of(name) in offer.left_out:
            detail = f"The tool {name[:128]} of {spec.name} is left out: its list has more than {LARGEST} bytes."
            raise Refusal(Reason.POLICY_DENIED, detail)
        _check_visible(client, tool, name)
        if offer.fingerprints.holds_back(name):
            detail = f"The tool {name[:128]} of {spec.name} is new, and it had too many before: pin it in its policy."
            raise Refusal(Reason.POLICY_DENIED, detail)

    def _denied_by_pin(self) -> Decision | None:
        """Return the denial if the policy pins the tool to another form, else None."""
        rule, tool = rule_of(self.spec, self.name), self._listed_tool()
        if rule is None or rule.pin is None or (tool is not None and not held_back(rule, tool)):
            return None
        now = f"it is {pin_of(tool)} now" if tool is not None else "it is not listed now"
        return Decision(Effect.DENY, (f"the policy pins the tool {self.name} to {rule.pin}, and {now}",), self.name)

    def definition(self) -> Sequence[str]:
        """Return the pin of the tool as it is listed now; an upstream may have tools that it does not list."""
        tool = self._listed_tool()
        return (pin_of(tool) if tool is not None else "",)

    def rule(self) -> str:
        """Return the tool with its pin; empty for an unlisted tool."""
        tool = self._listed_tool()
        return f"upstream {self.spec.name} tool {self.name} {pin_of(tool)}" if tool is not None else ""

    def policy_version(self) -> str:
        """Return the version of the upstream's policy; empty once it has none, or is gone."""
        spec = self.owner.services.settings(self.spec.name)
        return spec.policy.version if spec is not None and spec.policy is not None else ""

    async def run(self, id: str, trace: Trace | None) -> Message:
        """Return the upstream's result; a call in a resumable stream goes on when its client disconnects."""
        # 2025-11-25, Transports: the stream of a disconnected client can be resumed. Later a disconnect cancels.
        resumable = self.context is not None and not self.client.modern
        lasting = ending_of(self.context.request).outlive() if self.context and resumable else nullcontext()
        watch = self.owner.services.revocation
        with lasting, anyio.CancelScope() as scope, watch(self.client.principal, scope.cancel, self.spec.name):
            return await self._send(trace)
        raise Refusal(Reason.CANCELLED, "What proved the caller of this call has ended.")

    async def _send(self, trace: Trace | None) -> Message:
        spec = self.spec
        if self.own:
            await self.owner.upstream.session(self.client)
            return account_connected(spec)
        params = self.params if trace is None else _with_trace(self.params, trace)
        rule = rule_of(spec, self.name)
        seconds = rule.timeout if rule is not None else None
        if seconds is None:
            return await self._forward(params)
        try:
            async with asyncio.timeout(seconds) as limit:
                return await self._forward(params)
        except TimeoutError as error:
            if not limit.expired():
                raise
            detail = (
                f"The tool {self.name} of {spec.name} did not answer within {seconds:g} seconds, the limit of its rule"
            )
            raise Refusal(Reason.BACKEND_TIMEOUT, f"{detail}{timeout_notes(error)}.") from error

    async def _forward(self, params: Message) -> Message:
        result = await self.owner.forward(self.client, self._listed_tool(), params)
        self.owner.services.repetition.remember(self.caller, self.params, result)
        return result

    def status(self, result: Message) -> int:
        """Return 202 for a result that asks for input, and 500 for an error of the tool."""
        if needs_input(result):
            return 202
        return 500 if result.get("isError") is True else 200

    def refusal_result(self, refusal: Refusal, id: str) -> Message:
        """Return a refusal in words and as a code."""
        return refusal_result(refusal)

    def failure(self, error: Exception) -> str | None:
        """Return the upstream's own words, which its client gets as they are."""
        return f"the upstream refused: {error.error.message[:300]}" if isinstance(error, MCPError) else None

    def _listed_tool(self) -> Mapping[str, Any] | None:
        return self.owner.find_listed(self.client, self.name)


def refusal_result(refusal: Refusal) -> Message:
    """Return the result of a refused call."""
    result: Message = of_refusal(refusal).model_dump(by_alias=True, mode="json", exclude_none=True)
    return result


def complete(client: UpstreamClient, result: Message) -> Message:
    """Return a result in the form of the client's era."""
    return {**result, "resultType": "complete"} if client.modern and "resultType" not in result else result


def _with_trace(params: Message, trace: Trace) -> Message:
    """Return a call with its trace context, as in MCP (`_meta`, W3C Trace Context)."""
    meta = params.get("_meta")
    kept_meta = {key: value for key, value in meta.items() if key != "tracestate"} if isinstance(meta, dict) else {}
    return {**params, "_meta": {**kept_meta, **dict(trace.headers())}}


def _round(caller: Caller, params: Message, state: str) -> str:
    plain = {key: value for key, value in params.items() if key not in ECHOED}
    return digest_of(caller.principal.id, caller.app, caller.view or "", sorted_json(plain), state)


def _check_visible(client: UpstreamClient, tool: Message | None, name: str) -> None:
    visible = listing.visibility(tool)
    if not visible:
        raise Refusal(Reason.POLICY_DENIED, f"The tool {name[:128]!r} has no recipient: its upstream names no caller.")
    if client.caller is not None and "app" not in visible:
        raise Refusal(Reason.POLICY_DENIED, f"The tool {name[:128]!r} is not for apps.")
    if client.caller is None and "model" not in visible and not client.is_app:
        raise Refusal(Reason.NOT_AN_APP, f"{name} serves MCP Apps; this client does not declare that it shows them.")
