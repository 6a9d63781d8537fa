"""The streams of sessions of the handshake protocols: their events, kept within limits, and how they are resumed."""

from __future__ import annotations

import base64
import secrets
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import dropwhile, islice
from typing import Final
from weakref import ReferenceType, ref

import anyio
from mcp.server.streamable_http import (
    GET_STREAM_KEY,
    MCP_SESSION_ID_HEADER,
    EventCallback,
    EventMessage,
    EventStore,
    StreamableHTTPServerTransport,
)
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types import JSONRPCMessage, jsonrpc_message_adapter
from starlette.requests import Request
from starlette.types import Send

from gateway.bounds import Area, Bound, size
from gateway.crypto import base64url
from gateway.mcp.asgi import ending_of
from gateway.mcp.out_of_band import MARK

EVENTS = 128
"""Events kept per session."""

SESSION_BYTES = 512 * 1024
"""Bytes of events per session; a larger event is not kept, and its stream cannot be resumed from before it."""

EACH_BYTES = 16 * 1024 * 1024
"""Bytes of the events of all sessions of one principal at one mount."""

ALL_BYTES = 64 * 1024 * 1024
"""Bytes of the events of all sessions of one mount."""


FOLLOWING: Final = 16
"""Messages that wait for a stream whose client reads slowly, before the session waits."""

PING: Final = 15.0
"""Seconds without an event after which a stream gets a comment, so that proxies keep its connection."""

OLDEST: Final = "2025-03-26"
"""The protocol version of a request without the header of that name (MCP 2025-11-25, transports)."""

STANDING: Final = "."
"""Prefix of the event ids of a session's GET stream, which may begin anew where other streams cannot resume."""

BOUNDS: Final = (
    Bound(
        Area.MCP,
        "events kept for resumption",
        f"{EVENTS} and {size(SESSION_BYTES)} per session; {size(EACH_BYTES)} per principal, {size(ALL_BYTES)} in all, "
        "of a mount",
        "the oldest of that session, principal, or the largest holder are evicted; older streams are refused",
    ),
)

(_EVENTS,) = BOUNDS


@dataclass(frozen=True, slots=True)
class _Event:
    """An event of a stream; `data` is its message as text, which takes less memory than the SDK's objects."""

    stream: str
    data: str | None
    size: int


@dataclass(slots=True)
class _Share:
    """One principal's part of a room: the stores of its events, the oldest first, and their bytes."""

    events: OrderedDict[str, tuple[ReferenceType[SessionEvents], int]] = field(default_factory=OrderedDict)
    size: int = 0


class Room:
    """The memory that the sessions of a mount share: `limit` bytes, at most `each` of them for one principal.
    Beyond that the oldest events are evicted, of that principal or of the one with most.
    """

    def __init__(self, limit: int = ALL_BYTES, each: int = EACH_BYTES) -> None:
        self.limit = limit
        self._each = each
        self._size = 0
        self._of: dict[str, _Share] = {}
        self._over = deque[tuple[str, list[str]]]()

    @property
    def size(self) -> int:
        """Bytes of all events kept."""
        self._settle()
        return self._size

    def add_event(self, owner: str, id: str, size: int, events: SessionEvents) -> None:
        """Account for an event of `owner` kept in `events`, and evict older ones beyond the limits."""
        self._settle()
        share = self._of.setdefault(owner, _Share())
        share.events[id] = (ref(events), size)
        share.size += size
        self._size += size
        while share.size > self._each:
            _EVENTS.report(owner)
            self._drop_oldest(owner)
        if self._size > self.limit:
            _EVENTS.report(owner)
            self._make_room()

    def note_removal(self, owner: str, id: str) -> None:
        """Account for a removed event."""
        share = self._of.get(owner)
        if share is None or id not in share.events:
            return
        _, size = share.events.pop(id)
        share.size -= size
        self._size -= size
        if not share.events:
            del self._of[owner]

    def over(self, owner: str, ids: list[str]) -> None:
        """Note that a session with these events was finalized, by any thread; the counts are updated later."""
        self._over.append((owner, ids))

    def _settle(self) -> None:
        while self._over:
            owner, ids = self._over.popleft()
            for id in ids:
                self.note_removal(owner, id)

    def _make_room(self) -> None:
        """Evict a little more than necessary, so that this is needed less often."""
        enough = self.limit - self.limit // 64
        while self._size > enough:
            most = max(self._of, key=lambda owner: self._of[owner].size)
            had = self._of[most].size
            while self._size > enough and most in self._of and self._of[most].size > had // 2:
                self._drop_oldest(most)

    def _drop_oldest(self, owner: str) -> None:
        id, (where, _) = next(iter(self._of[owner].events.items()))
        events = where()
        if events is not None:
            events.drop(id)
        self.note_removal(owner, id)


_PROCESS: Final = secrets.token_hex(4)
"""Distinguishes the event ids of this process from those of earlier ones."""

LONGEST_CALL: Final = 128
"""Characters of a call's id that an event id can carry."""


def event_id(stream: str) -> str:
    """Return an unguessable id of an event on a stream, which for a call's stream names the process and the call."""
    if stream == GET_STREAM_KEY:
        return STANDING + secrets.token_urlsafe(12)
    call = base64url(stream.encode("utf-8", "surrogatepass")) if len(stream) <= LONGEST_CALL else ""
    return f"{_PROCESS}~{call}~{secrets.token_urlsafe(12)}"


def lost_call(event: str) -> str | int | None:
    """Return the id of the call whose stream an earlier process began with this event; None for any other event.

    The SDK names a call's stream by the text of its id: digits are taken for a number.
    """
    process, _, rest = event.partition("~")
    call, remainder, _ = rest.partition("~")
    if not remainder or process == _PROCESS or not call:
        return None
    try:
        id = base64.urlsafe_b64decode(f"{call}==").decode()
    except ValueError:
        return None
    return int(id) if id.isascii() and id.isdecimal() and len(id) < LONGEST_NUMBER else id


LONGEST_NUMBER: Final = 16
"""Digits of a call's id that JSON numbers carry exactly."""


class SessionEvents(EventStore):
    """The newest events of one session. Streams have the ids of its calls, so each session needs a separate store."""

    def __init__(self, room: Room, owner: str = "", events: int = EVENTS, size: int = SESSION_BYTES) -> None:
        self._room = room
        self._owner = owner
        self._most = events
        self._largest = size
        self._events: OrderedDict[str, _Event] = OrderedDict()
        self._size = 0
        self._first_event = self.keep(GET_STREAM_KEY, None)

    def __del__(self) -> None:
        self._room.over(self._owner, list(self._events))

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Store an event, and return an unguessable id."""
        return self.keep(stream_id, message)

    def begin(self) -> str:
        """Return the event after which the GET stream begins; messages from before its first beginning follow on it."""
        first_event, self._first_event = self._first_event, ""
        return first_event if self.has(first_event) else self.keep(GET_STREAM_KEY, None)

    def keep(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Do the same as `store_event`."""
        id = event_id(stream_id)
        data = json_of(message) if message is not None else None
        size = 64 + len(data or "") + (self._largest if MARK in (data or "") else 0)
        self._events[id] = _Event(stream_id, data, size)
        self._size += size
        self._room.add_event(self._owner, id, size, self)
        while self._events and (len(self._events) > self._most or self._size > self._largest):
            self.drop(next(iter(self._events)))
        return id

    def drop(self, id: str) -> None:
        """Evict an event; from then on neither it nor earlier ones can be replayed."""
        self._size -= self._events.pop(id).size
        self._room.note_removal(self._owner, id)

    def has(self, id: str) -> bool:
        """Return whether the stream can be resumed after this event."""
        return id in self._events

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send the later events of that event's stream, and return the stream's id; None for an unknown event."""
        last = self._events.get(last_event_id)
        if last is None:
            return None
        for id, data in self.after(last_event_id):
            await send_callback(EventMessage(jsonrpc_message_adapter.validate_json(data, by_name=False), id))
        return last.stream

    def after(self, last_event_id: str) -> list[tuple[str, str]]:
        """Return id and data of the later messages of that event's stream; none for an unknown event."""
        last = self._events.get(last_event_id)
        if last is None:
            return []
        later = islice(dropwhile(lambda one: one[0] != last_event_id, self._events.items()), 1, None)
        return [(id, event.data) for id, event in later if event.stream == last.stream and event.data is not None]


def json_of(message: JSONRPCMessage) -> str:
    """Return the text of a message, as the SDK sends it."""
    return message.model_dump_json(by_alias=True, exclude_unset=True)


def event_text(**fields: object) -> str:
    """Return an event with these fields."""
    lines = (f"{name}: {fields[name]}" for name in ("id", "event", "data", "retry") if name in fields)
    return "\r\n".join([*lines, "", ""])


def ping_text() -> str:
    """Return a comment that keeps the connection of a silent stream."""
    return f": ping - {datetime.now(UTC)}\r\n\r\n"


async def resume_stream(
    transport: StreamableHTTPServerTransport, last_event_id: str, request: Request, send: Send
) -> None:
    """Send the later events of that event's stream, then those that follow, until the client or the session is gone.

    It runs in the request's own task. The SDK's method does the same in five tasks of its own, which are more than a
    third of the memory of an idle session with its stream.
    """
    with anyio.CancelScope() as scope, ending_of(request).calling(scope.cancel):
        fields = {"content-type": "text/event-stream", "cache-control": "no-cache, no-transform"}
        fields[MCP_SESSION_ID_HEADER] = str(transport.mcp_session_id)
        raw = [(name.encode(), value.encode()) for name, value in fields.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})

        async def send_message(message: EventMessage) -> None:
            await _write(send, event_text(**transport._create_event_data(message)))

        store = transport._event_store
        stream = await store.replay_events_after(last_event_id, send_message) if store is not None else None
        if stream is not None and stream not in transport._request_streams:
            version = request.headers.get(MCP_PROTOCOL_VERSION_HEADER, OLDEST)
            first = await transport._mint_priming_event(stream, version)
            if first is not None:
                await _write(send, event_text(**first))
            await _follow(transport, stream, send_message, send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _follow(
    transport: StreamableHTTPServerTransport, stream: str, send_message: EventCallback, send: Send
) -> None:
    """Send what the session writes to a stream, and comments in between, until the session closes it."""
    both = anyio.create_memory_object_stream[EventMessage](FOLLOWING)
    writer, reader = transport._request_streams[stream] = both
    with writer, reader:
        try:
            while True:
                with anyio.move_on_after(PING) as silence:
                    message = await reader.receive()
                if silence.cancelled_caught:
                    await _write(send, ping_text())
                else:
                    await send_message(message)
        except (anyio.EndOfStream, anyio.ClosedResourceError):  # the session ended the stream, or itself
            return
        finally:
            if transport._request_streams.get(stream) is both:
                del transport._request_streams[stream]


async def _write(send: Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
