"""The calls of one upstream's tools: visibility, approvals, and the views that show their results."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError

from gateway.errors import Reason, Refusal
from gateway.mcp.asgi import ending_of
from gateway.mcp.elicitation import STATE, ElicitingCalls
from gateway.mcp.results import of_refusal
from gateway.mcp.upstreams.calls.client import Context, UpstreamClient
from gateway.mcp.upstreams.calls.eras import needs_input
from gateway.mcp.upstreams.calls.relay import UpstreamRelay
from gateway.mcp.upstreams.calls.tool_policy import ToolCall, ToolGate
from gateway.mcp.upstreams.catalog import accounts, listing
from gateway.mcp.upstreams.catalog.listing import rule_of
from gateway.mcp.upstreams.catalog.pagination import LARGEST
from gateway.mcp.upstreams.transport.conversation import Message, noted
from gateway.mcp.upstreams.upstream import Upstream
from gateway.model import Principal, Tell
from gateway.stores.upstream_tools import key_of
from gateway.traces import Trace
from gateway.views.shown import Shown

ShownIn = Callable[[Principal, str], Shown | None]
"""Returns the view of an app, by address, that a host page of the gateway shows to a principal, or None."""

Held = Callable[[Principal, Callable[[], None]], AbstractContextManager[None]]
"""Calls the callback if the principal's credential is revoked or expires within the block."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Turn:
    """A call in progress with its client's current request, which is repeated while a person is asked."""

    client: UpstreamClient
    params: Message
    context: Context | None

    def moved(self, context: Context) -> None:
        """Send later notifications to the client's new request, with its new progress token."""
        if self.client.way is not None:
            way = self.client.way
            way.session, way.request_id, way.request = context.session, context.request_id, context.request
        meta = (context.params or {}).get("_meta")
        self.params = {**self.params, **({"_meta": meta} if isinstance(meta, dict) else {})}


class ToolCalls:
    """Executes tool calls.
    `calls` are those whose clients can ask a person, `tool` requests a tool that is unknown. `shown_in` finds the view
    that shows what a tool opens; `held` keeps calls that continue without a connection.
    """

    def __init__(
        self,
        upstream: Upstream,
        relay: UpstreamRelay,
        gate: ToolGate,
        calls: ElicitingCalls[Message],
        shown_in: ShownIn,
        held: Held,
        tool: Callable[[UpstreamClient, str], Awaitable[Message | None]],
    ) -> None:
        self._upstream = upstream
        self._relay = relay
        self._gate = gate
        self._calls = calls
        self._shown_in = shown_in
        self._held = held
        self._tool = tool

    def may_ask(self, name: str) -> bool:
        """Whether a call of the tool may send the client's person to a page."""
        return self._gate.may_ask(self._upstream.spec, name)

    def close(self) -> None:
        """End the calls that wait for a person."""
        self._calls.close()

    async def call(self, client: UpstreamClient, params: Message, context: Context | None = None) -> Message:
        """Return the result of a call; the gateway's refusals are results, too.
        With its `context`, a client that can ask its person is sent to a page if the call needs that.
        """
        name, state = str(params.get("name")), params.get("requestState")
        turn = _Turn(client, params, context)
        ours = isinstance(state, str) and state.startswith(STATE)
        asks = context is not None and self._calls.can_ask(context.session.client_capabilities, client.principal)
        if context is None or not asks or not (ours or self.may_ask(name)):
            return complete(client, await self._call(turn, None))
        echoed = {key: params[key] for key in ("requestState", "inputResponses") if ours and key in params}
        said = types.CallToolRequestParams.model_validate({"name": name, **echoed}, by_name=False)

        async def work(tell: Tell) -> Message:
            try:
                return await self._call(turn, tell)
            except MCPError:
                raise
            except Exception:  # an upstream's errors must not reach the other calls
                log.exception("a call of %s failed", name)
                return refused(Refusal(Reason.INTERNAL, "The gateway failed at this call; its log says why."))

        answer = await self._calls.carry(context, said, client.principal, work, turn.moved)
        if isinstance(answer, types.InputRequiredResult):
            return answer.model_dump(by_alias=True, mode="json", exclude_none=True)
        return complete(client, answer)

    async def _call(self, turn: _Turn, tell: Tell | None) -> Message:
        client, spec, name = turn.client, self._upstream.spec, str(turn.params.get("name"))

        def listed() -> Mapping[str, Any] | None:
            return self._upstream.offer(client.principal).tools.get(name)

        own = name == accounts.CONNECT and spec.personal and listed() is None

        async def admit() -> None:
            if own:
                return
            tool, offer = await self._tool(client, name), self._upstream.offer(client.principal)
            if key_of(name) in offer.left_out:
                detail = f"The tool {name[:128]} of {spec.name} is left out: its list has more than {LARGEST} bytes."
                raise Refusal(Reason.POLICY_DENIED, detail)
            _check_visible(client, tool, name)
            if offer.fingerprints.holds_back(name):
                detail = (
                    f"The tool {name[:128]} of {spec.name} is new, and it had too many before: pin it in its policy."
                )
                raise Refusal(Reason.POLICY_DENIED, detail)

        async def run(trace: Trace | None) -> Message:
            if turn.context is None or client.modern:
                return await sent(trace)
            # 2025-11-25, Transports: the stream of a disconnected client can be resumed. Later a disconnect cancels.
            lasting = ending_of(turn.context.request).outlived()
            with lasting, anyio.CancelScope() as scope, self._held(client.principal, scope.cancel):
                return await sent(trace)
            raise Refusal(Reason.CANCELLED, "What proved the caller of this call has ended.")

        async def sent(trace: Trace | None) -> Message:
            if own:
                await self._upstream.session(client)
                return accounts.connected(spec)
            params = turn.params if trace is None else _traced(turn.params, trace)
            rule = rule_of(spec, name)
            seconds = rule.timeout if rule is not None else None
            if seconds is None:
                return await self._shown(client, listed(), params)
            try:
                async with asyncio.timeout(seconds):
                    return await self._shown(client, listed(), params)
            except TimeoutError as error:
                detail = f"The tool {name} of {spec.name} did not answer within {seconds:g} seconds, as its rule says"
                raise Refusal(Reason.BACKEND_TIMEOUT, f"{detail}{noted(error)}.") from error

        try:
            caller, typed = client.calls(spec.name), not client.is_app
            call = ToolCall(spec, turn.params, caller, listed, admit, run, tell, typed=typed, own=own)
            return await self._gate.call(call)
        except Refusal as refusal:
            return refused(refusal)

    async def _shown(self, client: UpstreamClient, tool: Mapping[str, Any] | None, params: Message) -> Message:
        """Return the result of a call, and pass it to the view that shows what it opens.
        A client that shows apps shows this one itself; for another client it may be in a host page of the gateway.
        """
        uri = listing.app_of(tool) if tool is not None and client.caller is None and not client.is_app else None
        shown = self._shown_in(client.principal, uri) if uri is not None else None
        if shown is None:
            return await self._relay.forward(client, "tools/call", params)
        arguments = params.get("arguments")
        if "requestState" not in params and "inputResponses" not in params:
            await shown.input(arguments if isinstance(arguments, dict) else {})
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
                self._upstream.spawn(shown.cancelled(why))
        if not needs_input(result):
            await shown.result({key: value for key, value in result.items() if key != "resultType"})
        return result


def refused(refusal: Refusal) -> Message:
    """Return the result of a refused call."""
    result: Message = of_refusal(refusal).model_dump(by_alias=True, mode="json", exclude_none=True)
    return result


def complete(client: UpstreamClient, result: Message) -> Message:
    """Return a result in the form of the client's era."""
    return {**result, "resultType": "complete"} if client.modern and "resultType" not in result else result


def _traced(params: Message, trace: Trace) -> Message:
    """Return a call with its trace context, as in MCP (`_meta`, W3C Trace Context)."""
    meta = params.get("_meta")
    kept = {key: value for key, value in meta.items() if key != "tracestate"} if isinstance(meta, dict) else {}
    return {**params, "_meta": {**kept, **dict(trace.headers())}}


def _check_visible(client: UpstreamClient, tool: Message | None, name: str) -> None:
    visible = listing.visibility(tool)
    if not visible:
        raise Refusal(Reason.POLICY_DENIED, f"The tool {name[:128]!r} is for nobody: its upstream names no caller.")
    if client.caller is not None and "app" not in visible:
        raise Refusal(Reason.POLICY_DENIED, f"The tool {name[:128]!r} is not for apps.")
    if client.caller is None and "model" not in visible and not client.is_app:
        raise Refusal(Reason.NOT_AN_APP, f"{name} serves MCP Apps; this client did not say that it shows them.")
