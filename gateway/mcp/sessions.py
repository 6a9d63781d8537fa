"""The sessions of MCP clients with a handshake at one mount: opened, resumed, and adopted after a restart."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast
from uuid import uuid4

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
    EventMessage,
    StreamableHTTPServerTransport,
)
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
)
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from gateway.bounds import Area, Bound, size
from gateway.eventloop.shared_timeouts import SharedTimeouts
from gateway.jsontext.writing import plain_json
from gateway.mcp.asgi import User, current_principal
from gateway.mcp.middleware import CHANGES, messages_of, params_of, read_declaration, repeat, replay, state_of
from gateway.mcp.resume import STANDING, Room, SessionEvents, event_text, json_of, lost_call, resume_stream
from gateway.mcp.standing_streams import (
    CHANNEL,
    SESSION_ID,
    SessionChannel,
    StandingStream,
    StreamRequest,
    StreamWriter,
    priming_event,
)
from gateway.ports.sessions import McpClientState, McpSessions, TooManySessions

PER_PRINCIPAL = 1000
"""Default limit of one principal's sessions on a mount, so that it cannot take the capacity of all others."""

DECLARED: Final = 64 * 1024
"""Bytes of the longest `initialize`: what it declares is stored as long as its session."""

RETRY: Final = 3000
"""Milliseconds after which clients reconnect a broken stream. They try twice at most, and a restart takes a moment."""

REST: Final = 5.0
"""Seconds without a request after which a session leaves the SDK, whose objects take several times its memory."""

STEPS: Final = 8
"""Steps of the event loop within which the SDK begins to handle a message that it has received."""

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


@dataclass(slots=True, eq=False)
class _SdkSession:
    """Runs a session in the SDK; `handling` are the messages that it is processing."""

    transport: StreamableHTTPServerTransport
    dispatcher: JSONRPCDispatcher[TransportContext]
    connection: Connection
    handling: int = 0
    rests: bool = False

    @property
    def busy(self) -> bool:
        """True if a message is being handled, or the client has been asked something."""
        return bool(self.handling or self.dispatcher._in_flight or self.dispatcher._pending)


@dataclass(slots=True, eq=False)
class _HeldSession:
    """A session of this process. `running` is None while it rests, and `state` what its client has declared.

    `requests` are those in flight in the SDK; `stream` is a standing stream that is served without it.
    """

    owner: AuthorizationContext | None
    events: SessionEvents
    running: _SdkSession | None = None
    state: McpClientState | None = None
    stream: StandingStream | None = None
    requests: int = 0
    rest_at: int = 0
    end_at: int = 0


class ResumableSessions(StreamableHTTPSessionManager):
    """The SDK's session manager, with a separate event store per session. `sessions` knows those of all mounts.

    A session without requests leaves the SDK after `rest` seconds, and returns to it with its next request; its
    standing stream stays open. After `idle` seconds without requests and stream it ends. `ended` is called with the id
    of each session that has ended; `changing`: prompts and resources may change, too.
    While `leaving` is set, sessions that stop here are not ended: the next process adopts them.
    """

    def __init__(
        self,
        *arguments: Any,
        sessions: McpSessions,
        mount: str,
        idle: float,
        rest: float = REST,
        ended: Callable[[str], None] = lambda _: None,
        changing: bool = False,
        **options: Any,
    ) -> None:
        self._room = Room()
        self._on_end = ended
        self._sessions = sessions
        self._mount = mount
        self._here: dict[str, _HeldSession] = {}
        self._waking: dict[str, asyncio.Lock] = {}
        self._changing = changing
        self._resting = SharedTimeouts(rest)
        self._idle = SharedTimeouts(idle)
        self.leaving = False
        super().__init__(*arguments, **options | {"session_idle_timeout": None})
        self.retry_interval = RETRY

    async def announce(self, id: str, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a session a notification that belongs to no request; it is kept for a stream that opens later."""
        session = self._here.get(id)
        if session is None:
            return
        running = session.running
        if session.stream is None and running is not None and GET_STREAM_KEY in running.transport._request_streams:
            await running.connection.notify(method, params)
            return
        members = {"params": dict(params)} if params is not None else {}
        message = JSONRPCNotification(jsonrpc="2.0", method=method, **members)
        event = EventMessage(message, session.events.keep(GET_STREAM_KEY, message))
        if session.stream is not None:
            await session.stream.send(event)

    def has(self, id: str) -> bool:
        """Return whether a session runs in this process."""
        return id in self._here

    async def adopt(self, id: str, user: User, scope: Scope) -> None:
        """Take over a session of a process that has ended, if it is the caller's. Raises OSError."""
        if id not in self._here and SESSION_ID.fullmatch(id):
            async with self._alone(id):
                if id not in self._here:
                    adoption = self._sessions.adopt(id, user.principal, self._mount, self._end_callback(id))
                    if (state := await adoption) is not None:
                        await self._begin_adopted(id, state, user, scope)

    def can_stand(self, stream_request: StreamRequest, user: User) -> bool:
        """Return whether the standing stream of a session can be opened as `stream_request`, by its own client."""
        session = self._here.get(stream_request.id)
        if session is None or session.owner != authorization_context(user) or session.stream is not None:
            return False
        running = session.running
        if running is not None and GET_STREAM_KEY in running.transport._request_streams:
            return False
        return not stream_request.last or stream_request.last.startswith(STANDING)

    async def stand(
        self, stream_request: StreamRequest, writer: StreamWriter, encode: Callable[[bytes], bytes]
    ) -> None:
        """Serve the standing stream, if `can_stand`, until the client or the session is gone."""
        session = self._here[stream_request.id]
        events = session.events
        events_after = events.after(stream_request.last if events.has(stream_request.last) else events.begin())
        stream = session.stream = StandingStream(writer, encode)
        if session.running is not None:
            _put_stream(session.running.transport, stream)
        self._note_use(session)
        try:
            with self._sessions.use(stream_request.id):
                await stream.run(events_after, priming_event(events, stream_request.version, self.retry_interval))
        finally:
            session.stream = None
            if session.running is not None:
                session.running.transport._request_streams.pop(GET_STREAM_KEY, None)
            self._note_end_of_use(stream_request.id, session)

    def end_streams(self) -> None:
        """End the standing streams that are served without the SDK."""
        for session in self._here.values():
            if session.stream is not None:
                session.stream.end()

    def leave(self) -> None:
        """Leave the sessions to the next process."""
        self._resting.close()
        self._idle.close()
        for id in list(self._here):
            self._forget(id)
            self._sessions.leave(id)

    def leave_all(self) -> None:
        """Stop running all sessions here, without ending them: another process may have adopted them."""
        for id in list(self._here):
            session = self._forget(id)
            self._sessions.leave(id)
            if session is not None and session.running is not None:
                session.running.rests = True
                self._tasks().start_soon(session.running.transport.terminate)

    async def _handle_stateful_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        id = Headers(scope=scope).get(MCP_SESSION_ID_HEADER, "")
        try:
            if id and isinstance(user := scope.get("user"), User):
                await self.adopt(id, user, scope)
                await self._wake(id, user)
                if id in self._here:
                    scope[CHANNEL] = self._channel(id)
            with self._sessions.use(id), self._using(id):
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
        await Response(event_text(event="message", data=json_of(message)), media_type="text/event-stream")(
            scope, receive, send
        )

    def _can_go_on(self, scope: Scope) -> bool:
        """Return whether the stream can be resumed as this request asks; a GET stream may begin anew instead.
        Without this check the SDK answers with an empty stream, to which clients reconnect for ever.
        """
        fields, user = Headers(scope=scope), scope.get("user")
        last, session = fields.get(LAST_EVENT_ID_HEADER), self._here.get(fields.get(MCP_SESSION_ID_HEADER, ""))
        requestor = authorization_context(user) if isinstance(user, AuthenticatedUser) else None
        if scope["method"] != "GET" or session is None or session.running is None or session.owner != requestor:
            return True
        if last and session.events.has(last):
            return True
        if last and not last.startswith(STANDING):
            return False
        name = LAST_EVENT_ID_HEADER.encode()
        scope["headers"] = [field for field in scope["headers"] if field[0] != name]
        if GET_STREAM_KEY not in session.running.transport._request_streams:  # otherwise the SDK refuses it
            first_event = session.events.begin().encode()  # makes the SDK send an event id at its beginning
            scope["headers"].append((name, first_event))
        return True

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport:
        """Return the transport of a new session, whose events belong to the current principal."""
        session = _HeldSession(requestor, SessionEvents(self._room, _opener()))
        return self._transport(uuid4().hex, session)

    def _transport(self, id: str, session: _HeldSession) -> StreamableHTTPServerTransport:
        """Return a transport through which the SDK runs a session."""
        transport = StreamableHTTPServerTransport(
            mcp_session_id=id,
            is_json_response_enabled=self.json_response,
            event_store=session.events,
            security_settings=self.security_settings,
            retry_interval=self.retry_interval,
        )
        transport._replay_events = partial(resume_stream, transport)  # type: ignore[method-assign]  # in fewer tasks
        if session.stream is not None:
            _put_stream(transport, session.stream)
        self._here[id] = session
        self._server_instances[id] = transport
        if session.owner is not None:
            self._session_owners[id] = session.owner
        return transport

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
        state, principal = read_declaration(first), current_principal()
        if state is not None and principal is not None:  # the SDK refuses anything else without a session
            try:
                await self._sessions.open(id, principal, self._mount, state, self._end_callback(id))
            except TooManySessions as full:
                await self._discard_session(id, http_transport)
                raise _Full(_opener() or None, _words(full)) from full

        status, established = 500, False

        async def note_status(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            with self._using(id):
                await self._tasks().start(self._run, http_transport, self._here[id], None)
                await http_transport.handle_request(scope, replay(first, receive), note_status)
            established = status < 400
        finally:
            if not established:
                await self._discard_session(id, http_transport)

    async def _discard_session(self, session_id: str, transport: StreamableHTTPServerTransport) -> None:
        if self._server_instances.get(session_id) is transport:
            await self._end_session(session_id)
        if not transport.is_terminated:
            with anyio.CancelScope(shield=True):
                await transport.terminate()

    async def _end_session(self, id: str) -> None:
        """End a session of this process; while this process leaves, the next one can adopt it."""
        if self.leaving:
            self._sessions.leave(id)
        else:
            await self._sessions.end(id)
        session = self._forget(id)
        if session is not None and session.running is not None and not session.running.transport.is_terminated:
            with anyio.CancelScope(shield=True):
                await session.running.transport.terminate()

    async def _end_idle(self, id: str, session: _HeldSession) -> None:
        """End a session that was idle for too long."""
        if not session.requests and session.stream is None:
            await self._end_session(id)

    def _forget(self, id: str) -> _HeldSession | None:
        session = self._here.pop(id, None)
        if session is None:
            return None
        self._server_instances.pop(id, None)
        self._session_owners.pop(id, None)
        self._note_use(session)
        if session.stream is not None:
            session.stream.end()
        self._on_end(id)
        return session

    def _end_callback(self, id: str) -> Callable[[], None]:
        """Return a callback that ends the session here: another process has it now, or its row was deleted."""

        def end() -> None:
            if id in self._here:
                self._tasks().start_soon(self._end_session, id)

        return end

    @contextmanager
    def _using(self, id: str) -> Iterator[None]:
        """Count a request of a session while the block runs."""
        session = self._here.get(id)
        if session is None:
            yield
            return
        session.requests += 1
        self._note_use(session)
        try:
            yield
        finally:
            session.requests -= 1
            self._note_end_of_use(id, session)

    def _note_use(self, session: _HeldSession) -> None:
        self._idle.cancel(session.end_at)
        if session.requests:
            self._resting.cancel(session.rest_at)

    def _note_end_of_use(self, id: str, session: _HeldSession) -> None:
        """Let an unused session end after a while, and leave the SDK before that."""
        if self._here.get(id) is not session or session.requests or self.leaving:
            return
        if session.running is not None:
            self._resting.cancel(session.rest_at)
            session.rest_at = self._resting.set(partial(self._tasks().start_soon, self._rest, id, session))
        if session.stream is None:
            self._idle.cancel(session.end_at)
            session.end_at = self._idle.set(partial(self._tasks().start_soon, self._end_idle, id, session))

    async def _rest(self, id: str, session: _HeldSession) -> None:
        """Let a session leave the SDK until its next request."""
        for _ in range(STEPS):  # a notification that the SDK has received may not be handled yet
            await asyncio.sleep(0)
        running = session.running
        if running is None or session.requests or self._here.get(id) is not session:
            return
        params = running.connection.client_params
        if running.busy or params is None or not running.connection.initialized.is_set():
            self._note_end_of_use(id, session)
            return
        session.state = state_of(params, running.connection.protocol_version)
        session.running, running.rests = None, True
        self._server_instances.pop(id, None)
        self._session_owners.pop(id, None)
        running.transport._request_streams.pop(GET_STREAM_KEY, None)  # stays open
        await running.transport.terminate()

    async def _wake(self, id: str, user: User) -> None:
        """Let the SDK run a session that rests, if it is the caller's."""
        session = self._here.get(id)
        if session is None or session.running is not None or session.owner != authorization_context(user):
            return
        async with self._alone(id):
            if id not in self._server_instances and self._here.get(id) is session:
                await self._tasks().start(self._run, self._transport(id, session), session, session.state)

    def _tasks(self) -> TaskGroup:
        """Return the SDK's task group, in which sessions run."""
        tasks = cast("TaskGroup | None", self._task_group)
        if tasks is None:
            raise RuntimeError("the session manager does not run")
        return tasks

    def _channel(self, id: str) -> SessionChannel:
        return SessionChannel(partial(self.announce, id), self._spawn)

    def _spawn(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._tasks().start_soon(job)

    @asynccontextmanager
    async def _alone(self, id: str) -> AsyncIterator[None]:
        """Change whether a session runs here; clients reconnect with several requests at once."""
        lock = self._waking.setdefault(id, asyncio.Lock())
        async with lock:
            try:
                yield
            finally:
                self._waking.pop(id, None)

    async def _begin_adopted(self, id: str, state: McpClientState, user: User, scope: Scope) -> None:
        """Run the session as if its handshake had happened here."""
        session = _HeldSession(authorization_context(user), SessionEvents(self._room, user.principal.id))
        transport = self._transport(id, session)
        await self._tasks().start(self._run, transport, session, state)
        self._note_end_of_use(id, session)
        self._tasks().start_soon(self._restore, id, transport, state, scope)
        log.debug("a session of %s continues after a restart", user.principal.id)

    async def _run(
        self,
        transport: StreamableHTTPServerTransport,
        session: _HeldSession,
        state: McpClientState | None,
        *,
        task_status: TaskStatus[None],
    ) -> None:
        """Run a session in the SDK; after a handshake elsewhere its client has declared `state`."""
        id = str(transport.mcp_session_id)
        async with transport.connect() as (read, write):
            dispatcher: JSONRPCDispatcher[TransportContext] = JSONRPCDispatcher(
                read, write, inline_methods=frozenset({"initialize"})
            )
            hint = state.version if state is not None else None
            connection = Connection.for_loop(dispatcher, session_id=id, protocol_version_hint=hint)
            if state is not None:
                connection.client_params = params_of(state)
                connection.initialized.set()
            running = session.running = _SdkSession(transport, dispatcher, connection)
            task_status.started()
            try:
                await serve_connection(self.app, dispatcher, connection=connection, lifespan_state=self._lifespan_state)
            except Exception:
                log.exception("a session crashed")
            finally:
                if not running.rests:
                    await self._discard_session(id, transport)

    async def _restore(
        self, id: str, transport: StreamableHTTPServerTransport, state: McpClientState, scope: Scope
    ) -> None:
        """Repeat the client's own messages that made the state, and tell it that lists may have changed."""
        with self._using(id):
            for message in messages_of(state):
                await repeat(transport, message, {**scope, CHANNEL: self._channel(id)})
        for kind in ("tools", "prompts", "resources") if self._changing else ("tools",):
            await self.announce(id, f"notifications/{kind}/list_changed")

    async def note(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Middleware: store what the requests of a session set, for its next process."""
        if ctx.method == "initialize" and len(plain_json(ctx.params).encode()) > DECLARED:  # perhaps once more
            _DECLARED.report(_opener() or None)
            raise MCPError(INVALID_REQUEST, _TOO_LONG)
        with self._handling(ctx.session._connection.session_id):
            result = await call_next(ctx)
        change = CHANGES.get(ctx.method)
        if change is not None and ctx.request_id is not None and ctx.request is not None:
            session = ctx.request.headers.get(MCP_SESSION_ID_HEADER)
            if session is not None:
                await self._sessions.change(session, partial(change, params=ctx.params or {}))
        return result

    @contextmanager
    def _handling(self, id: str | None) -> Iterator[None]:
        """Keep the session in the SDK while the block handles one of its messages."""
        session = self._here.get(id) if id is not None else None
        running = session.running if session is not None else None
        if running is None:
            yield
            return
        running.handling += 1
        try:
            yield
        finally:
            running.handling -= 1


def _put_stream(transport: StreamableHTTPServerTransport, stream: StandingStream) -> None:
    """Let the SDK send on a standing stream that it does not serve."""
    transport._request_streams[GET_STREAM_KEY] = cast("Any", (stream, stream))


def _refuse(status: int, code: int, message: str) -> JSONResponse:
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}, status)


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
