"""One HTTP answer of an upstream: the events of a stream are processed as they come, up to the answer to a request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import chain
from time import perf_counter
from typing import Final

from gateway.backends.body import Body
from gateway.backends.http1 import BodyReader, ResponseReader
from gateway.event_stream import Event, EventReader
from gateway.eventloop.fair_share import Moments
from gateway.jsontext.messages import LONG, decode, read
from gateway.mcp.upstreams.catalog.listing import LISTS
from gateway.mcp.upstreams.transport.conversation import Receive, UpstreamLost, is_answer
from gateway.mcp.upstreams.transport.credentials import Credentials
from gateway.mcp.upstreams.transport.unreadable import Unreadable

EVENTS: Final = "text/event-stream"

RETRY = 1.0
"""Seconds before a stream is resumed if the server names no `retry`."""

SHORTEST_RETRY, LONGEST_RETRY = 0.05, 60.0
"""Limits on the server's `retry`: one that ends each stream at once must not cause a busy loop."""


class StreamPosition:
    """The read position in a stream, across its connections; `retry` is in seconds.
    `tries` limits consecutive failed attempts to resume it; None for one whose answer is awaited.
    """

    def __init__(self, related: int | None, tries: int | None = None) -> None:
        self.related = related
        self.tries = tries
        self.last: str | None = None
        self.retry = RETRY
        self.answered = False

    def answers(self, message: object) -> bool:
        """Whether `message` is the answer that the stream was opened for."""
        if isinstance(message, dict) and "method" not in message and is_answer(message, self.related):
            self.answered = True
        return self.answered


class HttpAnswer:
    """One answer: the events of a stream are processed as they come, any other body is kept. `failed` is the fault.
    `other` receives events that are no messages. With it, invalid JSON becomes `Unreadable`; without it, an error.
    """

    def __init__(
        self,
        method: str,
        limit: int,
        stream: StreamPosition,
        take: Receive,
        credentials: Credentials,
        moments: Moments,
        other: Callable[[Event], None] | None = None,
    ) -> None:
        self.reading = ResponseReader(method, limit, self._open_body)
        self.failed: UpstreamLost | None = None
        self._slow: asyncio.Task[None] | None = None
        self._limit = limit
        self._stream = stream
        self._take = take
        self._credentials = credentials
        self._moments = moments
        self._other = other

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.reading.head.status

    @property
    def kind(self) -> str:
        """The media type, in lower case and without parameters."""
        return (self.header("content-type") or "").partition(";")[0].strip().lower()

    def header(self, name: str) -> str | None:
        """Return the first value of a field."""
        return next((value for known, value in self.reading.head.headers if known == name), None)

    @property
    def resumable(self) -> bool:
        """Whether it is a stream that can be resumed where it broke."""
        return self.status == 200 and self.kind == EVENTS and self._stream.last is not None

    async def message(self) -> object:
        """Return the body's JSON value. Raises ValueError."""
        with self._credentials.hiding() as echo:
            return await read(self.reading.body(), self._moments, LISTS, echo)

    def _open_body(self, reading: ResponseReader, coding: str) -> BodyReader:
        if reading.head.status != 200 or self.kind != EVENTS or coding.lower() not in ("", "identity"):
            return Body(coding, self._limit)
        return _Events(self, EventReader(self._limit))

    async def ended(self) -> None:
        """Wait until everything received is processed."""
        if self._slow is not None:
            await self._slow

    def close(self) -> None:
        """Cancel the processing."""
        if self._slow is not None:
            self._slow.cancel()

    def events(self, reader: EventReader, data: bytes) -> None:
        """Process the events in `data`, up to the answer; longer work is deferred to scheduled turns."""
        events, began = reader.feed(data), perf_counter()
        try:
            for event in events:
                if event is not None and len(event.data) > LONG:
                    self._hold(chain([event], events))
                    return
                if event is not None and self._is_message(event) and self._heard(self._decoded(event), event):
                    began = perf_counter()
                if self.reading.enough:
                    return
                if self._moments.worked(perf_counter() - began):
                    self._hold(events)
                    return
                began = perf_counter()
        except (ValueError, UpstreamLost) as error:
            self._fail(error)

    def _hold(self, events: Iterator[Event | None]) -> None:
        self._slow = asyncio.ensure_future(self._slowly(events))
        self.reading.paused, self.reading.until = True, self._slow

    async def _slowly(self, events: Iterator[Event | None]) -> None:
        """Process further events in turns; long ones are parsed in pieces, and the stream is not read meanwhile."""
        began = perf_counter()
        try:
            for event in chain([None], events):
                if event is not None and self._is_message(event):
                    message = self._decoded(event) if len(event.data) <= LONG else await self._long(event)
                    if self._heard(message, event):
                        began = perf_counter()
                if self.reading.enough:
                    return
                await self._moments.done(perf_counter() - began)
                began = perf_counter()
        except (ValueError, UpstreamLost) as error:
            self._fail(error)

    def _is_message(self, event: Event) -> bool:
        stream = self._stream
        stream.last = event.id or stream.last
        if event.retry is not None:
            stream.retry = max(SHORTEST_RETRY, min(event.retry / 1000, LONGEST_RETRY))
        if self._other is not None and event.type != "message":
            self._other(event)
        return event.type == "message" and event.data != b""

    def _decoded(self, event: Event) -> object:
        with self._credentials.hiding() as echo:
            try:
                return decode(echo.whole(bytes(event.data)))
            except ValueError as error:
                return self._unreadable(event, error)

    async def _long(self, event: Event) -> object:
        with self._credentials.hiding() as echo:
            try:
                return await read(event.data, self._moments, LISTS, echo)
            except ValueError as error:
                return self._unreadable(event, error)

    def _unreadable(self, event: Event, error: ValueError) -> Unreadable:
        if self._other is None:
            raise error
        return Unreadable.of(event.data, error)

    def _heard(self, message: object, event: Event) -> bool:
        awaited = self._take(message, self._stream.related, len(event.data))
        if self._stream.answers(message):
            self.reading.enough = True
        return awaited

    def _fail(self, error: ValueError | UpstreamLost) -> None:
        self.failed = error if isinstance(error, UpstreamLost) else UpstreamLost(f"the upstream sent {error}")
        self.reading.enough, self.reading.reusable = True, False


class _Events:
    """Receives a body that is a stream of events."""

    def __init__(self, answer: HttpAnswer, reader: EventReader) -> None:
        self._answer = answer
        self._reader = reader

    def feed(self, data: bytes) -> None:
        if not self._answer.reading.enough:
            self._answer.events(self._reader, data)

    def close(self) -> bytes:
        return b""
