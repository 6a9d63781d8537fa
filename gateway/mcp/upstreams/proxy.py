"""The mount of one upstream: each request of its clients goes to it, under its policy, and comes back in their era."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import CallNext, HandlerResult
from mcp.server.streamable_http import REQUEST_CANCELLED
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types.methods import validate_client_request

from gateway.errors import Reason, Refusal
from gateway.mcp.asgi import ending_of
from gateway.mcp.results import of_refusal
from gateway.mcp.upstreams import feed, listing
from gateway.mcp.upstreams.client import Context, UpstreamClient, client_of
from gateway.mcp.upstreams.conversation import Message, UpstreamLost
from gateway.mcp.upstreams.fast import UpstreamFast
from gateway.mcp.upstreams.feed import Follower
from gateway.mcp.upstreams.fingerprints import MAX_TOOLS, Fingerprints
from gateway.mcp.upstreams.gate import Gate
from gateway.mcp.upstreams.handshake import Terms
from gateway.mcp.upstreams.pages import with_runtime
from gateway.mcp.upstreams.relay import Relay
from gateway.mcp.upstreams.upstream import Joined, Upstream
from gateway.model import Principal
from gateway.traces import arriving

BACKLOG = 256
"""Changes that wait for one client; a client that does not read is told of no more."""

PAGES = 100
"""Pages of a list that are read to find a tool."""

MAX_STREAMS = 1024

STREAMS_EACH = 128
"""Those of one principal."""


@dataclass(eq=False, slots=True)
class _Session:
    """One session of a client of the handshake: what it follows, and what it has yet to be told."""

    joined: Joined
    follower: Follower
    news: asyncio.Queue[tuple[str, Message]] = field(default_factory=lambda: asyncio.Queue(BACKLOG))


class Proxy:
    """Stands before the SDK's own handlers of a mount, as their outermost middleware."""

    follows = True

    def __init__(self, upstream: Upstream, *, gate: Gate, fingerprints: Fingerprints, runtime: str) -> None:
        self.upstream = upstream
        self.relay = Relay(upstream)
        self._gate = gate
        self._fingerprints = fingerprints
        self._runtime = runtime
        self._levels: dict[str, str] = {}
        self._sessions: dict[str, _Session] = {}
        self._streams: dict[asyncio.Event, Principal] = {}
        self._handlers: dict[str, Callable[[UpstreamClient, Message], Awaitable[Message]]] = {
            "tools/list": self.list_tools,
            "tools/call": self.call_tool,
            "resources/list": self._plain("resources/list"),
            "resources/templates/list": self._plain("resources/templates/list"),
            "resources/read": self.read_resource,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "prompts/list": self._plain("prompts/list"),
            "prompts/get": self._plain("prompts/get"),
            "completion/complete": self._plain("completion/complete"),
            "logging/setLevel": self._set_level,
            "subscriptions/listen": self._listen,
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
                await self._tell(context)
                return None
            case _:
                return await self._answer(context, call_next)

    async def _answer(self, context: Context, call_next: CallNext) -> HandlerResult:
        handler = self._handlers.get(context.method)
        if handler is None or context.request_id is None:
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
            arriving(_said(context, params)),
        ):
            return await self._answered(client, params, handler)
        raise MCPError(REQUEST_CANCELLED, "The connection of this call is gone.")

    async def carry(self, client: UpstreamClient, params: Message) -> Message:
        """The answer to a call of a tool, as `client` is told it. Raises `MCPError`."""
        return await self._answered(client, params, self.call_tool)

    def fast(self, hosts: Collection[str], origins: Collection[str], silence: float) -> UpstreamFast:
        """The fast path to it."""
        return UpstreamFast(self, hosts, origins, silence)

    def tool(self, name: str) -> Mapping[str, Any] | None:
        """A tool as it was listed; None for one that never was."""
        return self.upstream.tools.get(name)

    async def _answered(
        self, client: UpstreamClient, params: Message, handler: Callable[[UpstreamClient, Message], Awaitable[Message]]
    ) -> Message:
        try:
            return self._stamped(client, await handler(client, params))
        except Refusal as refusal:
            raise MCPError(types.INTERNAL_ERROR, refusal.detail, {"reason": refusal.reason.value}) from refusal

    def schema(self, name: str) -> Mapping[str, Any] | None:
        """The input schema of a tool, as far as it was listed."""
        tool = self.upstream.tools.get(name)
        return tool["inputSchema"] if tool is not None else {"type": "object"}

    def drain(self) -> None:
        """End the streams that would stay open for ever."""
        for stream in list(self._streams):
            stream.set()

    async def list_tools(self, client: UpstreamClient, params: Message) -> Message:
        """One page of the tools that the client may see."""
        result = await self.relay.forward(client, "tools/list", params)
        tools = self._seen(result)
        return {**result, "tools": listing.shown(self.upstream.spec, tools, to_app=client.is_app)}

    async def call_tool(self, client: UpstreamClient, params: Message) -> Message:
        """The result of a call; what the gateway refuses is a result, too."""
        spec, name = self.upstream.spec, str(params.get("name"))
        caller = client.calls(spec.name)

        async def run() -> Message:
            return await self.relay.forward(client, "tools/call", params)

        try:
            tool = await self._tool(client, name)
            self._check_visible(client, tool, name)
            return await self._gate.call(spec, tool, params, caller, run, lambda: self.upstream.tools.get(name))
        except Refusal as refusal:
            result = of_refusal(refusal).model_dump(by_alias=True, mode="json", exclude_none=True)
            return {**result, "resultType": "complete"} if client.modern else result

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
            found += self._seen(result)
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

    def _seen(self, result: Message) -> list[Message]:
        """The tools of one page, remembered."""
        tools = listing.tools_of(result)[:MAX_TOOLS]
        self._fingerprints.look(tools)
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
            capabilities if isinstance(capabilities, dict) else {},
        )
        try:
            _, session = await self.upstream.session(asked)
        except Refusal as refusal:
            raise MCPError(types.INTERNAL_ERROR, refusal.detail, {"reason": refusal.reason.value}) from refusal
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

    async def _set_level(self, client: UpstreamClient, params: Message) -> Message:
        _, session = await self.upstream.session(client)
        if not session.terms.modern:
            await self.relay.forward(client, "logging/setLevel", params)
        self._levels[client.who] = str(params["level"])
        return {}

    async def _subscribe(self, client: UpstreamClient, params: Message) -> Message:
        known = await self._session(client)
        try:
            await known.joined.feed.subscribe(known.joined.link, known.follower, str(params["uri"]))
        except (UpstreamLost, TimeoutError) as error:
            raise Refusal(Reason.BACKEND_UNAVAILABLE, f"The upstream did not answer: {error}.") from error
        return {}

    async def _unsubscribe(self, client: UpstreamClient, params: Message) -> Message:
        known = await self._session(client)
        await known.joined.feed.unsubscribe(known.joined.link, known.follower, str(params["uri"]))
        return {}

    async def _session(self, client: UpstreamClient) -> _Session:
        known = self._sessions.get(client.who)
        if known is None:
            joined, _ = await self.upstream.session(client)
            news: asyncio.Queue[tuple[str, Message]] = asyncio.Queue(BACKLOG)
            known = self._sessions[client.who] = _Session(joined, Follower(_into(news)), news)
            joined.feed.add(known.follower)
        return known

    async def _follow(self, context: Context) -> None:
        """Tell a session what changes, for as long as it lives; the SDK cancels this when it ends."""
        client = client_of(context, self._levels)
        try:
            known = await self._session(client)
            _, session = await self.upstream.session(client)
            await known.joined.feed.listen(session)
            while True:
                await client.announce(*await known.news.get())
        except Refusal:
            return  # an upstream that is gone tells of no changes
        finally:
            gone = self._sessions.pop(client.who, None)
            self._levels.pop(client.who, None)
            if gone is not None:
                self.upstream.spawn(gone.joined.feed.remove(gone.joined.link, gone.follower))

    async def _tell(self, context: Context) -> None:
        client = client_of(context, self._levels)
        session = self.upstream.link(client).link.now
        if session is not None and not session.terms.modern:
            await session.conversation.notify(context.method, {})

    async def _listen(self, client: UpstreamClient, params: Message) -> Message:
        """The stream of changes of a modern client."""
        wanted = params.get("notifications")
        asked = wanted if isinstance(wanted, dict) else {}
        mine = sum(other == client.principal for other in self._streams.values())
        if len(self._streams) >= MAX_STREAMS or mine >= STREAMS_EACH:
            raise MCPError(types.INTERNAL_ERROR, "Too many clients listen already.")
        joined, session = await self.upstream.session(client)
        news: asyncio.Queue[tuple[str, Message]] = asyncio.Queue(BACKLOG)
        follower = Follower(_into(news))
        honored = {kind: True for kind in feed.KINDS if asked.get(kind) is True}
        methods = {feed.KINDS[kind] for kind in honored} | {feed.UPDATED}
        meta = {SUBSCRIPTION_ID_META_KEY: client.request_id}
        over = asyncio.Event()
        self._streams[over] = client.principal
        joined.feed.add(follower)
        try:
            uris = asked.get("resourceSubscriptions")
            for uri in uris if isinstance(uris, list) else ():
                await joined.feed.subscribe(joined.link, follower, str(uri))
            if not uris:
                await joined.feed.listen(session)
            said: Message = {**honored, **({"resourceSubscriptions": uris} if uris else {})}
            await client.tell(feed.ACKNOWLEDGED, {"notifications": said, "_meta": meta})
            while (told := await _next(news, over)) is not None:
                method, told_params = told
                if method in methods:
                    await client.tell(method, {**told_params, "_meta": meta})
        except (UpstreamLost, TimeoutError) as error:
            raise Refusal(Reason.BACKEND_UNAVAILABLE, f"The upstream did not answer: {error}.") from error
        finally:
            del self._streams[over]
            self.upstream.spawn(joined.feed.remove(joined.link, follower))
        return {"resultType": "complete", "_meta": meta}


def _said(context: Context, params: Message) -> Mapping[str, Any] | None:
    """Where the trace of a request is said: in its `_meta`, else in the header fields."""
    meta = params.get("_meta")
    if isinstance(meta, dict) and "traceparent" in meta:
        return meta
    return context.request.headers if context.request is not None else None


async def _next(news: asyncio.Queue[tuple[str, Message]], over: asyncio.Event) -> tuple[str, Message] | None:
    """What is to be told next; None when the stream ends."""
    coming, ending = asyncio.ensure_future(news.get()), asyncio.ensure_future(over.wait())
    try:
        await asyncio.wait({coming, ending}, return_when=asyncio.FIRST_COMPLETED)
        return coming.result() if coming.done() else None
    finally:
        coming.cancel()
        ending.cancel()


def _into(news: asyncio.Queue[tuple[str, Message]]) -> Callable[[str, Message], None]:
    def tell(method: str, params: Message) -> None:
        if not news.full():
            news.put_nowait((method, params))

    return tell


def _introduction(terms: Terms) -> Message:
    """What the upstream says of itself. Tasks are not carried, so they are not promised."""
    capabilities = {key: value for key, value in terms.capabilities.items() if key != "tasks"}
    made: Message = {"capabilities": capabilities}
    if terms.instructions is not None:
        made["instructions"] = terms.instructions
    return made
