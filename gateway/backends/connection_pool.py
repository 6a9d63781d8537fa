"""A connection pool per origin, for plain requests one after the other, without the overhead of a general client."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Final, cast

from gateway.backends.connect import CONNECTIONS_PER_HOST, KEEP_ALIVE_SECONDS, Connections, Network, Origin
from gateway.backends.http1 import RETRIED, ConnectionLost, MalformedResponse, ResponseReader
from gateway.errors import Reason, Refusal
from gateway.eventloop.fair_share import RoundRobin
from gateway.eventloop.immediate_future import ImmediateFuture
from gateway.eventloop.shared_timeouts import SharedTimeouts

WRITE_BYTES: Final = 256 * 1024
"""Bytes of a request's body that are written at once; a longer one is sent in pieces, with backpressure."""

DISCARD_SECONDS: Final = 2.0
"""Seconds to read the rest of a response that is not needed, to reuse the connection."""


TIMEOUTS: Final = 16
"""Different timeouts with a shared timer; others have one each."""


class ConnectionPool:
    """The connection pool of one origin, with at most `size` connections to addresses that `network` allows.

    `name` is the origin's name in messages.
    """

    def __init__(
        self,
        connections: Connections,
        network: Network,
        origin: Origin,
        name: str,
        tls: ssl.SSLContext | None = None,
        size: int = CONNECTIONS_PER_HOST,
    ) -> None:
        self._connections = connections
        self._network = network
        self._origin = origin
        self._name = name
        self._tls = tls
        self._idle: list[_Connection] = []
        self._free = self._size = size
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._sweep: asyncio.TimerHandle | None = None
        self._timeouts: dict[float, SharedTimeouts] = {}
        # Cached: before Python 3.12, getting the loop costs a system call for the process id.
        self._loop = asyncio.get_running_loop()

    async def fetch(self, method: str, data: bytes, limit: int, timeout: float, body: bytes = b"") -> ResponseReader:
        """Return the complete response to the request with the head `data`. `timeout` is in seconds, for all of it.

        A safe request is repeated once if its connection proves to be closed (RFC 9110 9.2.2).
        """
        ends = time.monotonic() + timeout
        if self._free:
            self._free -= 1
            timeouts = self._shared_timeout(timeout)  # only for a request whose time begins now
        else:
            await self._acquire()
            timeouts = None
        attempts = 2 if method in RETRIED else 1
        try:
            while True:
                connection = self._pop_idle()
                if connection is None:
                    connection, timeouts = await self._connect(ends), None
                reading = ResponseReader(method, limit)
                try:
                    await connection.exchange(data, body, reading, ends, timeouts, alone=self._free == self._size - 1)
                    return reading
                except ConnectionLost as error:
                    attempts -= 1
                    if not attempts:
                        raise self._no_answer() from error
                    timeouts = None
                except MalformedResponse as error:
                    detail = f"backend {self._name!r} broke off, or answered with something that is not HTTP: {error}"
                    raise Refusal(Reason.BACKEND_PROTOCOL, detail) from error
                finally:
                    self._put_back(connection)
        finally:
            self._release()

    async def send(self, data: bytes, reading: ResponseReader, body: bytes = b"") -> None:
        """Send the request with the head `data`; `reading` takes the response, completely or until it has enough.

        The caller sets a timeout. Raises `Refusal` without a connection, `ConnectionLost` without a response, and
        `MalformedResponse`.
        """
        if self._free:
            self._free -= 1
        else:
            await self._acquire()
        try:
            connection = self._pop_idle() or await self._connect(None)
            try:
                await connection.exchange(data, body, reading, None, alone=self._free == self._size - 1)
            finally:
                self._put_back(connection)
        finally:
            self._release()

    def close(self) -> None:
        """Close idle connections."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for connection in self._idle:
            connection.abort()
        self._idle.clear()

    async def _acquire(self) -> None:
        """Wait for a place of another request, in FIFO order."""
        waiter = self._loop.create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                self._release()  # it had one already
            raise

    def _release(self) -> None:
        """Release a place."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1

    def _shared_timeout(self, timeout: float) -> SharedTimeouts | None:
        group = self._timeouts.get(timeout)
        if group is None and len(self._timeouts) < TIMEOUTS:
            group = self._timeouts[timeout] = SharedTimeouts(timeout)
        return group

    def _put_back(self, connection: _Connection) -> None:
        if connection.usable:
            self._add_idle(connection)
        elif connection.ends_soon:
            connection.finish(self._add_idle, DISCARD_SECONDS)
        else:
            connection.abort()

    def _pop_idle(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        return None

    def _add_idle(self, connection: _Connection) -> None:
        connection.since = time.monotonic()
        self._idle.append(connection)
        if self._sweep is None:
            self._sweep = self._loop.call_later(KEEP_ALIVE_SECONDS, self._close_expired)

    def _close_expired(self) -> None:
        old = time.monotonic() - KEEP_ALIVE_SECONDS
        for connection in self._idle:
            if connection.since <= old:
                connection.abort()
        self._idle = [connection for connection in self._idle if connection.usable]
        self._sweep = self._loop.call_later(KEEP_ALIVE_SECONDS, self._close_expired) if self._idle else None

    async def _connect(self, ends: float | None) -> _Connection:
        async with asyncio.timeout(None if ends is None else ends - time.monotonic()):
            connection = partial(_Connection, self._connections.in_turn)
            return await self._connections.dial(self._network, self._origin, connection, self._tls)

    def _no_answer(self) -> Refusal:
        detail = f"{self._origin.authority} closed the connection without an answer"
        return Refusal(Reason.BACKEND_UNREACHABLE, detail)


class _Connection(asyncio.Protocol):
    """One connection, with at most one request in flight. `since` is when it became idle."""

    def __init__(self, in_turn: RoundRobin, on_end: Callable[[asyncio.Protocol], None]) -> None:
        self.since = 0.0
        self._in_turn = in_turn
        self._loop = asyncio.get_running_loop()
        self._on_end = on_end
        self._transport: asyncio.Transport | None = None
        self._reading: ResponseReader | None = None
        self._waiter: asyncio.Future[None] | ImmediateFuture[None] | None = None
        self._healthy = True
        self._rest: ResponseReader | None = None
        self._on_finished: Callable[[_Connection], None] | None = None
        self._discard_timer: asyncio.TimerHandle | None = None
        self._at_end: Callable[[], None] | None = None
        self._writable: asyncio.Future[None] | None = None
        """Set while the write buffer is full; done once the backend has read from it."""

    @property
    def usable(self) -> bool:
        """True if it can carry a request."""
        return self._healthy and self._reading is None and self._rest is None

    @property
    def ends_soon(self) -> bool:
        """True if only an unneeded rest of a response is outstanding."""
        return self._healthy and self._rest is not None

    def finish(self, on_finish: Callable[[_Connection], None], seconds: float) -> None:
        """Read the rest, and call `on_finish` if the connection can carry another request then."""
        self._on_finished = on_finish
        self._discard_timer = self._loop.call_later(seconds, self.abort)

    async def exchange(
        self,
        data: bytes,
        body: bytes,
        reading: ResponseReader,
        ends: float | None,
        timeouts: SharedTimeouts | None = None,
        *,
        alone: bool = False,
    ) -> None:
        """Send `data` and `body`, and read the response.

        Raises TimeoutError, `ConnectionLost`, and what `Reading` raises.

        If `alone`, the task resumes as soon as the response has arrived. Beside others, each step runs in an iteration
        of the event loop for all of them, which costs less through locality.
        """
        long = len(body) > WRITE_BYTES
        future = None if alone and not long else self._loop.create_future()
        waiter: asyncio.Future[None] | ImmediateFuture[None] = future or ImmediateFuture(self._loop)
        self._waiter = waiter
        self._reading = reading
        timeout_key, timer = 0, None
        try:
            if self._transport is None or self._transport.is_closing():
                raise ConnectionLost
            self._transport.write(data if long or not body else data + body)
            if timeouts is not None:  # now the backend is working
                timeout_key = timeouts.set(self._time_out)
            elif ends is not None:
                timer = self._loop.call_later(ends - time.monotonic(), self._time_out)
            if future is not None and long:
                await self._write(self._transport, body, future)
            await waiter
        except BaseException:  # also if cancelled: the rest of the response may still arrive
            self._healthy = False
            raise
        finally:
            if timeouts is not None:
                timeouts.cancel(timeout_key)
            elif timer is not None:
                timer.cancel()
            self._reading = self._waiter = None
        self._healthy = self._healthy and reading.reusable
        if reading.enough and not reading.complete:
            self._rest = reading

    async def _write(self, transport: asyncio.Transport, body: bytes, answer: asyncio.Future[None]) -> None:
        """Write a long body until `answer` is done: a backend may respond before it has read everything."""
        rest = memoryview(body)
        while rest and not answer.done():
            transport.write(rest[:WRITE_BYTES])
            rest = rest[WRITE_BYTES:]
            if self._writable is not None:
                await asyncio.wait({self._writable, answer}, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(0)
        if rest:
            self._healthy = False

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def _time_out(self) -> None:
        self._fail(TimeoutError())

    def abort(self) -> None:
        """Close the connection now."""
        self._healthy = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._rest is not None:
            self._discard(self._rest, data)
            return
        reading = self._reading
        if reading is None or self._waiter is None:
            self.abort()  # unsolicited data
            return
        if self._waiter.done() and not reading.enough:
            self.abort()
            return
        began = perf_counter()
        try:
            complete = reading.feed(data)
        except (MalformedResponse, Refusal) as error:
            self._fail(error)
            return
        if (complete or reading.enough) and not self._waiter.done():
            self._waiter.set_result(None)
        if not complete and reading.paused:
            self._pause(reading, perf_counter() - began)

    def _pause(self, reading: ResponseReader, work_seconds: float) -> None:
        """Pause reading of the connection until `reading`, which worked for so many seconds, may continue."""
        if self._transport is not None:
            self._transport.pause_reading()
        if reading.until is None:
            self._in_turn.add(partial(self._resume, reading), work_seconds)
        else:
            reading.until.add_done_callback(lambda _: self._resume(reading))

    def _resume(self, reading: ResponseReader) -> None:
        if reading not in (self._reading, self._rest) or self._transport is None:
            return
        reading.resume()
        self.data_received(b"")
        if not reading.paused:
            self._transport.resume_reading()
            if self._at_end is not None:
                self._at_end()

    def _discard(self, rest: ResponseReader, data: bytes) -> None:
        began = perf_counter()
        try:
            complete = rest.feed(data)
        except (MalformedResponse, Refusal):
            self.abort()
            return
        if rest.paused:
            self._pause(rest, perf_counter() - began)
        if complete:
            self._rest = None
            self._healthy = self._healthy and rest.reusable
            if self._discard_timer is not None:
                self._discard_timer.cancel()
            if self._on_finished is not None and self._healthy:
                self._on_finished(self)
            else:
                self.abort()

    def eof_received(self) -> None:
        self._healthy = False

    def connection_lost(self, exc: Exception | None) -> None:
        self._healthy = False
        self._on_end(self)
        if self._reading is not None and self._reading.paused:
            self._at_end = partial(self._end, exc)  # data that arrived before is parsed first
        else:
            self._end(exc)

    def _end(self, exc: Exception | None) -> None:
        reading, waiter = self._reading, self._waiter
        if reading is None or waiter is None or waiter.done():
            return
        try:
            whole = exc is None and reading.eof()
        except MalformedResponse as error:
            self._fail(error)
            return
        if whole:
            waiter.set_result(None)
        elif reading.begun:
            self._fail(MalformedResponse("it ended in the middle of its answer"))
        else:
            self._fail(ConnectionLost())

    def _fail(self, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
