"""The sessions of MCP clients with a handshake at one mount: opened, resumed, and adopted after a restart."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast
from weakref import WeakValueDictionary

import anyio
from anyio.abc import TaskGroup, TaskStatus
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, AuthorizationContext, authorization_context
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.runner import serve_connection
from mcp.server.streamable_http import (
    GET_STREAM_KEY,
    LAST_EVENT_ID_HEADER,
    MCP_SESSION_ID_HEADER,
    EventStore,
    StreamableHTTPServerTransport,
)
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST, ErrorData, InitializeRequestParams, JSONRPCError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION
from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from gateway.bounds import Area, Bound, size
from gateway.jsontext.writing import plain_json
from gateway.mcp.asgi import ENDING, LEFT_OUT, Ending, current_principal
from gateway.mcp.middleware import replay, request_in
from gateway.mcp.resume import STANDING, Room, SessionEvents, lost_call, resume_stream
from gateway.model import Json
from gateway.ports.sessions import McpClientState, McpSessions, TooManySessions

PER_PRINCIPAL = 1000
"""Default limit of one principal's sessions on a mount, so that it cannot take the capacity of all others."""

SUBSCRIPTIONS: Final = 256
"""Subscriptions of one session that its next process restores."""

LONGEST_URI: Final = 2048
"""Characters of the longest URI among these."""

DECLARED: Final = 64 * 1024
"""Bytes of the longest `initialize`: what it declares is stored as long as its session."""

RETRY: Final = 3000
"""Milliseconds after which clients reconnect a broken stream. They try twice at most, and a restart takes a moment."""

BOUNDS: Final = (
    Bound(
        Area.MCP,
        "sessions of the handshake protocols",
        f"`mcp.sessions_each` ({PER_PRINCIPAL:,}) per principal, `mcp.sessions` in all, of a mount; `mcp.session_idle`",
        "503",
    ),
    Bound(Area.MCP, "what a client declares in `initialize`", size(DECLARED), "413, or an error in an open session"),
)

_SESSIONS, _DECLARED = BOUNDS

log = logging.getLogger(__name__)


class ResumableSessions(StreamableHTTPSessionManager):
    """The SDK's session manager, with a separate event store per session. `sessions` knows those of all mounts.

    `ended` is called with the id of each session that has ended; `changing`: prompts and resources may change, too.
    While `leaving` is set, sessions that stop here are not ended: the next process adopts them.
    """

    def __init__(
        self,
        *arguments: Any,
        sessions: McpSessions,
        mount: str,
        ended: Callable[[str], None] = lambda _: None,
        changing: bool = False,
        **options: Any,
    ) -> None:
        self._room = Room()
        self._ended = ended
        self._sessions = sessions
        self._mount = mount
        self._opens = ""
        self._made = SessionEvents(self._room)
        self._adopting: dict[str, asyncio.Lock] = {}
        self._changing = changing
        self.leaving = False
        self._events = WeakValueDictionary[str, SessionEvents]()
        super().__init__(*arguments, **options)
        self.retry_interval = RETRY

    @property
    def event_store(self) -> EventStore:
        """A new event store: the SDK reads this once per session."""
        self._made = SessionEvents(self._room, self._opens)
        return self._made

    @event_store.setter
    def event_store(self, _: EventStore | None) -> None:
        """Ignore the SDK's assignment, which is always None."""

    async def _handle_stateful_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        session = Headers(scope=scope).get(MCP_SESSION_ID_HEADER, "")
        try:
            if session and session not in self._server_instances:
                await self._adopt(session, scope)
            with self._sessions.use(session):
                await self._serve_session(scope, receive, send)
        except _Full as full:
            _SESSIONS.report(full.by)
            log.warning("no new session at %s: %s", scope["path"], full)
            await _refuse(503, INTERNAL_ERROR, f"Too many open sessions: {full}. {_REMEDY}")(scope, receive, send)
        except OSError as error:
            log.warning("a session cannot be looked up: %s", error)
            await _refuse(503, INTERNAL_ERROR, "Sessions cannot be looked up now. Try again.")(scope, receive, send)

    async def _serve_session(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._can_go_on(scope):
            await super()._handle_stateful_request(scope, receive, send)
            return
        call = lost_call(Headers(scope=scope).get(LAST_EVENT_ID_HEADER, ""))
        if call is None:
            await _refuse(400, INVALID_REQUEST, _GONE)(scope, receive, send)
            return
        message = JSONRPCError(jsonrpc="2.0", id=call, error=ErrorData(code=CONNECTION_LOST, message=_LOST))
        event = f"event: message\r\ndata: {message.model_dump_json(by_alias=True, exclude_unset=True)}\r\n\r\n"
        await Response(event, media_type="text/event-stream")(scope, receive, send)

    def _can_go_on(self, scope: Scope) -> bool:
        """Return whether the stream can be resumed as this request asks; a GET stream may begin anew instead.
        Without this check the SDK answers with an empty stream, to which clients reconnect for ever.
        """
        fields, user = Headers(scope=scope), scope.get("user")
        session, last = fields.get(MCP_SESSION_ID_HEADER, ""), fields.get(LAST_EVENT_ID_HEADER)
        requestor = authorization_context(user) if isinstance(user, AuthenticatedUser) else None
        events = self._events.get(session) if requestor == self._session_owners.get(session) else None
        if scope["method"] != "GET" or events is None or (last and events.has(last)):
            return True
        if last and not last.startswith(STANDING):
            return False
        name, transport = LAST_EVENT_ID_HEADER.encode(), self._server_instances.get(session)
        scope["headers"] = [field for field in scope["headers"] if field[0] != name]
        if transport is not None and GET_STREAM_KEY not in transport._request_streams:  # otherwise the SDK refuses it
            scope["headers"].append((name, events.begin().encode()))  # makes the SDK send an event id at its beginning
        return True

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        """Return a new session, whose events belong to the current principal."""
        self._opens = _opener()
        admitted = super()._admit_session(requestor)
        if admitted is not None:
            _lighten(admitted)
            self._events[str(admitted.mcp_session_id)] = self._made
        return admitted

    async def _serve_opening_request(
        self, http_transport: StreamableHTTPServerTransport, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Register the session before it is served. Raises `_Full` if the mount or the caller has too many."""
        id, first = str(http_transport.mcp_session_id), await receive()
        if len(first.get("body", b"")) > DECLARED:
            _DECLARED.report(_opener() or None)
            await self._discard_session(id, http_transport)
            await _refuse(413, INVALID_REQUEST, _TOO_LONG)(scope, receive, send)
            return
        state, principal = _read_declaration(first), current_principal()
        if state is not None and principal is not None:  # the SDK refuses anything else without a session
            try:
                await self._sessions.open(id, principal, self._mount, state, self._end_callback(id))
            except TooManySessions as full:
                await self._discard_session(id, http_transport)
                raise _Full(_opener() or None, _words(full)) from full
        await super()._serve_opening_request(http_transport, scope, replay(first, receive), send)

    async def _discard_session(self, session_id: str, transport: StreamableHTTPServerTransport) -> None:
        if self.leaving:
            self._sessions.leave(session_id)
        else:
            await self._sessions.end(session_id)
        try:
            await super()._discard_session(session_id, transport)
        finally:
            self._ended(session_id)

    def _end_callback(self, id: str) -> Callable[[], None]:
        """Return a callback that ends the session here: another process has it now, or its row was deleted."""

        def end() -> None:
            transport = self._server_instances.get(id)
            if transport is not None:
                self._tasks().start_soon(self._discard_session, id, transport)

        return end

    def _tasks(self) -> TaskGroup:
        """Return the SDK's task group, in which sessions run."""
        tasks = cast("TaskGroup | None", self._task_group)
        if tasks is None:
            raise RuntimeError("the session manager does not run")
        return tasks

    async def _adopt(self, id: str, scope: Scope) -> None:
        """Take over a session of a process that has ended, if it is the caller's. Raises OSError."""
        principal = current_principal()
        if principal is None or not _ID.fullmatch(id):
            return
        lock = self._adopting.setdefault(id, asyncio.Lock())  # clients reconnect with several requests at once
        async with lock:
            try:
                if id not in self._server_instances:
                    state = await self._sessions.adopt(id, principal, self._mount, self._end_callback(id))
                    if state is not None:
                        await self._begin_adopted(id, state, scope)
            finally:
                self._adopting.pop(id, None)

    async def _begin_adopted(self, id: str, state: McpClientState, scope: Scope) -> None:
        """Run the session as if its handshake had happened here."""
        self._opens = _opener()
        transport = StreamableHTTPServerTransport(
            mcp_session_id=id,
            is_json_response_enabled=self.json_response,
            event_store=self.event_store,
            security_settings=self.security_settings,
            retry_interval=self.retry_interval,
            idle_timeout=self.session_idle_timeout,
        )
        _lighten(transport)
        self._events[id] = self._made
        connection = await self._tasks().start(self._run_adopted, transport, state)
        user = scope.get("user")
        if isinstance(user, AuthenticatedUser):
            self._session_owners[id] = authorization_context(user)
        self._server_instances[id] = transport  # requests find it once it can read them
        self._tasks().start_soon(self._restore, transport, connection, state, scope)
        log.debug("a session of %s continues after a restart", _opener())

    async def _run_adopted(
        self,
        transport: StreamableHTTPServerTransport,
        state: McpClientState,
        *,
        task_status: TaskStatus[Connection],
    ) -> None:
        id = str(transport.mcp_session_id)
        async with transport.connect() as (read, write):
            dispatcher: JSONRPCDispatcher[TransportContext] = JSONRPCDispatcher(
                read, write, inline_methods=frozenset({"initialize"})
            )
            connection = Connection.for_loop(dispatcher, session_id=id, protocol_version_hint=state.version)
            connection.client_params = _params(state)
            connection.initialized.set()
            task_status.started(connection)
            try:
                with transport.idle_scope or anyio.CancelScope():
                    await serve_connection(
                        self.app, dispatcher, connection=connection, lifespan_state=self._lifespan_state
                    )
            except Exception:
                log.exception("an adopted session crashed")
            finally:
                await self._discard_session(id, transport)

    async def _restore(
        self, transport: StreamableHTTPServerTransport, connection: Connection, state: McpClientState, scope: Scope
    ) -> None:
        """Repeat the client's own messages that made the state, and tell it that lists may have changed."""
        for message in _messages(state):
            await self._repeat(transport, message, scope)
        await connection.send_tool_list_changed()
        if self._changing:
            await connection.send_prompt_list_changed()
            await connection.send_resource_list_changed()

    async def _repeat(self, transport: StreamableHTTPServerTransport, message: dict[str, Json], scope: Scope) -> None:
        """Handle a message as if the client had posted it; its answer is dropped."""
        left_out = (b"content-type", b"content-length", b"accept", LAST_EVENT_ID_HEADER.encode())
        fields = [(name, value) for name, value in scope["headers"] if name not in left_out]
        fields += [(b"content-type", b"application/json"), (b"accept", b"application/json, text/event-stream")]
        sent = {**scope, "method": "POST", "headers": fields, ENDING: (ending := Ending())}
        sent.pop(LEFT_OUT, None)
        body = {"type": "http.request", "body": plain_json(message).encode(), "more_body": False}

        async def disconnected() -> Message:
            await ending.wait()
            return {"type": "http.disconnect"}

        async def drop(_: Message) -> None:
            """Drop the answer."""

        try:
            await transport.handle_request(sent, replay(body, disconnected), drop)
        except Exception:
            log.exception("a setting of a session was not restored: %s", message["method"])
        finally:
            ending.end()

    async def note(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Middleware: store what the requests of a session set, for its next process."""
        if ctx.method == "initialize" and len(plain_json(ctx.params).encode()) > DECLARED:  # perhaps once more
            _DECLARED.report(_opener() or None)
            raise MCPError(INVALID_REQUEST, _TOO_LONG)
        result = await call_next(ctx)
        change = _CHANGES.get(ctx.method)
        if change is not None and ctx.request_id is not None and ctx.request is not None:
            session = ctx.request.headers.get(MCP_SESSION_ID_HEADER)
            if session is not None:
                await self._sessions.change(session, partial(change, params=ctx.params or {}))
        return result


def _lighten(transport: StreamableHTTPServerTransport) -> None:
    """Let a session serve its standing stream, and resumed ones, in one task each."""
    transport._replay_events = partial(resume_stream, transport)  # type: ignore[method-assign]


def _read_declaration(first: Message) -> McpClientState | None:
    """Return what a message that opens a session declares; None if it is no `initialize`, or an invalid one."""
    message = request_in(first)
    if message.get("method") != "initialize":
        return None
    try:
        params = InitializeRequestParams.model_validate(message.get("params"), by_name=False)
    except ValidationError:
        return None
    asked = str(params.protocol_version)
    return McpClientState(
        asked if asked in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION,
        params.client_info.model_dump(by_alias=True, mode="json", exclude_none=True),
        params.capabilities.model_dump(by_alias=True, mode="json", exclude_none=True),
    )


def _params(state: McpClientState) -> InitializeRequestParams:
    message = {"protocolVersion": state.version, "clientInfo": state.info, "capabilities": state.capabilities}
    return InitializeRequestParams.model_validate(message, by_name=False)


def _messages(state: McpClientState) -> Iterator[dict[str, Json]]:
    """Yield the messages after which a session is in `state`."""
    yield {"jsonrpc": "2.0", "method": "notifications/initialized"}
    sent: list[tuple[str, dict[str, Json]]] = []
    if state.level is not None:
        sent.append(("logging/setLevel", {"level": state.level}))
    sent += [("resources/subscribe", {"uri": uri}) for uri in state.subscriptions]
    for method, params in sent:
        yield {"jsonrpc": "2.0", "id": f"restored-{secrets.token_hex(8)}", "method": method, "params": params}


def _level(state: McpClientState, *, params: Mapping[str, Any]) -> McpClientState:
    return replace(state, level=str(params.get("level")))


def _add_subscription(state: McpClientState, *, params: Mapping[str, Any]) -> McpClientState:
    uri = str(params.get("uri"))
    if uri in state.subscriptions or len(uri) > LONGEST_URI or len(state.subscriptions) >= SUBSCRIPTIONS:
        return state
    return replace(state, subscriptions=(*state.subscriptions, uri))


def _remove_subscription(state: McpClientState, *, params: Mapping[str, Any]) -> McpClientState:
    uri = str(params.get("uri"))
    return replace(state, subscriptions=tuple(one for one in state.subscriptions if one != uri))


_CHANGES: Final = {
    "logging/setLevel": _level,
    "resources/subscribe": _add_subscription,
    "resources/unsubscribe": _remove_subscription,
}
"""The requests that change the state of a session, by method."""


def _refuse(status: int, code: int, message: str) -> JSONResponse:
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}, status)


_ID: Final = re.compile("[0-9a-f]{32}")
"""The form of the SDK's session ids."""

CONNECTION_LOST: Final = -32000
"""The code of a call whose process has ended, as on the bridge."""

_LOST: Final = (
    "connection-lost: the gateway was restarted while this call ran. It may have taken effect, and is not repeated."
)

_TOO_LONG: Final = f"Without a session only `initialize` can be sent, and it has {DECLARED:,} bytes at most."

_REMEDY: Final = "End one that is not needed (DELETE), or wait until one that is idle has ended."

_GONE: Final = (
    "The events after this `Last-Event-ID` are no longer stored: the stream cannot be resumed. Send the request again."
)


def _opener() -> str:
    """Return the id of the principal that sends the current request."""
    opener = current_principal()
    return opener.id if opener is not None else ""


def _words(full: TooManySessions) -> str:
    if full.of_all:
        return f"all callers together have {full.most} here, the limit of `mcp.sessions`"
    return f"this caller has {full.most} here, the limit of `mcp.sessions_each`"


class _Full(Exception):
    """There is no room for another session of the principal `by`, for this reason."""

    def __init__(self, by: str | None, why: str) -> None:
        super().__init__(why)
        self.by = by
