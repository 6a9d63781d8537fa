"""The mount of one upstream: a reverse proxy for MCP requests, under a policy, with answers in the client's era."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Protocol

import anyio
import mcp_types as types
from mcp.server.context import CallNext, HandlerResult
from mcp.server.streamable_http import REQUEST_CANCELLED
from mcp.shared.exceptions import MCPError
from mcp_types.methods import validate_client_request

from gateway.errors import Refusal
from gateway.mcp.asgi import current_principal, ending_of
from gateway.mcp.elicitation import ElicitingCalls
from gateway.mcp.upstreams.calls.client import Context, UpstreamClient, able, client_of, modern_result, needs_input
from gateway.mcp.upstreams.calls.fast_call import UpstreamFast
from gateway.mcp.upstreams.calls.relay import UpstreamRelay
from gateway.mcp.upstreams.calls.upstream_calls import CallServices, ShownIn, UpstreamCaller
from gateway.mcp.upstreams.catalog import listing
from gateway.mcp.upstreams.catalog.listing import (
    account_is_missing,
    instructions_without_account,
    list_without_account,
)
from gateway.mcp.upstreams.catalog.offers import whole
from gateway.mcp.upstreams.catalog.shapes import readable
from gateway.mcp.upstreams.changes.following import Following
from gateway.mcp.upstreams.transport.conversation import Message
from gateway.mcp.upstreams.transport.handshake import HandshakeResult
from gateway.mcp.upstreams.upstream import Upstream
from gateway.traces import continue_trace

_HEAD = re.compile(r"<head(?=[\s>])", re.IGNORECASE)
_HTML = re.compile(r"<html(?=[\s>])", re.IGNORECASE)
_DOCTYPE = re.compile(r"\s*<!doctype", re.IGNORECASE)


def with_runtime(result: Message, runtime: str) -> Message:
    """Return a result of `resources/read` with the runtime in every app."""
    contents = result.get("contents")
    if not isinstance(contents, list):
        return result
    return {**result, "contents": [_content(content, runtime) for content in contents]}


def page_with_runtime(html: str, runtime: str) -> str:
    """Return a page with the script first in its head."""
    script = "<script>" + runtime.replace("</script", "<\\/script") + "</script>"
    for head_tag in (_HEAD.search(html), _HTML.search(html), _DOCTYPE.match(html)):
        if head_tag is not None and (end := html.find(">", head_tag.end()) + 1):
            return html[:end] + script + html[end:]
    return script + html


def _content(content: object, runtime: str) -> object:
    if not isinstance(content, dict):
        return content
    text, kind = content.get("text"), str(content.get("mimeType", "")).replace(" ", "").lower()
    is_app = kind == "text/html;profile=mcp-app" or str(content.get("uri", "")).startswith("mcp-app://")
    return {**content, "text": page_with_runtime(text, runtime)} if is_app and isinstance(text, str) else content


LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


class RequestStates(Protocol):
    """Names this node in the `requestState` of a client that is asked, so that its next request comes back here."""

    def name(self, state: str) -> str:
        """Return a state behind the id of this node."""
        ...

    def plain(self, state: str) -> str:
        """Return a state without the id of any node."""
        ...


class Proxy:
    """The outermost middleware of a mount, before the SDK's own handlers.
    `services` are what the calls of all upstreams share, `eliciting` the calls whose clients can ask a person;
    `shown_in` finds the view that shows what a tool opens. `states` is None for a gateway of one process.
    """

    follows = True

    def __init__(
        self,
        upstream: Upstream,
        *,
        services: CallServices,
        runtime: str,
        eliciting: ElicitingCalls[Message],
        shown_in: ShownIn,
        states: RequestStates | None = None,
    ) -> None:
        self.upstream = upstream
        self.relay = UpstreamRelay(upstream)
        self._states = states
        self._runtime = runtime
        self._tools = UpstreamCaller(upstream, self.relay, services, eliciting, shown_in, self._tool)
        self._following = Following(upstream)
        self._levels: dict[str, str] = {}
        self._handlers: dict[str, Callable[[UpstreamClient, Message], Awaitable[Message]]] = {
            "tools/list": self.list_tools,
            "resources/list": self._list("resources/list"),
            "resources/templates/list": self._list("resources/templates/list"),
            "resources/read": self.read_resource,
            "resources/subscribe": self._following.subscribe,
            "resources/unsubscribe": self._following.unsubscribe,
            "prompts/list": self._list("prompts/list"),
            "prompts/get": self.get_prompt,
            "completion/complete": self._complete,
            "logging/setLevel": self.set_level,
            "subscriptions/listen": self._following.listen,
        }

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Answer a request, or pass it on to the SDK."""
        context = ctx
        match context.method:
            case "initialize" | "server/discover":
                return await self._introduce(context, await call_next(context))
            case "notifications/initialized":
                await call_next(context)
                await self._following.follow(client_of(context, self._levels))
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
        # A session of the handshake protocols would continue for a disconnected client, as only upstream calls may.
        with (
            anyio.CancelScope() as scope,
            ending_of(context.request).calling(scope.cancel),
            continue_trace(said_trace(context)),
        ):
            answering = self.call_tool(client, params, context) if handler is None else handler(client, params)
            return await self._reply(client, answering)
        raise MCPError(REQUEST_CANCELLED, "The connection of this call is gone.")

    async def carry(self, client: UpstreamClient, params: Message) -> Message:
        """Return the answer to a tool call, in the form for `client`. Raises `MCPError`."""
        return await self._reply(client, self.call_tool(client, params))

    def fast(self, hosts: Collection[str], origins: Collection[str], silence: float) -> UpstreamFast:
        """Return the fast path of this mount."""
        return UpstreamFast(self, hosts, origins, silence)

    def tool(self, name: str) -> Mapping[str, Any] | None:
        """Return a tool as listed to all; None for an unknown one."""
        return self.upstream.offer(None).tools.get(name)

    def may_ask(self, name: str) -> bool:
        """Return whether a call of the tool may send the client's person to a page."""
        return self._tools.may_ask(name)

    async def _reply(self, client: UpstreamClient, answering: Awaitable[Message]) -> Message:
        try:
            return self._stamp(client, await answering)
        except Refusal as refusal:
            raise as_error(refusal) from refusal

    def schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the input schema of a tool as listed to the current caller; any object for an unknown tool."""
        tool = self.upstream.offer(current_principal()).tools.get(name)
        return tool["inputSchema"] if tool is not None else {"type": "object"}

    def drain(self) -> None:
        """End the long-lived streams."""
        self._following.streams.drain()

    async def close(self) -> None:
        """End the calls that wait for a client to return, or for a person."""
        self._tools.close()
        await self.relay.close()

    async def list_tools(self, client: UpstreamClient, params: Message) -> Message:
        """Return one page of the tools that the client may see."""
        try:
            result = await self.relay.forward(client, "tools/list", params)
        except Refusal as refusal:
            return self._without_account(client, "tools/list", refusal)
        offer = self.upstream.offer(client.principal)
        tools = await offer.take(result, offer.before(params.get("cursor")))
        offer.page(tools, params.get("cursor"), result.get("nextCursor"))
        tools_shown = listing.visible_tools(self.upstream.spec, tools, client.principal, to_app=client.is_app)
        return await self._readable(client, "tools/list", {**result, "tools": tools_shown})

    async def call_tool(self, client: UpstreamClient, params: Message, context: Context | None = None) -> Message:
        """Return the result of a call; the gateway's refusals are results, too.
        With its `context`, a client that can ask its person is sent to a page if the call needs that.
        """
        return self._name(await self._tools.call(client, self._take_up(params), context))

    async def read_resource(self, client: UpstreamClient, params: Message) -> Message:
        """Return a resource, with the view runtime in an app if configured."""
        result = self._name(await self.relay.forward(client, "resources/read", self._take_up(params)))
        return with_runtime(result, self._runtime) if self.upstream.spec.runtime else result

    async def get_prompt(self, client: UpstreamClient, params: Message) -> Message:
        """Return a prompt."""
        return self._name(await self.relay.forward(client, "prompts/get", self._take_up(params)))

    def _name(self, result: Message) -> Message:
        """Return a result; one that asks its client for input names this node, which has what the answer is for."""
        if self._states is None or not needs_input(result) or not isinstance(state := result.get("requestState"), str):
            return result
        return {**result, "requestState": self._states.name(state)}

    def _take_up(self, params: Message) -> Message:
        """Return a request with its state as this node or another one had it before `_name`."""
        if self._states is None or not isinstance(state := params.get("requestState"), str):
            return params
        return {**params, "requestState": self._states.plain(state)}

    async def all_tools(self, client: UpstreamClient) -> list[Message]:
        """Return every tool that the upstream lists, whatever its visibility. Raises `MCPError` and `Refusal`."""
        offer, before = self.upstream.offer(client.principal), set[str]()

        async def page(params: Message) -> tuple[list[Message], object]:
            result = await self.relay.forward(client, "tools/list", params)
            tools = await offer.take(result, before)
            before.update(tool["name"] for tool in tools)
            return tools, None if offer.left_out else result.get("nextCursor")

        tools, _ = await whole(page, f"the tools of {self.upstream.spec.name}")
        offer.whole = not offer.left_out
        return tools

    async def pages(self, client: UpstreamClient, method: str) -> list[Message]:
        """Return every page of a list. Raises `MCPError` and `Refusal`."""

        async def page(params: Message) -> tuple[list[Message], object]:
            result = await self.relay.forward(client, method, params)
            return await readable(method, result[listing.KEYS[method]], client.version), result.get("nextCursor")

        things, size = await whole(page, f"{method} of {self.upstream.spec.name}")
        self.upstream.offer(client.principal).holds(method, size)
        return things

    async def _tool(self, client: UpstreamClient, name: str) -> Message | None:
        """Return the tool as its upstream lists it; requested once if it is unknown."""
        offer = self.upstream.offer(client.principal)
        if name not in offer.tools and not offer.asked:
            try:
                await self.all_tools(client)
            except MCPError as error:
                if error.error.code != types.METHOD_NOT_FOUND:  # an upstream may have tools without listing them
                    raise
            offer.asked = True
        return offer.tools.get(name)

    def _list(self, method: str) -> Callable[[UpstreamClient, Message], Awaitable[Message]]:
        async def forward(client: UpstreamClient, params: Message) -> Message:
            try:
                result = await self.relay.forward(client, method, params)
            except Refusal as refusal:
                return self._without_account(client, method, refusal)
            return await self._readable(client, method, result)

        return forward

    async def _readable(self, client: UpstreamClient, method: str, result: Message) -> Message:
        """Return one page of a list without the entries that the client cannot parse."""
        key = listing.KEYS[method]
        result_now = {**result, key: await readable(method, result[key], client.version)}
        if not isinstance(result_now.get("nextCursor", ""), str):
            del result_now["nextCursor"]
        return result_now

    def _without_account(self, client: UpstreamClient, method: str, refusal: Refusal) -> Message:
        """Return the list for a principal without an account there. Raises any other `refusal`."""
        if not account_is_missing(refusal):
            raise refusal
        result = list_without_account(self.upstream.spec, method)
        return modern_result(method, result) if client.modern else result

    async def _complete(self, client: UpstreamClient, params: Message) -> Message:
        return await self.relay.forward(client, "completion/complete", params)

    async def _introduce(self, context: Context, result: HandlerResult) -> HandlerResult:
        """Return the introduction for the client: the upstream's own description, and the gateway's versions."""
        if not isinstance(result, dict):
            return result
        params = context.params or {}
        meta = params.get("_meta")
        modern = context.method == "server/discover"
        declared = meta.get(types.CLIENT_CAPABILITIES_META_KEY) if isinstance(meta, dict) else None
        capabilities = declared if modern else params.get("capabilities")
        client = client_of(context, self._levels)
        request_client = UpstreamClient(
            client.principal,
            client.who,
            context.protocol_version,
            able(capabilities) if isinstance(capabilities, dict) else {},
        )
        try:
            _, session = await self.upstream.session(request_client)
        except Refusal as refusal:
            if account_is_missing(refusal):
                return {**result, "instructions": instructions_without_account(self.upstream.spec)}
            if modern:  # clients take an error here for another protocol version; the next request reports it
                return {key: value for key, value in result.items() if key != "instructions"}
            raise as_error(refusal) from refusal
        result_now = {**result, **_introduction(session.terms)}
        if not modern and session.terms.info is not None:
            result_now["serverInfo"] = session.terms.info
        if "instructions" in result and session.terms.instructions is None:
            del result_now["instructions"]
        if modern and session.terms.info is not None:
            result_now["_meta"] = {**result.get("_meta", {}), types.SERVER_INFO_META_KEY: session.terms.info}
        return result_now

    def _stamp(self, client: UpstreamClient, result: Message) -> Message:
        """Return a modern answer with the name of the server that made it."""
        if not client.modern:
            return result
        meta = result.get("_meta")
        joined_link = self.upstream.find_link(client)
        session = joined_link.link.now if joined_link is not None else None
        info = session.terms.info if session is not None else None
        if info is None or (isinstance(meta, dict) and types.SERVER_INFO_META_KEY in meta):
            return result
        return {**result, "_meta": {**(meta if isinstance(meta, dict) else {}), types.SERVER_INFO_META_KEY: info}}

    async def set_level(self, client: UpstreamClient, params: Message) -> Message:
        """Set a session's log level; the upstream receives the most verbose of all."""
        levels = {**self._levels, client.who: str(params["level"])}
        known = [level for level in levels.values() if level in LEVELS]
        joined_link, session = await self.upstream.session(client)
        if not session.terms.modern:
            lowest = min(known, key=LEVELS.index) if params["level"] in LEVELS else params["level"]
            await self.relay.forward(client, "logging/setLevel", {**params, "level": lowest})
            joined_link.feed.level = lowest
        self._levels[client.who] = str(params["level"])
        return {}

    async def keep_level(self, client: UpstreamClient) -> None:
        """Pass the log level of a session of `/mcp` to its upstream before a call."""
        if not client.modern and client.level is not None and self._levels.get(client.who) != client.level:
            await self.set_level(client, {"level": client.level})

    def forget_session(self, session: str) -> None:
        """Forget a session of the handshake protocols that has ended."""
        self._levels.pop(session, None)
        self._following.forget_session(session)

    async def tell_roots(self, client: UpstreamClient) -> None:
        """Notify the upstream that the client's roots changed."""
        joined_link = self.upstream.find_link(client)
        session = joined_link.link.now if joined_link is not None else None
        if session is not None and not session.terms.modern:
            await session.conversation.notify("notifications/roots/list_changed", {})


def said_trace(context: Context) -> Mapping[str, Any]:
    """Return the carrier of a request's trace context: its `_meta`, else the header fields."""
    meta = (context.params or {}).get("_meta")
    meta_members = meta if isinstance(meta, dict) else {}
    return meta_members if "traceparent" in meta_members or context.request is None else context.request.headers


def as_error(refusal: Refusal) -> MCPError:
    """Return the error for a refusal of anything but a tool call."""
    data = {"reason": refusal.reason.value}
    if refusal.connect_url is not None:
        data["connect_url"] = refusal.connect_url
    return MCPError(types.INTERNAL_ERROR, refusal.detail, data)


def _introduction(terms: HandshakeResult) -> Message:
    """Return the upstream's description of itself."""
    result: Message = {"capabilities": able(terms.capabilities)}
    if terms.instructions is not None:
        result["instructions"] = terms.instructions
    return result
