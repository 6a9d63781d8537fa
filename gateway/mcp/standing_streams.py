"""Notifications that belong to no request: on a session's open GET stream, without the SDK; of tools that changed.

An idle session is only its events, what its client declared, and this stream: a twentieth of the objects that the SDK
and aiohttp hold for the same.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Protocol, TypeAlias, cast

from mcp.server.streamable_http import GET_STREAM_KEY, EventMessage
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, is_version_at_least
from msgspec import Struct
from starlette.requests import Request

from gateway.eventloop.shared_timeouts import SharedTimeouts
from gateway.mcp import resume
from gateway.mcp.fast import Fields
from gateway.mcp.resume import OLDEST, SessionEvents, event_text, json_of, ping_text
from gateway.model import Principal

log = logging.getLogger(__name__)

SESSION_ID: Final = re.compile("[0-9a-f]{32}")
"""The form of the SDK's session ids."""

PRIMED: Final = "2025-11-25"
"""The first protocol version whose clients understand an event without data (MCP 2025-11-25, transports)."""

_ASIDE: Final = frozenset({b"content-encoding", b"transfer-encoding", b"expect", b"upgrade"})
_EVENTS: Final = b"text/event-stream"


class StreamWriter(Protocol):
    """The connection that a stream is written to: `gateway.fastpath.connection.FastConnection`."""

    def alarms(self, seconds: float) -> SharedTimeouts:
        """Return the shared timeouts of this duration."""
        ...

    def send(self, data: bytes) -> None:
        """Write a part of an answer."""
        ...

    async def drain(self) -> None:
        """Wait while the write buffer is full."""
        ...


class StreamRequest(Struct, frozen=True):
    """A GET request for the standing stream of the session `id`; `last` is its `Last-Event-ID`, or empty."""

    id: str
    last: str
    version: str


class StreamHeads:
    """The request heads of standing streams: to one of `hosts`, and from no web pages but those of `origins`."""

    def __init__(self, hosts: Collection[str], origins: Collection[str]) -> None:
        self._hosts = frozenset(host.encode() for host in hosts)
        self._origins = frozenset(origin.encode() for origin in origins)

    def read(self, fields: Fields) -> StreamRequest | None:
        """Return the request; None leaves it to the SDK."""
        seen = {name.lower(): value for name, value in fields}
        if len(seen) != len(fields) or not _ASIDE.isdisjoint(seen) or seen.get(b"host") not in self._hosts:
            return None
        if b"origin" in seen and seen[b"origin"] not in self._origins:
            return None
        version = seen.get(b"mcp-protocol-version", OLDEST.encode()).decode("latin-1")
        id, last = (seen.get(name, b"").decode("latin-1") for name in (b"mcp-session-id", b"last-event-id"))
        plain = SESSION_ID.fullmatch(id) and version in HANDSHAKE_PROTOCOL_VERSIONS
        return StreamRequest(id, last, version) if plain and _accepts_events(seen.get(b"accept", b"")) else None


@lru_cache(maxsize=64)
def _accepts_events(accept: bytes) -> bool:
    return _EVENTS in {part.split(b";")[0].strip().lower() for part in accept.split(b",")}


class StandingStream:
    """An open standing stream; it takes the place of the SDK's memory stream, both ends in one.

    `encode` returns the bytes of a part of the body on the wire.
    """

    __slots__ = ("_alarm", "_alarms", "_encode", "_over", "_turn", "_writer")

    def __init__(self, writer: StreamWriter, encode: Callable[[bytes], bytes]) -> None:
        self._writer = writer
        self._encode = encode
        self._turn = asyncio.Lock()
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._alarms = writer.alarms(resume.PING)
        self._alarm = self._alarms.set(self._ping)

    async def run(self, events: list[tuple[str, str]], first: str | None) -> None:
        """Send the events that the client has missed, then `first`, then those that follow, until the end."""
        try:
            async with self._turn:
                for id, data in events:
                    await self._write(event_text(id=id, event="message", data=data))
                if first is not None:
                    await self._write(first)
            await self._over
        finally:
            self.end()
            self._alarms.cancel(self._alarm)

    async def send(self, event: EventMessage) -> None:
        """Send an event, after those before it; waits while the client reads slowly."""
        async with self._turn:
            if not self._over.done():
                await self._write(event_text(id=event.event_id, event="message", data=json_of(event.message)))

    def end(self) -> None:
        """End the stream."""
        if not self._over.done():
            self._over.set_result(None)

    def close(self) -> None:
        """Do the same as `end`, under the name that the SDK calls."""
        self.end()

    async def aclose(self) -> None:
        """Do the same as `end`, under the name that the SDK awaits."""
        self.end()

    async def _write(self, text: str) -> None:
        self._alarms.cancel(self._alarm)
        self._writer.send(self._encode(text.encode()))
        self._alarm = self._alarms.set(self._ping)
        await self._writer.drain()

    def _ping(self) -> None:
        self._writer.send(self._encode(ping_text().encode()))
        self._alarm = self._alarms.set(self._ping)


def priming_event(events: SessionEvents, version: str, retry: int | None) -> str | None:
    """Return the event that begins a stream, with an id to resume after; None for clients that do not know it."""
    if not is_version_at_least(version, PRIMED):
        return None
    fields: dict[str, object] = {"id": events.keep(GET_STREAM_KEY, None), "data": ""}
    return event_text(**fields, **({"retry": retry} if retry is not None else {}))


Notification: TypeAlias = tuple[str, Mapping[str, Any] | None]
"""Method and parameters of a notification."""

CHANNEL: Final = "webmcp-gateway.channel"
"""The scope key of the channel of a request's session."""


@dataclass(frozen=True, slots=True)
class SessionChannel:
    """Sends a session notifications that belong to no request, whether it rests or not.

    `announce` sends one, `spawn` starts a task.
    """

    announce: Callable[[str, Mapping[str, Any] | None], Awaitable[None]]
    spawn: Callable[[Callable[[], Coroutine[Any, Any, None]]], None]

    def announcer(self, take: Callable[[], Notification | None]) -> Callable[[], None]:
        """Return a callback that sends what `take` returns, until None, in a task that lives only while it sends."""
        return _Announcer(self, take).announce


class _Announcer:
    __slots__ = ("_channel", "_sending", "_take")

    def __init__(self, channel: SessionChannel, take: Callable[[], Notification | None]) -> None:
        self._channel = channel
        self._take = take
        self._sending = False

    def announce(self) -> None:
        """Send what there is; must not block."""
        if not self._sending:  # otherwise that task takes it
            with suppress(RuntimeError):  # the mount is ending
                self._channel.spawn(self._send)
                self._sending = True

    async def _send(self) -> None:
        try:
            while (notification := self._take()) is not None:
                await self._channel.announce(*notification)
        except Exception:  # the task group serves all sessions
            log.exception("a notification was not sent")
        finally:
            self._sending = False


def channel_of(request: Request | None) -> SessionChannel | None:
    """Return the channel of the session that `request` belongs to, if there is one."""
    return cast("SessionChannel | None", request.scope.get(CHANNEL)) if request is not None else None


INTERVAL = 1.0
"""Seconds between two notifications to the same principal's listeners."""


class Timers(Protocol):
    """The clock and timers of asyncio's event loops, as much as is needed here."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[[], None], /) -> object: ...


@dataclass(slots=True)
class _Feed:
    """One principal's listeners and tools, the time of the last notification, and whether a timer awaits the next."""

    has: object
    listeners: dict[object, Callable[[], None]] = field(default_factory=dict)
    told_at: float = float("-inf")
    waits: bool = False


class Changes:
    """The listeners of every principal; `tools` returns a principal's tools. Without listeners nothing is stored."""

    def __init__(
        self, tools: Callable[[Principal], object], interval: float = INTERVAL, timers: Timers | None = None
    ) -> None:
        self._tools = tools
        self._interval = interval
        self._timers = timers
        self._feeds: dict[str, _Feed] = {}

    def listen(self, principal: Principal, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after each change of the principal's tools; the result unsubscribes."""
        feed = self._feeds.get(principal.id)
        if feed is None:
            feed = self._feeds[principal.id] = _Feed(self._tools(principal))
        key = object()
        feed.listeners[key] = listener

        def stop() -> None:
            feed.listeners.pop(key, None)
            if not feed.listeners and self._feeds.get(principal.id) is feed:
                del self._feeds[principal.id]

        return stop

    def note_change(self, principal: Principal) -> None:
        """Notify the listeners of `principal` if its tools changed.
        A view that opens has none yet: a notification then would delay that of the tools that its page registers next.
        """
        feed = self._feeds.get(principal.id)
        if feed is not None and feed.has != (has := self._tools(principal)):
            feed.has = has
            self._notify_feed(feed)

    def changed_for(self, principal: Principal) -> None:
        """Notify the listeners of `principal`."""
        feed = self._feeds.get(principal.id)
        if feed is not None:
            feed.has = self._tools(principal)
            self._notify_feed(feed)

    def changed_for_all(self) -> None:
        """Notify the listeners of every principal."""
        for feed in list(self._feeds.values()):
            self._notify_feed(feed)

    def _notify_feed(self, feed: _Feed) -> None:
        if feed.waits:
            return
        timers = self._timers or asyncio.get_running_loop()
        due = feed.told_at + self._interval
        if timers.time() >= due:
            _tell(feed, timers.time())
        else:
            feed.waits = True
            timers.call_at(due, lambda: _tell(feed, due))


def _tell(feed: _Feed, now: float) -> None:
    feed.waits = False
    feed.told_at = now
    for listener in list(feed.listeners.values()):
        listener()
