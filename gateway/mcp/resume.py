"""The events of a session of the handshake protocols, kept within limits for clients that resume a broken stream."""

from __future__ import annotations

import logging
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import ReferenceType, WeakValueDictionary, ref

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, AuthorizationContext, authorization_context
from mcp.server.streamable_http import (
    GET_STREAM_KEY,
    LAST_EVENT_ID_HEADER,
    MCP_SESSION_ID_HEADER,
    EventCallback,
    EventMessage,
    EventStore,
    StreamableHTTPServerTransport,
)
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST, JSONRPCMessage
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from gateway.bounds import Area, Bound, size
from gateway.mcp.asgi import current_principal
from gateway.mcp.out_of_band import MARK
from gateway.ports.sessions import McpSessions, TooManySessions

log = logging.getLogger(__name__)

EVENTS = 128
"""Events kept per session."""

SESSION_BYTES = 512 * 1024
"""Bytes of events per session; a larger event is not kept, and its stream cannot be resumed from before it."""

EACH_BYTES = 16 * 1024 * 1024
"""Bytes of the events of all sessions of one principal at one mount."""

ALL_BYTES = 64 * 1024 * 1024
"""Bytes of the events of all sessions of one mount."""


STANDING: Final = "."
"""Prefix of the event ids of a session's GET stream, which may begin anew where other streams cannot resume."""

PER_PRINCIPAL = 1000
"""Default limit of one principal's sessions on a mount, so that it cannot take the capacity of all others."""

BOUNDS: Final = (
    Bound(
        Area.MCP,
        "sessions of the handshake protocols",
        f"`mcp.sessions_each` ({PER_PRINCIPAL:,}) per principal, `mcp.sessions` in all, of a mount; `mcp.session_idle`",
        "503",
    ),
    Bound(
        Area.MCP,
        "events kept for resumption",
        f"{EVENTS} and {size(SESSION_BYTES)} per session; {size(EACH_BYTES)} per principal, {size(ALL_BYTES)} in all, "
        "of a mount",
        "the oldest of that session, principal, or the largest holder are evicted; older streams are refused",
    ),
)

_SESSIONS, _EVENTS = BOUNDS


@dataclass(frozen=True, slots=True)
class _Event:
    stream: str
    message: JSONRPCMessage | None
    size: int


@dataclass(slots=True)
class _Share:
    """One principal's part of a room: the stores of its events, the oldest first, and their bytes."""

    events: OrderedDict[str, tuple[ReferenceType[SessionEvents], int]] = field(default_factory=OrderedDict)
    used: int = 0


class Room:
    """The memory that the sessions of a mount share: `limit` bytes, at most `each` of them for one principal.
    Beyond that the oldest events are evicted, of that principal or of the one with most.
    """

    def __init__(self, limit: int = ALL_BYTES, each: int = EACH_BYTES) -> None:
        self.limit = limit
        self._each = each
        self._used = 0
        self._of: dict[str, _Share] = {}
        self._over = deque[tuple[str, list[str]]]()

    @property
    def used(self) -> int:
        """Bytes of all events kept."""
        self._settle()
        return self._used

    def come(self, owner: str, id: str, size: int, events: SessionEvents) -> None:
        """Account for an event of `owner` kept in `events`, and evict older ones beyond the limits."""
        self._settle()
        share = self._of.setdefault(owner, _Share())
        share.events[id] = (ref(events), size)
        share.used += size
        self._used += size
        while share.used > self._each:
            _EVENTS.exceeded(owner)
            self._drop_oldest(owner)
        if self._used > self.limit:
            _EVENTS.exceeded(owner)
            self._make_room()

    def gone(self, owner: str, id: str) -> None:
        """Account for a removed event."""
        share = self._of.get(owner)
        if share is None or id not in share.events:
            return
        _, size = share.events.pop(id)
        share.used -= size
        self._used -= size
        if not share.events:
            del self._of[owner]

    def over(self, owner: str, ids: list[str]) -> None:
        """Note that a session with these events was finalized, by any thread; the counts are updated later."""
        self._over.append((owner, ids))

    def _settle(self) -> None:
        while self._over:
            owner, ids = self._over.popleft()
            for id in ids:
                self.gone(owner, id)

    def _make_room(self) -> None:
        """Evict a little more than necessary, so that this is needed less often."""
        enough = self.limit - self.limit // 64
        while self._used > enough:
            most = max(self._of, key=lambda owner: self._of[owner].used)
            had = self._of[most].used
            while self._used > enough and most in self._of and self._of[most].used > had // 2:
                self._drop_oldest(most)

    def _drop_oldest(self, owner: str) -> None:
        id, (where, _) = next(iter(self._of[owner].events.items()))
        events = where()
        if events is not None:
            events.drop(id)
        self.gone(owner, id)


class SessionEvents(EventStore):
    """The newest events of one session. Streams have the ids of its calls, so each session needs a separate store."""

    def __init__(self, room: Room, owner: str = "", events: int = EVENTS, size: int = SESSION_BYTES) -> None:
        self._room = room
        self._owner = owner
        self._most = events
        self._largest = size
        self._events: OrderedDict[str, _Event] = OrderedDict()
        self._size = 0
        self._begun = self._keep(GET_STREAM_KEY, None)

    def __del__(self) -> None:
        self._room.over(self._owner, list(self._events))

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Store an event, and return an unguessable id."""
        return self._keep(stream_id, message)

    def begin(self) -> str:
        """Return the event after which the GET stream begins; messages from before its first beginning follow on it."""
        begun, self._begun = self._begun, ""
        return begun if self.has(begun) else self._keep(GET_STREAM_KEY, None)

    def _keep(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        id = (STANDING if stream_id == GET_STREAM_KEY else "") + secrets.token_urlsafe(12)
        written = message.model_dump_json(by_alias=True, exclude_none=True) if message is not None else ""
        size = 64 + len(written) + (self._largest if MARK in written else 0)
        self._events[id] = _Event(stream_id, message, size)
        self._size += size
        self._room.come(self._owner, id, size, self)
        while self._events and (len(self._events) > self._most or self._size > self._largest):
            self.drop(next(iter(self._events)))
        return id

    def drop(self, id: str) -> None:
        """Evict an event; from then on neither it nor earlier ones can be replayed."""
        self._size -= self._events.pop(id).size
        self._room.gone(self._owner, id)

    def has(self, id: str) -> bool:
        """Whether the stream can be resumed after this event."""
        return id in self._events

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send the later events of that event's stream, and return the stream's id; None for an unknown event."""
        last = self._events.get(last_event_id)
        if last is None:
            return None
        found = False
        for id, event in list(self._events.items()):
            if found and event.stream == last.stream and event.message is not None:
                await send_callback(EventMessage(event.message, id))
            found = found or id == last_event_id
        return last.stream


class ResumableSessions(StreamableHTTPSessionManager):
    """The SDK's session manager, with a separate event store per session. `sessions` knows those of all mounts.

    `ended` is called with the id of each session that has ended.
    """

    def __init__(
        self,
        *arguments: Any,
        sessions: McpSessions,
        mount: str,
        ended: Callable[[str], None] = lambda _: None,
        **options: Any,
    ) -> None:
        self._room = Room()
        self._ended = ended
        self._sessions = sessions
        self._mount = mount
        self._opens = ""
        self._made = SessionEvents(self._room)
        self._events = WeakValueDictionary[str, SessionEvents]()
        super().__init__(*arguments, **options)

    @property
    def event_store(self) -> EventStore:
        """A new event store: the SDK reads this once per session."""
        self._made = SessionEvents(self._room, self._opens)
        return self._made

    @event_store.setter
    def event_store(self, _: EventStore | None) -> None:
        """Ignore the SDK's assignment, which is always None."""

    async def _handle_stateful_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._can_go_on(scope):
            error = {"code": INVALID_REQUEST, "message": _GONE}
            await JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 400)(scope, receive, send)
            return
        try:
            await super()._handle_stateful_request(scope, receive, send)
        except _Full as full:
            _SESSIONS.exceeded(full.by)
            log.warning("no new session at %s: %s", scope["path"], full)
            error = {"code": INTERNAL_ERROR, "message": f"Too many open sessions: {full}. {_REMEDY}"}
            await JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 503)(scope, receive, send)

    def _can_go_on(self, scope: Scope) -> bool:
        """Whether the stream can be resumed as this request asks; a GET stream may begin anew instead.
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
            self._events[str(admitted.mcp_session_id)] = self._made
        return admitted

    async def _serve_opening_request(
        self, http_transport: StreamableHTTPServerTransport, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Register the session before it is served. Raises `_Full` if the mount or the caller has too many."""
        id = str(http_transport.mcp_session_id)
        try:
            await self._sessions.open(id, _opener(), self._mount)
        except TooManySessions as full:
            await self._discard_session(id, http_transport)
            raise _Full(_opener() or None, _words(full)) from full
        await super()._serve_opening_request(http_transport, scope, receive, send)

    async def _discard_session(self, session_id: str, transport: StreamableHTTPServerTransport) -> None:
        self._sessions.end(session_id)
        try:
            await super()._discard_session(session_id, transport)
        finally:
            self._ended(session_id)


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
        return f"all callers together have {full.most} here, as many as `mcp.sessions` says"
    return f"this caller has {full.most} here, as many as `mcp.sessions_each` says"


class _Full(Exception):
    """There is no room for another session of the principal `by`, for this reason."""

    def __init__(self, by: str | None, why: str) -> None:
        super().__init__(why)
        self.by = by
