"""The mount of one upstream: each request of its clients goes to it, under its policy, and comes back in their era."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import CallNext, HandlerResult
from mcp.server.streamable_http import REQUEST_CANCELLED
from mcp.shared.exceptions import MCPError
from mcp_types.methods import validate_client_request

from gateway.errors import Reason, Refusal
from gateway.mcp.asgi import ending_of
from gateway.mcp.elicit import STATE, Calls
from gateway.mcp.results import of_refusal
from gateway.mcp.upstreams import listing
from gateway.mcp.upstreams.client import Context, UpstreamClient, able, client_of
from gateway.mcp.upstreams.conversation import Message
from gateway.mcp.upstreams.eras import needs_input
from gateway.mcp.upstreams.fast import UpstreamFast
from gateway.mcp.upstreams.fingerprints import MAX_TOOLS, Fingerprints
from gateway.mcp.upstreams.following import Following
from gateway.mcp.upstreams.gate import Gate, ToolCall
from gateway.mcp.upstreams.handshake import Terms
from gateway.mcp.upstreams.pages import with_runtime
from gateway.mcp.upstreams.relay import Relay
from gateway.mcp.upstreams.upstream import Upstream
from gateway.model import Principal, Tell
from gateway.traces import Trace, arriving
from gateway.views.shown import Shown

PAGES = 100
"""Pages of a list that are read to find a tool."""

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

ShownIn = Callable[[Principal, str], Shown | None]
"""The view of the app at an address that a host page of ours shows to a principal, if there is one."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Turn:
    """A call on its way: what its client said, which comes again while a person is asked."""

    client: UpstreamClient
    params: Message

    def moved(self, context: Context) -> None:
        """The client came again: it is told of progress there, under the token that it gave now."""
        if self.client.way is not None:
            self.client.way.session, self.client.way.request_id = context.session, context.request_id
        meta = (context.params or {}).get("_meta")
        self.params = {**self.params, **({"_meta": meta} if isinstance(meta, dict) else {})}


class Proxy:
    """Stands before the SDK's own handlers of a mount, as their outermost middleware.

    `calls` are those whose clients can ask a person, `shown_in` finds the view that shows what a tool opens.
    """

    follows = True

    def __init__(
        self,
        upstream: Upstream,
        *,
        gate: Gate,
        fingerprints: Fingerprints,
        runtime: str,
        calls: Calls[Message],
        shown_in: ShownIn,
    ) -> None:
        self.upstream = upstream
        self.relay = Relay(upstream)
        self.fingerprints = fingerprints
        self._gate = gate
        self._runtime = runtime
        self._calls = calls
        self._shown_in = shown_in
        self._following = Following(upstream)
        self._levels: dict[str, str] = {}
        self._handlers: dict[str, Callable[[UpstreamClient, Message], Awaitable[Message]]] = {
            "tools/list": self.list_tools,
            "resources/list": self._plain("resources/list"),
            "resources/templates/list": self._plain("resources/templates/list"),
            "resources/read": self.read_resource,
            "resources/subscribe": self._following.subscribe,
            "resources/unsubscribe": self._following.unsubscribe,
            "prompts/list": self._plain("prompts/list"),
            "prompts/get": self._plain("prompts/get"),
            "completion/complete": self._plain("completion/complete"),
            "logging/setLevel": self.set_level,
            "subscriptions/listen": self._following.listen,
        }

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Answer a request, or leave it to the SDK."""
        context = ctx
        match context.method:
            case "initialize" | "server/discover":
                return await self._introduced(context, await call_next(context))
            case "notifications/initialized":
                await call_next(context)
                await self._follow(context)
                return None
            case "notifications/roots/list_changed":
                await self.tell_roots(client_of(context, self._levels))
                return None
            case _:
                return await self._answer(context, call_next)

    async def _answer(self, context: Context, call_next: CallNext) -> HandlerResult:
        handler = self._handlers.get(context.method)
        if (handler is None and context.method != "tools/call") or context.request_id is None:
            return await call_next(context)
        try:
            validate_client_request(context.method, context.protocol_version, context.params)
        except KeyError:
            raise MCPError(types.METHOD_NOT_FOUND, "Method not found", context.method) from None
        client = client_of(context, self._levels)
        params = dict(context.params or {})
        # A session of the handshake would run a call to its end for a client that is gone.
        with (
            anyio.CancelScope() as scope,
            ending_of(context.request).calling(scope.cancel),
            arriving(said_trace(context)),
        ):
            answering = self.call_tool(client, params, context) if handler is None else handler(client, params)
            return await self._answered(client, answering)
        raise MCPError(REQUEST_CANCELLED, "The connection of this call is gone.")

    async def carry(self, client: UpstreamClient, params: Message) -> Message:
        """The answer to a call of a tool, as `client` is told it. Raises `MCPError`."""
        return await self._answered(client, self.call_tool(client, params))

    def fast(self, hosts: Collection[str], origins: Collection[str], silence: float) -> UpstreamFast:
        """The fast path to it."""
        return UpstreamFast(self, hosts, origins, silence)

    def tool(self, name: str) -> Mapping[str, Any] | None:
        """A tool as it was listed; None for one that never was."""
        return self.upstream.tools.get(name)

    def may_ask(self, name: str) -> bool:
        """Whether a call of the tool may send the person behind its client somewhere."""
        return self._gate.may_ask(self.upstream.spec, name)

    async def _answered(self, client: UpstreamClient, answering: Awaitable[Message]) -> Message:
        try:
            return self._stamped(client, await answering)
        except Refusal as refusal:
            raise as_error(refusal) from refusal

    def schema(self, name: str) -> Mapping[str, Any] | None:
        """The input schema of a tool, as far as it was listed."""
        tool = self.upstream.tools.get(name)
        return tool["inputSchema"] if tool is not None else {"type": "object"}

    def drain(self) -> None:
        """End the streams that would stay open for ever."""
        self._following.streams.drain()

    async def close(self) -> None:
        """Give up what waits: for a client that calls again, or for a person."""
        self._calls.close()
        await self.relay.close()

    async def list_tools(self, client: UpstreamClient, params: Message) -> Message:
        """One page of the tools that the client may see."""
        result = await self.relay.forward(client, "tools/list", params)
        tools = await self._seen(result)
        return {**result, "tools": listing.shown(self.upstream.spec, tools, to_app=client.is_app)}

    async def call_tool(self, client: UpstreamClient, params: Message, context: Context | None = None) -> Message:
        """The result of a call; what the gateway refuses is a result, too.

        With its `context`, a client that can ask its person is sent where the call needs one.
        """
        name, state = str(params.get("name")), params.get("requestState")
        turn = _Turn(client, params)
        ours = isinstance(state, str) and state.startswith(STATE)
        asks = context is not None and self._calls.can_ask(context.session.client_capabilities, client.principal)
        if context is None or not asks or not (ours or self.may_ask(name)):
            return _whole(client, await self._call(turn, None))
        echoed = {key: params[key] for key in ("requestState", "inputResponses") if ours and key in params}
        said = types.CallToolRequestParams.model_validate({"name": name, **echoed}, by_name=False)

        async def work(tell: Tell) -> Message:
            try:
                return await self._call(turn, tell)
            except MCPError:
                raise
            except Exception:  # whatever an upstream provokes must not reach the other calls
                log.exception("a call of %s failed", name)
                return refused(Refusal(Reason.INTERNAL, "The gateway failed at this call; its log says why."))

        answer = await self._calls.carry(context, said, client.principal, work, turn.moved)
        if isinstance(answer, types.InputRequiredResult):
            return answer.model_dump(by_alias=True, mode="json", exclude_none=True)
        return _whole(client, answer)

    async def _call(self, turn: _Turn, tell: Tell | None) -> Message:
        client, spec, name = turn.client, self.upstream.spec, str(turn.params.get("name"))

        def listed() -> Mapping[str, Any] | None:
            return self.upstream.tools.get(name)

        async def run(trace: Trace | None) -> Message:
            params = turn.params if trace is None else _traced(turn.params, trace)
            return await self._shown(client, listed(), params)

        try:
            tool = await self._tool(client, name)
            self._check_visible(client, tool, name)
            caller = client.calls(spec.name)
            call = ToolCall(spec, turn.params, caller, listed, run, tell, typed=not client.is_app)
            return await self._gate.call(call)
        except Refusal as refusal:
            return refused(refusal)

    async def _shown(self, client: UpstreamClient, tool: Mapping[str, Any] | None, params: Message) -> Message:
        """The result of a call, which the view hears of that shows what it opens.

        A client that shows apps shows this one itself; that of another may stand in a host page of ours.
        """
        uri = listing.app_of(tool) if tool is not None and client.caller is None and not client.is_app else None
        shown = self._shown_in(client.principal, uri) if uri is not None else None
        if shown is None:
            return await self.relay.forward(client, "tools/call", params)
        arguments = params.get("arguments")
        if "requestState" not in params and "inputResponses" not in params:
            await shown.input(arguments if isinstance(arguments, dict) else {})
        result: Message | None = None
        why = "the call was cancelled"
        try:
            result = await self.relay.forward(client, "tools/call", params)
        except Refusal as refusal:
            why = refusal.detail
            raise
        except MCPError as error:
            why = error.error.message[:500]
            raise
        finally:
            if result is None:
                self.upstream.spawn(shown.cancelled(why))
        if not needs_input(result):
            await shown.result({key: value for key, value in result.items() if key != "resultType"})
        return result

    async def read_resource(self, client: UpstreamClient, params: Message) -> Message:
        """A resource, with the view runtime in it where it is an app and the configuration says so."""
        result = await self.relay.forward(client, "resources/read", params)
        return with_runtime(result, self._runtime) if self.upstream.spec.runtime else result

    async def all_tools(self, client: UpstreamClient) -> list[Message]:
        """Every tool that the upstream lists, whoever may see it. Raises `MCPError` and `Refusal`."""
        found: list[Message] = []
        cursor: str | None = None
        cursors: set[str] = set()
        for _ in range(PAGES):
            result = await self.relay.forward(client, "tools/list", {"cursor": cursor} if cursor is not None else {})
            found += await self._seen(result)
            cursor = result.get("nextCursor")
            if not isinstance(cursor, str) or cursor in cursors or len(found) > MAX_TOOLS:
                break
            cursors.add(cursor)
        return found[:MAX_TOOLS]

    async def pages(self, client: UpstreamClient, method: str, key: str) -> list[Message]:
        """Every page of a list, as far as they lead on. Raises `MCPError` and `Refusal`."""
        found: list[Message] = []
        cursors: set[str] = set()
        params: Message = {}
        for _ in range(PAGES):
            result = await self.relay.forward(client, method, params)
            things = result.get(key)
            found += [thing for thing in things if isinstance(thing, dict)] if isinstance(things, list) else []
            cursor = result.get("nextCursor")
            if not isinstance(cursor, str) or cursor in cursors or len(found) > MAX_TOOLS:
                break
            cursors.add(cursor)
            params = {"cursor": cursor}
        return found[:MAX_TOOLS]

    async def _seen(self, result: Message) -> list[Message]:
        """The tools of one page, remembered."""
        tools = listing.tools_of(result)[:MAX_TOOLS]
        await self.fingerprints.look(tools)
        for tool in tools:
            if tool["name"] in self.upstream.tools or len(self.upstream.tools) < MAX_TOOLS:
                self.upstream.tools[tool["name"]] = tool
        return tools

    async def _tool(self, client: UpstreamClient, name: str) -> Message | None:
        """The tool as its upstream lists it; asked for where it was never seen."""
        if name not in self.upstream.tools and not self.upstream.listed:
            self.upstream.listed = True
            try:
                await self.all_tools(client)
            except MCPError:
                return None  # an upstream may have tools, and list none
        return self.upstream.tools.get(name)

    def _check_visible(self, client: UpstreamClient, tool: Message | None, name: str) -> None:
        visible = listing.visibility(tool)
        if client.caller is not None and "app" not in visible:
            raise Refusal(Reason.POLICY_DENIED, f"The tool {name[:128]!r} is not for apps.")
        if client.caller is None and "model" not in visible and not client.is_app:
            raise Refusal(Reason.NOT_AN_APP, f"{name} serves MCP Apps; this client did not say that it shows them.")

    def _plain(self, method: str) -> Callable[[UpstreamClient, Message], Awaitable[Message]]:
        async def forward(client: UpstreamClient, params: Message) -> Message:
            return await self.relay.forward(client, method, params)

        return forward

    async def _introduced(self, context: Context, result: HandlerResult) -> HandlerResult:
        """What the client is told at the beginning: the upstream's own words, and our versions."""
        if not isinstance(result, dict):
            return result
        params = context.params or {}
        meta = params.get("_meta")
        modern = context.method == "server/discover"
        said = meta.get(types.CLIENT_CAPABILITIES_META_KEY) if isinstance(meta, dict) else None
        capabilities = said if modern else params.get("capabilities")
        client = client_of(context, self._levels)
        asked = UpstreamClient(
            client.principal,
            client.who,
            context.protocol_version,
            able(capabilities) if isinstance(capabilities, dict) else {},
        )
        try:
            _, session = await self.upstream.session(asked)
        except Refusal as refusal:
            raise as_error(refusal) from refusal
        made = {**result, **_introduction(session.terms)}
        if not modern and session.terms.info is not None:
            made["serverInfo"] = session.terms.info
        if "instructions" in result and session.terms.instructions is None:
            del made["instructions"]
        if modern and session.terms.info is not None:
            made["_meta"] = {**result.get("_meta", {}), types.SERVER_INFO_META_KEY: session.terms.info}
        return made

    def _stamped(self, client: UpstreamClient, result: Message) -> Message:
        """A modern answer says which server made it."""
        if not client.modern:
            return result
        meta = result.get("_meta")
        link = self.upstream.link(client).link.now
        info = link.terms.info if link is not None else None
        if info is None or (isinstance(meta, dict) and types.SERVER_INFO_META_KEY in meta):
            return result
        return {**result, "_meta": {**(meta if isinstance(meta, dict) else {}), types.SERVER_INFO_META_KEY: info}}

    async def set_level(self, client: UpstreamClient, params: Message) -> Message:
        """How much a session wants to hear; an upstream is asked for as much as the one that wants most."""
        levels = {**self._levels, client.who: str(params["level"])}
        known = [level for level in levels.values() if level in LEVELS]
        _, session = await self.upstream.session(client)
        if not session.terms.modern:
            wanted = min(known, key=LEVELS.index) if params["level"] in LEVELS else params["level"]
            await self.relay.forward(client, "logging/setLevel", {**params, "level": wanted})
        self._levels[client.who] = str(params["level"])
        return {}

    async def keep_level(self, client: UpstreamClient) -> None:
        """A session of `/mcp` calls: its upstream says as much as it wants to hear."""
        if not client.modern and client.level is not None and self._levels.get(client.who) != client.level:
            await self.set_level(client, {"level": client.level})

    def forget_level(self, client: UpstreamClient) -> None:
        """The session ended."""
        self._levels.pop(client.who, None)

    async def _follow(self, context: Context) -> None:
        """Tell a session what changes, for as long as it lives; the SDK cancels this when it ends."""
        client = client_of(context, self._levels)
        try:
            await self._following.follow(client)
        finally:
            self.forget_level(client)

    async def tell_roots(self, client: UpstreamClient) -> None:
        """The client has other roots than before."""
        joined = self.upstream.found(client)
        session = joined.link.now if joined is not None else None
        if session is not None and not session.terms.modern:
            await session.conversation.notify("notifications/roots/list_changed", {})


def said_trace(context: Context) -> Mapping[str, Any]:
    """Where the trace of a request is said: in its `_meta`, else in the header fields of its request."""
    meta = (context.params or {}).get("_meta")
    said = meta if isinstance(meta, dict) else {}
    return said if "traceparent" in said or context.request is None else context.request.headers


def refused(refusal: Refusal) -> Message:
    """The result of a call that was refused."""
    result: Message = of_refusal(refusal).model_dump(by_alias=True, mode="json", exclude_none=True)
    return result


def as_error(refusal: Refusal) -> MCPError:
    """A refusal of anything but a call of a tool."""
    data = {"reason": refusal.reason.value}
    if refusal.connect_url is not None:
        data["connect_url"] = refusal.connect_url
    return MCPError(types.INTERNAL_ERROR, refusal.detail, data)


def _whole(client: UpstreamClient, result: Message) -> Message:
    """A result as the client's era writes it."""
    return {**result, "resultType": "complete"} if client.modern and "resultType" not in result else result


def _traced(params: Message, trace: Trace) -> Message:
    """A call with its place in a trace, as MCP writes it (`_meta`, W3C Trace Context)."""
    meta = params.get("_meta")
    kept = {key: value for key, value in meta.items() if key != "tracestate"} if isinstance(meta, dict) else {}
    return {**params, "_meta": {**kept, **dict(trace.headers())}}


def _introduction(terms: Terms) -> Message:
    """What the upstream says of itself."""
    made: Message = {"capabilities": able(terms.capabilities)}
    if terms.instructions is not None:
        made["instructions"] = terms.instructions
    return made
