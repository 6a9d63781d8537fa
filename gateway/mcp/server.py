"""One mount of the gateway's MCP server, `/mcp` or `/mcp/<app>`, for both eras of the protocol."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import anyio
import mcp_types as types
from aiohttp import web
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, REQUEST_CANCELLED
from mcp.server.subscriptions import ListenHandler, ServerEvent, ToolsListChanged
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from msgspec.structs import replace

from gateway.arriving import NoRoom, reserve_room, whole
from gateway.bounds import Area, Bound, Shares
from gateway.callers.entitlements import Admits, admit_all
from gateway.errors import OwnerGone, Refusal
from gateway.mcp import results
from gateway.mcp.asgi import Ending, User, current_principal, ending_of, plain_scope, principal_of, serve
from gateway.mcp.catalog import Catalog
from gateway.mcp.elicitation import Asking, ElicitingCalls
from gateway.mcp.fast import SILENCE, Fast, FastPath, Fields, answer_fast
from gateway.mcp.middleware import BODY_LIMIT, MESSAGES, OneInFlight, Readable, RefusalWording
from gateway.mcp.mount_interfaces import Exchange, Forwarder, MountClient, PackedApp, Views
from gateway.mcp.out_of_band import detached_body, lighten_result, splice_result
from gateway.mcp.own_tools import StorageTool
from gateway.mcp.results import NAME, of_refusal
from gateway.mcp.sessions import REST, ResumableSessions
from gateway.mcp.standing_streams import Changes, Notification, StreamHeads, StreamRequest, StreamWriter, channel_of
from gateway.mcp.tools import UI_EXTENSION, shows_apps
from gateway.model import LOCAL, Principal, Tell
from gateway.ports.sessions import McpSessions
from gateway.traces import continue_trace

if TYPE_CHECKING:
    from gateway.mcp.elsewhere import OtherNodes

log = logging.getLogger(__name__)

_AROUND = 1024 * 1024

MAX_LISTENERS = 1024
"""Open `subscriptions/listen` streams of one mount."""

LISTENERS_EACH = 128
"""Open `subscriptions/listen` streams of one principal."""

BOUNDS: Final = (
    Bound(
        Area.MCP,
        "streams of changes (`subscriptions/listen`)",
        f"{LISTENERS_EACH} per principal, {MAX_LISTENERS:,} in all, of a mount",
        "an error",
    ),
)

(_LISTENERS,) = BOUNDS

OWNERS_TRIED = 3
"""Look-ups of the node that runs a session, while others adopt it one after the other."""

SESSION_IDLE = 1800.0
"""Seconds without a request or an open stream after which a session of the handshake protocols ends."""

INSTRUCTIONS = (
    "open_<app> shows an app to the person. While it is open, the tools that its page offers are listed here as "
    "<app>_…; list_view_tools and call_view_tool reach them too, for clients that do not refresh their list of tools."
)

Context = ServerRequestContext[Any, Any]
Result = types.CallToolResult | types.InputRequiredResult


def message_limit(largest: int) -> int:
    """Return the largest request in bytes for an `http_request` body of `largest` bytes, in base64 or as escaped text.
    The margin lets the policy itself answer 413 to a body over the limit of its route.
    """
    return max(BODY_LIMIT, 2 * largest + _AROUND)


class MountMiddleware(Protocol):
    """Middleware that answers before a mount's own tools and resources: the upstreams."""

    def fast(self, hosts: Collection[str], origins: Collection[str], silence: float) -> Fast[Any] | None:
        """Return a fast path that replaces the mount's; None keeps the mount's."""
        ...

    @property
    def follows(self) -> bool:
        """True if it notifies sessions of changes itself."""
        ...

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Return its own answer to a request, or that of `call_next`."""
        ...

    def schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the input schema of a tool; None if the tool is unknown."""
        ...

    def drain(self) -> None:
        """End the long-lived streams."""
        ...

    def forget_session(self, session: str) -> None:
        """Forget a session of the handshake protocols that has ended."""
        ...


class McpMount:
    """One mount, an async context manager within which requests are served; `app` None is the mount of all apps.
    `hosts` and `origins` are the accepted `Host` and `Origin` values, ports included. `principal` returns the sender of
    a request as the guard identified it; the default is that of a loopback gateway. `asking` defines which clients may
    send their person to the console; None allows none. `room` limits the bytes of large messages together with the
    bodies of other doors. `before` answers ahead of the mount's own tools and resources. `body_limit` returns the
    current limit of a request in bytes. Apps do not exist for callers that they do not admit, by `admits`. Calls for
    live objects of other `nodes` run there.
    """

    def __init__(
        self,
        app: str | None,
        *,
        apps: Mapping[str, PackedApp],
        views: Views,
        forwarder: Forwarder,
        exchange: Exchange,
        storage: StorageTool,
        sessions: McpSessions,
        version: str,
        hosts: Sequence[str],
        origins: Sequence[str],
        principal: Callable[[web.Request], Principal] = lambda _: LOCAL,
        body_limit: Callable[[], int] = lambda: BODY_LIMIT,
        asking: Asking | None = None,
        before: MountMiddleware | None = None,
        fast_path: bool = True,
        silence: float = SILENCE,
        session_idle: float = SESSION_IDLE,
        session_rest: float = REST,
        room: Shares | None = None,
        admits: Admits = admit_all,
        nodes: OtherNodes | None = None,
    ) -> None:
        self.catalog = Catalog(
            app,
            apps=apps,
            views=views,
            forwarder=forwarder,
            exchange=exchange,
            storage=storage,
            largest=body_limit,
            admits=admits,
            nodes=nodes,
        )
        self._app = app
        self._nodes = nodes
        self._views = views
        self._room = room or Shares(BODY_LIMIT * 16, BODY_LIMIT * 64)
        self._principal = principal
        self._changes = Changes(lambda principal: views.tools(principal, app))
        self._subscriptions: dict[str, Callable[[], None]] = {}
        self._listeners: dict[ListenHandler, Principal] = {}
        self._streams: set[Ending] = set()
        self._leave = asyncio.Event()
        self._stack = AsyncExitStack()
        self._asking = asking or Asking(visits=lambda: False)
        self._tasks: asyncio.TaskGroup | None = None
        self._calls: ElicitingCalls[types.CallToolResult] | None = None
        server = _AnnouncingServer(
            NAME,
            version=version,
            instructions=INSTRUCTIONS,
            get_tool_input_schema=self._input_schema,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=_list_resource_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=_list_prompts,
            on_get_prompt=_get_prompt,
            on_completion=_complete,
            on_subscriptions_listen=self._listen,
        )
        security = RequestStateSecurity.ephemeral(audience=f"{NAME}/{app or ''}")
        if nodes is not None:
            security.codec = nodes.state_codec(security.codec)
        server.middleware.append(RequestStateBoundary(security, default_audience=NAME))
        server.extensions = {UI_EXTENSION: {}}
        self._before = before
        if before is not None:
            server.middleware.insert(0, before)
        server.middleware.insert(0, splice_result)
        if before is None or not before.follows:
            server.add_notification_handler("notifications/initialized", types.NotificationParams, self._follow)
        self._manager = ResumableSessions(
            server,
            security_settings=TransportSecuritySettings(allowed_hosts=list(hosts), allowed_origins=list(origins)),
            max_request_body_size=body_limit(),
            max_sessions=None,  # they are bounded over all processes
            sessions=sessions,
            mount=app or "",
            idle=session_idle,
            rest=session_rest,
            ended=self._end_session,
            changing=before is not None,
        )
        server.middleware.insert(0, self._manager.note)
        # An upstream's own mount may have its own tool named `http_request`.
        apart = app is None or before is None
        self._manager.asgi_app.app = RefusalWording(Readable(OneInFlight(self._manager.asgi_app.app), apart=apart))
        self._body_limit = body_limit
        self._stream_heads = StreamHeads(hosts, origins)
        self._asgi = AuthContextMiddleware(self._manager.handle_request)
        own = before.fast(hosts, origins, silence) if before is not None else None
        self.fast: Fast[Any] | None = None
        if fast_path:
            self.fast = own or FastPath(self.catalog, hosts, origins, server.server_info_stamp, silence)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            self._tasks = tasks
            start = asyncio.Event()
            tasks.create_task(self._run_manager(start))
            stack.callback(self._leave.set)
            self._calls = ElicitingCalls(tasks, self._asking, of_refusal, self._room)
            stack.callback(self._calls.close)
            await start.wait()
            stack.callback(self._views.watch(self._changes.note_change))
            stack.callback(self.drain)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """The aiohttp handler."""
        principal = self._principal(request)
        if (learning := self._views.learn(principal)) is not None:
            await learning  # the tools of pages at other processes, which a client without a session cannot wait for
        limit = self._body_limit()
        if (request.content_length or 0) > limit:
            MESSAGES.report(principal.id)
            return _unread_error(413, types.INVALID_REQUEST, f"A message has {limit} bytes at most.")
        if request.method != "POST":
            return await self._serve(request, principal, None)
        with reserve_room(self._room, principal.id) as reserve:
            try:
                body = await whole(request, limit, on_taken=reserve)
            except web.HTTPRequestEntityTooLarge:
                MESSAGES.report(principal.id)
                return _unread_error(413, types.INVALID_REQUEST, f"A message has {limit} bytes at most.")
            except NoRoom:
                return _unread_error(503, types.INTERNAL_ERROR, "Too many large messages are under way. Try again.")
            return await self._serve(request, principal, body)

    async def _serve(self, request: web.Request, principal: Principal, body: bytes | None) -> web.StreamResponse:
        id = request.headers.get(MCP_SESSION_ID_HEADER, "")
        if self._nodes is not None and id:
            for _ in range(OWNERS_TRIED):
                if self._manager.has(id):
                    break
                if (forwarded := await self._forward(self._nodes, request, principal, body, id)) is not None:
                    return forwarded
                if await self._adopt(request, principal, id):
                    break
        elif self._nodes is not None and (
            (forwarded := await self._forward(self._nodes, request, principal, body, id)) is not None
        ):
            return forwarded
        return await self._serve_here(request, principal, body)

    async def _adopt(self, request: web.Request, principal: Principal, id: str) -> bool:
        """Adopt the session of a request; False if another node, which has adopted it meanwhile, may run it."""
        user = User(principal)
        try:
            await self._manager.adopt(id, user, plain_scope(request.rel_url.raw_path, request.headers, user))
        except OSError:
            return True  # the SDK's path says so to the client
        return self._manager.has(id)

    async def serve_forwarded(
        self, request: web.Request, principal: Principal, body: bytes
    ) -> web.StreamResponse | None:
        """Answer a request of another node for a session, or a call, of this one; None if it is not here."""
        session = request.headers.get(MCP_SESSION_ID_HEADER, "")
        repeats = not session and self._nodes is not None and self._nodes.asked_here(body)
        if not repeats and not self._manager.has(session):
            return None
        return await self._serve_here(request, principal, body if request.method == "POST" else None)

    async def _forward(
        self, nodes: OtherNodes, request: web.Request, principal: Principal, body: bytes | None, id: str
    ) -> web.StreamResponse | None:
        """Forward a request for a session that another node runs, or the repetition of a call that it has asked about.

        Return its answer; None for any other request.
        """
        from gateway.mcp.elsewhere import return_answer  # noqa: PLC0415  here, so that only nodes load it

        ending = Ending()
        try:
            if id:
                row = await nodes.session_owner(id, principal, self._app or "")
            else:
                row = await nodes.asking(body) if body is not None else None
            if row is None:
                return None
            if request.method == "GET":
                self._streams.add(ending)
            async with nodes.send_session(row, request, principal, self._app or "", body or b"") as answer:
                return await return_answer(request, answer, ending) if answer is not None else None
        except LookupError:
            return await self._serve_here(request, principal, body)  # which says that it is unknown
        except OwnerGone:
            nodes.forget_session(id, principal, self._app or "")
            return None
        except Refusal as refusal:
            return _unread_error(refusal.status, types.INTERNAL_ERROR, f"{refusal.reason}: {refusal.detail}")
        finally:
            self._streams.discard(ending)

    async def _serve_here(self, request: web.Request, principal: Principal, body: bytes | None) -> web.StreamResponse:
        if self.fast is not None and body is not None:
            answer = await answer_fast(self.fast, request, principal, body)
            if answer is not None:
                return answer
        self._manager.asgi_app.max_body_size = self._body_limit()
        ending = Ending(len(body or b""))
        standing = request.method == "GET"
        if standing:
            self._streams.add(ending)
        else:
            self._views.precedence.note_arrival(principal.id)
        try:
            return await serve(self._asgi, request, User(principal), ending, body)
        finally:
            self._views.precedence.note_sent(principal.id)
            self._streams.discard(ending)

    def stream_request(self, fields: Fields) -> StreamRequest | None:
        """Return the request for a standing stream with these fields; None leaves it to the SDK."""
        return self._stream_heads.read(fields)

    async def adopt(
        self, stream_request: StreamRequest, principal: Principal, path: str, headers: Mapping[str, str]
    ) -> None:
        """Take over the session of a request for its stream, if an earlier process of the gateway has left it."""
        user = User(principal)
        try:
            await self._manager.adopt(stream_request.id, user, plain_scope(path, headers, user))
        except OSError as error:
            log.debug("a session cannot be looked up: %s", error)  # the SDK's path says so to the client

    def can_stand(self, stream_request: StreamRequest, principal: Principal) -> bool:
        """Return whether `stand` can serve this stream to this caller."""
        return self._manager.can_stand(stream_request, User(principal))

    async def stand(
        self, stream_request: StreamRequest, writer: StreamWriter, encode: Callable[[bytes], bytes]
    ) -> None:
        """Serve the standing stream of a session, until the client or the session is gone."""
        await self._manager.stand(stream_request, writer, encode)

    def renew(self) -> None:
        """Offer the apps of the new configuration, and notify clients of the change."""
        self.catalog.renew()
        self._changes.changed_for_all()

    def on_tools(self, principal: Principal, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after each change of the principal's tools on this mount; the result unsubscribes."""
        return self._changes.listen(principal, listener)

    def tools_changed(self, principal: Principal | None = None) -> None:
        """Notify the clients of `principal`, or all, that what they may call changed."""
        if principal is None:
            self._changes.changed_for_all()
        else:
            self._changes.changed_for(principal)

    def drain(self) -> None:
        """End the long-lived streams; calls in flight continue."""
        if self._before is not None:
            self._before.drain()
        for listener in list(self._listeners):
            listener.close()
        for ending in list(self._streams):
            ending.end()
        self._manager.end_streams()

    def lapse(self) -> None:
        """Stop running the sessions of clients, which another process may run by now."""
        self._manager.leave_all()

    async def _run_manager(self, start: asyncio.Event) -> None:
        """Enter and leave the SDK's task group in the same task, as anyio requires."""
        async with self._manager.run():
            start.set()
            await self._leave.wait()
            self._manager.leaving = True
        self._manager.leave()

    async def _list_tools(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        _only_page(params)
        return types.ListToolsResult(tools=self.catalog.list_tools(_client(context)))

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> Result:
        # A legacy session would run a call to its end for a disconnected client; no answer could reach it.
        with (
            anyio.CancelScope() as scope,
            ending_of(context.request).calling(scope.cancel),
            continue_trace(_trace_carrier(context, params)),
        ):
            return await lighten_result(await self._run_call(context, params, _client(context)), context.request)
        raise MCPError(REQUEST_CANCELLED, "The connection of this call is gone.")

    async def _run_call(self, context: Context, params: types.CallToolRequestParams, client: MountClient) -> Result:
        arguments = params.arguments or {}
        asks = self._calls is not None and self._calls.can_ask(context.session.client_capabilities, client.principal)
        # A view uses the same client connection, but its answers and states must not count as the client's.
        if self._calls is None or not asks or "_view" in arguments:
            return await self.catalog.call_tool(params.name, arguments, client)

        async def work(tell: Tell) -> types.CallToolResult:
            return await self.catalog.call_tool(params.name, arguments, replace(client, tell=tell))

        return await self._calls.carry(context, params, client.principal, work)

    async def _list_resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        _only_page(params)
        return types.ListResourcesResult(resources=self.catalog.list_resources(principal_of(context.request)))

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        return await self.catalog.read_resource(str(params.uri), principal_of(context.request))

    def _input_schema(self, name: str) -> Mapping[str, Any] | None:
        if self._before is not None and (schema := self._before.schema(name)) is not None:
            return schema
        principal = current_principal()
        return self.catalog.input_schema(name, principal) if principal is not None else None

    async def _listen(
        self, context: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Serve the stream of changes of one principal's tools (protocol 2026-07-28)."""
        principal = principal_of(context.request)
        mine = sum(other == principal for other in self._listeners.values())
        if len(self._listeners) >= MAX_LISTENERS or mine >= LISTENERS_EACH:
            _LISTENERS.report(principal.id)
            raise MCPError(types.INTERNAL_ERROR, "Too many clients listen already.")
        listener = ListenHandler(_Bus(self._changes, principal))
        self._listeners[listener] = principal
        try:
            return await listener(context, params)
        finally:
            del self._listeners[listener]

    async def _follow(self, context: Context, _: types.NotificationParams | None) -> None:
        """Notify a session of the handshake protocols of changes for as long as it lives.

        This holds neither a task nor the request: thousands of sessions may be idle.
        """
        principal, channel = principal_of(context.request), channel_of(context.request)
        id = context.session._connection.session_id
        if channel is None or id is None or id in self._subscriptions:
            return
        waiting = list[Notification]()
        announce = channel.announcer(lambda: waiting.pop() if waiting else None)

        def on_change() -> None:
            waiting[:] = [("notifications/tools/list_changed", None)]
            announce()

        self._subscriptions[id] = self._changes.listen(principal, on_change)

    def _end_session(self, id: str) -> None:
        """Forget a session of the handshake protocols that has ended."""
        if (stop := self._subscriptions.pop(id, None)) is not None:
            stop()
        if self._before is not None:
            self._before.forget_session(id)


class _AnnouncingServer(Server[Any]):
    """The SDK's server, which announces `tools.listChanged` to sessions of the handshake protocols."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        return super().create_initialization_options(
            notification_options or NotificationOptions(tools_changed=True), experimental_capabilities, extensions
        )


class _Bus:
    """The changes of one principal as the SDK's subscription bus."""

    def __init__(self, changes: Changes, principal: Principal) -> None:
        self._changes = changes
        self._principal = principal

    async def publish(self, event: ServerEvent) -> None:
        if isinstance(event, ToolsListChanged):
            self._changes.note_change(self._principal)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        return self._changes.listen(self._principal, lambda: listener(ToolsListChanged()))


def _unread_error(status: int, code: int, message: str) -> web.Response:
    """Return the error for a message whose body is not read to its end, and close the connection."""
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    answer = web.json_response(error, status=status, headers={"retry-after": "1"} if status == 503 else None)
    answer.force_close()
    return answer


def _only_page(params: types.PaginatedRequestParams | None) -> None:
    results.no_further_page(params.cursor if params is not None else None)


async def _list_resource_templates(
    _: Context, params: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    _only_page(params)
    return results.templates()


async def _list_prompts(_: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
    _only_page(params)
    return results.prompts()


async def _get_prompt(_: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    raise results.no_prompt(params.name)


async def _complete(_: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
    raise results.nothing_to_complete(params.ref.model_dump())


def _trace_carrier(context: Context, params: types.CallToolRequestParams) -> Mapping[str, Any]:
    """Return the carrier of a call's trace context: its `_meta`, else the header fields of its request."""
    meta: dict[str, Any] = dict(params.meta or {})
    return meta if "traceparent" in meta or context.request is None else context.request.headers


def _client(context: Context) -> MountClient:
    return MountClient(
        principal_of(context.request),
        is_app=shows_apps(context.session.client_capabilities),
        upload=detached_body(context.request),
    )
