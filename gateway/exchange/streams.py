"""Answers that are sent in parts while they arrive; callers that poll get them part by part, read ahead by one."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self, TypeAlias

from msgspec.structs import replace

from gateway.bounds import Area, Bound, size
from gateway.contract import problem, whole_characters
from gateway.errors import STATUS, Reason, Refusal
from gateway.exchange.drain import RunningCalls
from gateway.exchange.record import Record
from gateway.model import Caller, Door, Part, Response

log = logging.getLogger(__name__)


def internal_error() -> Refusal:
    """Return the refusal for an unexpected error."""
    return Refusal(Reason.INTERNAL, "The gateway failed at this request; its log says why.")


class Stream:
    """A streamed answer. `head` has no body; iterate for its parts, and close it, which discards what has not arrived.

    Iterating raises `Refusal` if the rest does not arrive.
    """

    is_socket = False
    """True for an open WebSocket."""

    def __init__(
        self,
        head: Response,
        parts: AsyncIterator[bytes],
        record: Record,
        stack: AsyncExitStack,
        running: RunningCalls | None = None,
    ) -> None:
        self.head = head
        self.name = ""
        self._running = running or RunningCalls()
        self.id = record.id
        self._parts = parts
        self._record = record
        self._stack = stack
        self._size = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        endless = self.head.says_by_and_by()
        try:
            with self._running.stream(endless=endless), self._running.refusing_cuts:
                part = await anext(self._parts)
        except StopAsyncIteration:
            await self._end(self.head.status)
            raise
        except Refusal as refusal:
            await self._end(refusal.status, refusal.reason, refusal.detail)
            if endless and refusal.reason is Reason.STOPPING:  # an event stream may end at any time: clients come again
                raise StopAsyncIteration from refusal
            raise
        except asyncio.CancelledError:
            await self.aclose()
            raise
        except (Exception, SystemExit) as error:  # a plugin's backend may raise anything: it ends this stream alone
            log.exception("the stream of %s failed", self.id)
            fault = internal_error()
            await self._end(fault.status, fault.reason, fault.detail)
            raise fault from error
        self._size += len(part)
        return part

    async def aclose(self) -> None:
        """End the stream now, if it has not ended: cancel the backend's request, and record that."""
        await self._end(STATUS[Reason.CANCELLED], Reason.CANCELLED)

    async def _end(self, status: int, reason: Reason | None = None, detail: str | None = None) -> None:
        async with self._stack:
            self._record.mark("stream")
            self._record.note(response_size=self._size)
            await self._record.close(status=status, reason=reason, detail=detail)


LONGEST_CHARACTER: Final = 4
"""Bytes of the longest character in UTF-8."""

PART: Final = 128 * 1024
"""Bytes of the largest part."""

BESIDE: Final = 1024 * 1024
"""Bytes of a part on the bridge when it is named, where parts travel beside the messages and delay none of them."""

OPEN_BYTES: Final = 4 * 1024 * 1024
"""Bytes after which such a part ends, which grows while it is sent."""

OPEN_SECONDS: Final = 0.05
"""Seconds after which it ends: the page has it only then."""

BEHIND: Final = 0.02
"""Seconds that a head waits for the end of its body, and an incomplete character for its rest.

A complete answer then needs no second call.
"""

AT_ONCE: Final = 0.005
"""Seconds without a byte after which a part ends that is sent while it arrives."""

WITH_HEAD: Final = 0.005
"""Seconds that the head of an event stream waits for the end: the page must not see a stream open that has ended."""

PER_VIEW: Final = 48
"""Streams that one view may have open; without a view, each principal in each app.

On the bridge each is a call in flight: some of the 64 of a view must be left for others.
"""

PER_PERSON: Final = 256
"""Streams that one person may have open, in all clients, views and apps."""

IN_ALL: Final = 2048
"""Streams that may be open in total: each has a connection to its backend, which no pool bounds."""

SILENCE: Final = 60.0
"""Seconds without a poll after which a caller is considered gone."""

BOUNDS: Final = (
    Bound(
        Area.EXCHANGE,
        "streamed responses",
        f"{PER_VIEW} per view, {PER_PERSON} per person, {IN_ALL:,} in all; {size(PART)} read ahead, "
        f"{size(BESIDE)} over the bridge, where a part has up to {size(OPEN_BYTES)}; {SILENCE:g} s between reads",
        "`rate-limited`, or a buffered response; a stream that is not read is closed",
    ),
)

(_STREAMS,) = BOUNDS

PREFIX: Final = "stream-"
"""The prefix of a stream's id."""

SOCKET: Final = "socket-"
"""The prefix of the id of a WebSocket, by which host pages tell its calls from others."""


_BOUNDS: Final = (
    (PER_VIEW, "this view are open already. Close one of them"),
    (PER_PERSON, "this person are open already. Close one of them"),
    (IN_ALL, "all callers are open already. Try again later"),
)

_Key: TypeAlias = tuple[str | None, ...]
"""A view with its app and principal, a person, or the empty key for all callers."""


@dataclass(slots=True, eq=False)
class _OpenStream:
    """One stream: the bytes that were read ahead, and how it ended."""

    stream: Stream
    caller: Caller
    asked_at: float
    task: asyncio.Task[None] = field(init=False)
    buffer: bytearray = field(default_factory=bytearray)
    ended: bool = False
    released: bool = False
    failure: Refusal | None = None
    holding: int = 0
    demand: asyncio.Event = field(default_factory=asyncio.Event)
    progress: asyncio.Event = field(default_factory=asyncio.Event)
    room: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def size(self) -> int:
        """Bytes of the largest part."""
        return BESIDE if self.caller.door is Door.BRIDGE else PART

    async def put(self, part: bytes) -> None:
        """Add bytes that were read; wait while a whole part is buffered (backpressure)."""
        self.buffer += part
        self.progress.set()
        while len(self.buffer) >= self.size:
            self.room.clear()
            await self.room.wait()

    def end(self) -> None:
        """Mark the end of reading."""
        self.ended = True
        self.progress.set()

    async def change(self) -> None:
        """Wait until bytes were read, or the stream ended."""
        self.progress.clear()
        await self.progress.wait()

    def ready(self) -> bool:
        """Return whether the buffer holds a whole character, or the stream ended."""
        return self.ended or whole_characters(self.buffer) > 0

    def has_bytes(self) -> bool:
        """Return whether there is something to send, if a piece of a character counts (not in event streams)."""
        return self.ended or (len(self.buffer) > 0 and not self.stream.head.says_by_and_by())

    def take(self) -> bytes:
        """Return the next part, cut between two characters, unless it is only a piece of one."""
        size = min(len(self.buffer), self.size)
        if not self.ended or size < len(self.buffer):
            start = max(0, size - LONGEST_CHARACTER)
            cut = start + whole_characters(self.buffer[start:size])
            size = cut if cut or self.stream.head.says_by_and_by() else size
        body = bytes(memoryview(self.buffer)[:size])
        del self.buffer[:size]
        self.room.set()
        return body


class Streams:
    """The open streams of a gateway; an async context manager. `clock` is steady, in seconds, `new_id` makes ids."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        new_id: Callable[[], str] = lambda: secrets.token_urlsafe(16),
    ) -> None:
        self._clock = clock
        self._new_id = new_id
        self._open: dict[str, _OpenStream] = {}
        self._counts: Counter[_Key] = Counter()
        self._tasks = asyncio.TaskGroup()
        self._sweeping: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._sweeping = self._tasks.create_task(self._keep())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._forget(list(self._open))
        if self._sweeping is not None:
            self._sweeping.cancel()
        await self._tasks.__aexit__(kind, error, trace)

    @property
    def count(self) -> int:
        """The number of open streams."""
        return self._counts[()]

    @contextmanager
    def place(self, caller: Caller) -> Iterator[None]:
        """Reserve one of the open streams of `caller`. Raises `Refusal` (`rate-limited`) if all are taken."""
        keys: tuple[_Key, ...] = (_who(caller), (caller.principal.person,), ())
        for key, (bound, whose) in zip(keys, _BOUNDS, strict=True):
            if self._counts[key] >= bound:
                _STREAMS.report(caller.principal.id)
                raise Refusal(Reason.RATE_LIMITED, f"{bound} streams of {whose}.")
        self._counts.update(keys)
        try:
            yield
        finally:
            for key in keys:
                self._counts[key] -= 1
                if not self._counts[key]:
                    del self._counts[key]

    async def begin(self, stream: Stream, caller: Caller) -> Response:
        """Return the head with the first part of the body; the complete answer, if its end follows at once.

        That is within `BEHIND`, or `WITH_HEAD` for a body whose parts are independent, such as an event stream. A
        WebSocket begins with its head alone.
        """
        id, open_stream = self._add(stream, caller)
        open_stream.demand.set()
        try:
            await asyncio.sleep(0)  # let the task begin: a task that is cancelled before would not close its stream
            if stream.is_socket:
                return replace(stream.head, part=Part(id, last=False))
            with suppress(TimeoutError):
                async with asyncio.timeout(WITH_HEAD if stream.head.says_by_and_by() else BEHIND):
                    while not open_stream.ended and len(open_stream.buffer) < open_stream.size:
                        await open_stream.change()
        except asyncio.CancelledError:
            await self._end(id)
            raise
        if open_stream.failure is None and open_stream.ended and len(open_stream.buffer) <= open_stream.size:
            await self._end(id)
            return replace(stream.head, body=bytes(open_stream.buffer))
        # The page then waits for a part in a call, and hears of the end at once. If a body fails, its head has arrived.
        if stream.head.says_by_and_by() or (open_stream.failure is not None and not open_stream.buffer):
            return replace(stream.head, part=Part(id, last=False))
        return await self._part(id, open_stream)

    def keep(self, stream: Stream, caller: Caller) -> Response:
        """Return the head of a stream before its first read: `next` begins, or `release` takes it out."""
        id, _ = self._add(stream, caller)
        return replace(stream.head, part=Part(id, last=False))

    def release(self, head: Response) -> Stream | None:
        """Return the stream of a head that `keep` returned, for a caller that reads and closes it itself."""
        open_stream = self._open.pop(head.part.stream, None) if head.part is not None else None
        if open_stream is None:
            return None
        open_stream.released = True
        open_stream.task.cancel()
        return open_stream.stream

    def find(self, id: str, caller: Caller) -> Stream | None:
        """Return an open stream of `caller`."""
        open_stream = self._open.get(id)
        return open_stream.stream if open_stream is not None and _who(open_stream.caller) == _who(caller) else None

    def _add(self, stream: Stream, caller: Caller) -> tuple[str, _OpenStream]:
        open_stream = _OpenStream(stream, caller, self._clock())
        id = (SOCKET if stream.is_socket else PREFIX) + self._new_id()
        self._open[id] = open_stream
        stream.name = id
        open_stream.task = self._tasks.create_task(self._read(open_stream))
        return id, open_stream

    async def next(self, id: str, caller: Caller, *, wait: float, cancel: bool = False) -> Response:
        """Return the next part, empty if none arrives within `wait` seconds; `cancel` ends the stream.

        The last answer is the error that ended it early, if any. Raises `Refusal` (`connection-lost`) for a stream that
        is not open, or not this caller's.
        """
        open_stream = self._open.get(id)
        if open_stream is None or _who(open_stream.caller) != _who(caller):
            raise Refusal(Reason.CONNECTION_LOST, "This stream is not open any more.")
        if cancel:
            await self._end(id)
            return replace(open_stream.stream.head, part=Part(id, last=True))
        open_stream.demand.set()
        open_stream.holding += 1
        try:
            async with asyncio.timeout(wait):
                while not open_stream.ready() and not open_stream.has_bytes():
                    await open_stream.change()
                with suppress(TimeoutError):
                    async with asyncio.timeout(BEHIND):
                        while not open_stream.ready():
                            await open_stream.change()
        except TimeoutError:
            pass  # the part that is returned then is empty, or a piece of a character
        finally:
            open_stream.holding -= 1
            open_stream.asked_at = self._clock()
        return await self._part(id, open_stream)

    async def more(self, id: str, caller: Caller) -> bytes:
        """Return the next bytes if they arrive within `AT_ONCE` seconds; nothing at the end, which `next` reports."""
        open_stream = self._open.get(id)
        if open_stream is None or _who(open_stream.caller) != _who(caller):
            return b""
        open_stream.holding += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(AT_ONCE):
                    while not open_stream.buffer and not open_stream.ended:
                        await open_stream.change()
        finally:
            open_stream.holding -= 1
            open_stream.asked_at = self._clock()
        return open_stream.take()

    def has_view(self, view: str) -> bool:
        """Return whether a view has open streams."""
        return any(one.caller.view == view for one in self._open.values())

    def cancel_view(self, view: str) -> None:
        """End the streams of a view that has closed."""
        self._forget([id for id, open_stream in self._open.items() if open_stream.caller.view == view])

    def sweep(self) -> None:
        """End the streams that are no longer polled."""
        silent = self._clock() - SILENCE
        self._forget(
            [id for id, open_stream in self._open.items() if not open_stream.holding and open_stream.asked_at < silent]
        )

    def _forget(self, ids: Sequence[str]) -> None:
        for id in ids:
            self._open.pop(id).task.cancel()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(SILENCE / 10)
            self.sweep()

    async def _read(self, open_stream: _OpenStream) -> None:
        """Read ahead as far as there is room."""
        try:
            await open_stream.demand.wait()
            async for part in open_stream.stream:
                await open_stream.put(part)
        except Refusal as refusal:
            open_stream.failure = refusal
        except (Exception, SystemExit):  # a plugin's backend may raise anything: it ends this stream alone
            log.exception("a stream failed")
            open_stream.failure = internal_error()
        finally:
            open_stream.end()
            if not open_stream.released:
                await _close_stream(open_stream.stream)

    async def _part(self, id: str, open_stream: _OpenStream) -> Response:
        """Return the buffered part; after the last one, the error that broke the stream, if any."""
        body = open_stream.take()
        head = open_stream.stream.head
        if not open_stream.ended or open_stream.buffer or (open_stream.failure is not None and body):
            return replace(head, body=body, part=Part(id, last=False))
        await self._end(id)
        if open_stream.failure is not None:
            return problem(open_stream.failure, open_stream.stream.id, head.url)
        return replace(head, body=body, part=Part(id, last=True))

    async def _end(self, id: str) -> None:
        """Delete a stream; its backend request is cancelled when this returns."""
        open_stream = self._open.pop(id, None)
        if open_stream is not None:
            open_stream.task.cancel()
            await asyncio.wait([open_stream.task])
            await _close_stream(open_stream.stream)


async def _close_stream(stream: Stream) -> None:
    try:
        await stream.aclose()
    except (Exception, SystemExit):  # a plugin's backend again: no caller waits for this answer any more
        log.exception("a stream did not close well")


def _who(caller: Caller) -> tuple[str, str, str | None]:
    return (caller.principal.id, caller.app, caller.view)
