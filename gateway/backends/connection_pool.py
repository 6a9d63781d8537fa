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
from gateway.backends.http1 import Malformed, ResponseReader
from gateway.errors import Reason, Refusal
from gateway.eventloop.fair_share import InTurn
from gateway.eventloop.immediate_future import Arrival
from gateway.eventloop.shared_timeouts import Alarms

RETRIED: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that are repeated once if the connection proves to be closed (RFC 9110 9.2.2)."""

WHOLE: Final = 256 * 1024
"""Bytes of a request's body that are written at once; a longer one is sent in pieces, with backpressure."""

REST: Final = 2.0
"""Seconds to read the rest of a response that is not needed, to reuse the connection."""


TIMEOUTS: Final = 16
"""Different timeouts with a shared timer; others have one each."""


class Lost(ConnectionError):
    """The connection ended before any byte of a response."""


class Wires:
    """The connection pool of one origin, with at most `places` connections to addresses that `network` allows.

    `name` is the origin's name in messages.
    """

    def __init__(
        self,
        connections: Connections,
        network: Network,
        origin: Origin,
        name: str,
        tls: ssl.SSLContext | None = None,
        places: int = CONNECTIONS_PER_HOST,
    ) -> None:
        self._connections = connections
        self._network = network
        self._origin = origin
        self._name = name
        self._tls = tls
        self._idle: list[_Wire] = []
        self._free = self._places = places
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._sweep: asyncio.TimerHandle | None = None
        self._alarms: dict[float, Alarms] = {}
        # Cached: before Python 3.12, getting the loop costs a system call for the process id.
        self._loop = asyncio.get_running_loop()

    async def ask(self, method: str, data: bytes, limit: int, timeout: float, body: bytes = b"") -> ResponseReader:
        """Return the complete response to the request with the head `data`. `timeout` is in seconds, for all of it.

        A safe request is repeated once if its connection proves to be closed (RFC 9110 9.2.2).
        """
        ends = time.monotonic() + timeout
        if self._free:
            self._free -= 1
            alarms = self._alarms_of(timeout)
        else:
            await self._turn()
            alarms = None
        try:
            try:
                return await self._once(method, data, limit, ends, alarms, body)
            except Lost as error:
                if method not in RETRIED:
                    raise self._unanswered() from error
            try:
                return await self._once(method, data, limit, ends, None, body)
            except Lost as error:
                raise self._unanswered() from error
        finally:
            self._leave()

    async def carry(self, data: bytes, reading: ResponseReader, body: bytes = b"") -> None:
        """Send the request with the head `data`; `reading` takes the response, completely or until it has enough.

        The caller sets a timeout. Raises `Refusal` without a connection, `Lost` without a response, and `Malformed`.
        """
        if self._free:
            self._free -= 1
        else:
            await self._turn()
        try:
            wire = self._kept() or await self._dialled(None)
            try:
                await wire.carry(data, body, reading, None, alone=self._free == self._places - 1)
            finally:
                self._after(wire)
        finally:
            self._leave()

    def close(self) -> None:
        """Close idle connections."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for wire in self._idle:
            wire.abort()
        self._idle.clear()

    async def _once(
        self, method: str, data: bytes, limit: int, ends: float, alarms: Alarms | None, body: bytes
    ) -> ResponseReader:
        """Send once; `alarms` are the shared timeouts for a request whose time begins now."""
        wire = self._kept()
        if wire is None:
            wire, alarms = await self._dialled(ends), None
        reading = ResponseReader(method, limit)
        try:
            await wire.carry(data, body, reading, ends, alarms, alone=self._free == self._places - 1)
        except Malformed as error:
            detail = f"backend {self._name!r} broke off, or answered with something that is not HTTP: {error}"
            raise Refusal(Reason.BACKEND_PROTOCOL, detail) from error
        finally:
            self._after(wire)
        return reading

    async def _turn(self) -> None:
        """Wait for a place of another request, in FIFO order."""
        waiter = self._loop.create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                self._leave()  # it had one already
            raise

    def _leave(self) -> None:
        """Release a place."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1

    def _alarms_of(self, timeout: float) -> Alarms | None:
        found = self._alarms.get(timeout)
        if found is None and len(self._alarms) < TIMEOUTS:
            found = self._alarms[timeout] = Alarms(timeout)
        return found

    def _after(self, wire: _Wire) -> None:
        if wire.usable:
            self._keep(wire)
        elif wire.ends_soon:
            wire.finish(self._keep, REST)
        else:
            wire.abort()

    def _kept(self) -> _Wire | None:
        while self._idle:
            wire = self._idle.pop()
            if wire.usable:
                return wire
        return None

    def _keep(self, wire: _Wire) -> None:
        wire.since = time.monotonic()
        self._idle.append(wire)
        if self._sweep is None:
            self._sweep = self._loop.call_later(KEEP_ALIVE_SECONDS, self._swept)

    def _swept(self) -> None:
        old = time.monotonic() - KEEP_ALIVE_SECONDS
        for wire in self._idle:
            if wire.since <= old:
                wire.abort()
        self._idle = [wire for wire in self._idle if wire.usable]
        self._sweep = self._loop.call_later(KEEP_ALIVE_SECONDS, self._swept) if self._idle else None

    async def _dialled(self, ends: float | None) -> _Wire:
        async with asyncio.timeout(None if ends is None else ends - time.monotonic()):
            wire = partial(_Wire, self._connections.in_turn)
            return await self._connections.dial(self._network, self._origin, wire, self._tls)

    def _unanswered(self) -> Refusal:
        detail = f"{self._origin.place} closed the connection without an answer"
        return Refusal(Reason.BACKEND_UNREACHABLE, detail)


class _Wire(asyncio.Protocol):
    """One connection, with at most one request in flight. `since` is when it became idle."""

    def __init__(self, in_turn: InTurn, ended: Callable[[asyncio.Protocol], None]) -> None:
        self.since = 0.0
        self._in_turn = in_turn
        self._loop = asyncio.get_running_loop()
        self._ended = ended
        self._transport: asyncio.Transport | None = None
        self._reading: ResponseReader | None = None
        self._waiter: asyncio.Future[None] | Arrival[None] | None = None
        self._good = True
        self._rest: ResponseReader | None = None
        self._finished: Callable[[_Wire], None] | None = None
        self._last: asyncio.TimerHandle | None = None
        self._over: Callable[[], None] | None = None
        self._full: asyncio.Future[None] | None = None
        """Set while the write buffer is full; done once the backend has read from it."""

    @property
    def usable(self) -> bool:
        """Whether it can carry a request."""
        return self._good and self._reading is None and self._rest is None

    @property
    def ends_soon(self) -> bool:
        """Whether only an unneeded rest of a response is outstanding."""
        return self._good and self._rest is not None

    def finish(self, finished: Callable[[_Wire], None], seconds: float) -> None:
        """Read the rest, and call `finished` if the connection can carry another request then."""
        self._finished = finished
        self._last = self._loop.call_later(seconds, self.abort)

    async def carry(
        self,
        data: bytes,
        body: bytes,
        reading: ResponseReader,
        ends: float | None,
        alarms: Alarms | None = None,
        *,
        alone: bool = False,
    ) -> None:
        """Send `data` and `body`, and read the response. Raises TimeoutError, `Lost`, and what `Reading` raises.

        If `alone`, the task resumes as soon as the response has arrived. Beside others, each step runs in an iteration
        of the event loop for all of them, which costs less through locality.
        """
        long = len(body) > WHOLE
        future = None if alone and not long else self._loop.create_future()
        waiter: asyncio.Future[None] | Arrival[None] = future or Arrival(self._loop)
        self._waiter = waiter
        self._reading = reading
        alarm, timer = 0, None
        try:
            if self._transport is None or self._transport.is_closing():
                raise Lost
            self._transport.write(data if long or not body else data + body)
            if alarms is not None:  # now the backend is working
                alarm = alarms.set(self._late)
            elif ends is not None:
                timer = self._loop.call_later(ends - time.monotonic(), self._late)
            if future is not None and long:
                await self._write(self._transport, body, future)
            await waiter
        except BaseException:  # also if cancelled: the rest of the response may still arrive
            self._good = False
            raise
        finally:
            if alarms is not None:
                alarms.cancel(alarm)
            elif timer is not None:
                timer.cancel()
            self._reading = self._waiter = None
        self._good = self._good and reading.reusable
        if reading.enough and not reading.complete:
            self._rest = reading

    async def _write(self, transport: asyncio.Transport, body: bytes, answer: asyncio.Future[None]) -> None:
        """Write a long body until `answer` is done: a backend may respond before it has read everything."""
        rest = memoryview(body)
        while rest and not answer.done():
            transport.write(rest[:WHOLE])
            rest = rest[WHOLE:]
            if self._full is not None:
                await asyncio.wait({self._full, answer}, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(0)
        if rest:
            self._good = False

    def pause_writing(self) -> None:
        self._full = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._full is not None and not self._full.done():
            self._full.set_result(None)
        self._full = None

    def _late(self) -> None:
        self._fail(TimeoutError())

    def abort(self) -> None:
        """Close the connection now."""
        self._good = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._rest is not None:
            self._read_rest(self._rest, data)
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
        except (Malformed, Refusal) as error:
            self._fail(error)
            return
        if (complete or reading.enough) and not self._waiter.done():
            self._waiter.set_result(None)
        if not complete and reading.held:
            self._hold(reading, perf_counter() - began)

    def _hold(self, reading: ResponseReader, worked: float) -> None:
        """Pause reading of the connection until `reading`, which worked for so many seconds, may continue."""
        if self._transport is not None:
            self._transport.pause_reading()
        if reading.until is None:
            self._in_turn.add(partial(self._go_on, reading), worked)
        else:
            reading.until.add_done_callback(lambda _: self._go_on(reading))

    def _go_on(self, reading: ResponseReader) -> None:
        if reading not in (self._reading, self._rest) or self._transport is None:
            return
        reading.go_on()
        self.data_received(b"")
        if not reading.held:
            self._transport.resume_reading()
            if self._over is not None:
                self._over()

    def _read_rest(self, rest: ResponseReader, data: bytes) -> None:
        began = perf_counter()
        try:
            complete = rest.feed(data)
        except (Malformed, Refusal):
            self.abort()
            return
        if rest.held:
            self._hold(rest, perf_counter() - began)
        if complete:
            self._rest = None
            self._good = self._good and rest.reusable
            if self._last is not None:
                self._last.cancel()
            if self._finished is not None and self._good:
                self._finished(self)
            else:
                self.abort()

    def eof_received(self) -> None:
        self._good = False

    def connection_lost(self, exc: Exception | None) -> None:
        self._good = False
        self._ended(self)
        if self._reading is not None and self._reading.held:
            self._over = partial(self._lost, exc)  # data that arrived before is parsed first
        else:
            self._lost(exc)

    def _lost(self, exc: Exception | None) -> None:
        reading, waiter = self._reading, self._waiter
        if reading is None or waiter is None or waiter.done():
            return
        try:
            whole = exc is None and reading.eof()
        except Malformed as error:
            self._fail(error)
            return
        if whole:
            waiter.set_result(None)
        elif reading.begun:
            self._fail(Malformed("it ended in the middle of its answer"))
        else:
            self._fail(Lost())

    def _fail(self, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
