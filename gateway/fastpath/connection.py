"""A connection whose plain requests are read without aiohttp's server.

Any other request is passed to aiohttp byte for byte, with the connection, which is taken back after a complete request
was answered. The guard decides as in aiohttp, and its refusals are left to aiohttp. The gain is measured for each door:
see `mcp_route` and `site_route`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from gateway.bounds import Area, Bound, size
from gateway.doors import access_log
from gateway.doors.client_connection import HEAD_END, HttpConnection, ServerState
from gateway.doors.guard import GuardedRequest
from gateway.eventloop.immediate_future import ImmediateFuture
from gateway.eventloop.shared_timeouts import SharedTimeouts
from gateway.fastpath.http1 import LONGEST_HEAD, RequestHead, read_head
from gateway.fastpath.routes import HOLDING, FastRoute, RouteFinder
from gateway.model import Principal
from gateway.traces import CLIENT, RequestFacts

HEADS: Final = 16
"""Request heads cached per connection: clients repeat the same one, except for the length of the body."""

HEADS_SIZE: Final = 32 * 1024
"""Bytes of those."""

AHEAD: Final = 256 * 1024
"""Bytes buffered ahead before reading is paused."""

WHOLE_WITHIN: Final = 0.1
"""Seconds in which a body must follow its head: a slower one is left to aiohttp, and watched by the guard."""

LARGEST: Final = 64 * 1024
"""Bytes of the largest request that is read here: aiohttp reads the body of a larger one after the guard's check."""

BOUNDS: Final = (
    Bound(
        Area.DOORS,
        "cached request heads of a connection",
        f"{HEADS}, {size(HEADS_SIZE)} in all, on the {HOLDING} connections used last",
        "they are parsed again",
        uncounted="a cache",
    ),
    Bound(
        Area.DOORS,
        "pipelined bytes of a connection",
        size(AHEAD),
        "reading pauses until their turn",
        uncounted="the client waits",
    ),
    Bound(
        Area.DOORS,
        "body bytes of an unauthenticated caller",
        f"{size(LARGEST)} before authentication",
        "reading pauses until the caller is authenticated",
        uncounted="the rest is read after authentication",
    ),
)

IDENTIFIED: Final = 1.0
"""Seconds for which an identified caller is not checked again, per connection and head."""


@dataclass(slots=True)
class KnownHead:
    """A repeated request head, with its route; and its sender, up to `until` on the monotonic clock."""

    head: RequestHead
    route: FastRoute[Any] | None = None
    principal: Principal | None = None
    client: str | None = None
    until: float = 0.0
    generation: int = -1


FastRequest: TypeAlias = tuple[Any, KnownHead, bytes, int]
"""A request that its route has read, its head, the received bytes, and the request's part of them."""


class _SentAnswer:
    """Status and bytes of an answer that is written."""

    def __init__(self) -> None:
        self.status = self.bytes = 0

    def add(self, data: bytes) -> None:
        """Count a part of the answer, whose first part begins with the whole head."""
        if not self.status:
            self.status = int(data[9:12])
        self.bytes += len(data)


class FastConnection(HttpConnection):
    """One connection, with one request in flight at most.

    `_serving` is the task for all its requests on the fast path, from the first one on; `busy` means that one runs.
    `_next` receives the next one, and is None while one runs.
    """

    __slots__ = (
        "_ahead",
        "_heads",
        "_last",
        "_last_answer",
        "_loop",
        "_next",
        "_room",
        "_routes",
        "_serving",
        "_unanswered",
        "_waits",
        "busy",
    )

    def __init__(self, server: ServerState, routes: RouteFinder) -> None:
        super().__init__(server)
        self.busy = False
        self._routes = routes
        self._loop = asyncio.get_running_loop()
        self._serving: asyncio.Task[None] | None = None
        self._next: ImmediateFuture[FastRequest] | asyncio.Future[FastRequest] | None = ImmediateFuture(self._loop)
        self._ahead = b""
        self._waits: int | None = None  # for the rest of a body: the key of its timeout
        self._room: asyncio.Future[None] | None = None
        self._heads: dict[bytes, KnownHead] = {}
        self._last_answer: _SentAnswer | None = None  # for the access log
        self._last = False  # the client asked to close the connection after the answer
        self._unanswered: int | None = 0  # requests that aiohttp has to answer; None if it keeps the connection

    @property
    def closing(self) -> bool:
        """True if an answer that begins now is the last one on this connection."""
        return self._last or self._server.draining

    @property
    def running(self) -> asyncio.Task[None] | None:
        """The task of the request that runs, if there is one."""
        return self._serving if self.busy else None

    def forget_heads(self) -> None:
        """Parse the heads of later requests again."""
        self._heads.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._routes.holders.discard(self)
        if self._room is not None and not self._room.done():
            self._room.set_result(None)  # a sender on a stream may wait beside the task of this connection
        if self._waits is not None:
            self._server.alarms(WHOLE_WITHIN).cancel(self._waits)
        if self._serving is not None:
            self._serving.cancel()
            self._serving = None  # the task's last exception refers to this connection

    def data_received(self, data: bytes) -> None:
        if self._handler is not None and not self._ahead:
            request = self._request(data, self._head(data)) if self._unanswered is not None else None
            if request is None or self._full:
                self.give(data)
            elif self._unanswered:  # aiohttp may still run the handler whose answer the client has read
                self._ahead = data
            else:
                self._take_back()
                self._start(request)
        elif self.busy or self._full or self._handler is not None:
            self._ahead += data
            if len(self._ahead) > AHEAD:
                self._transport.pause_reading()
        else:
            self._read(self._ahead + data if self._ahead else data)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        if self._handler is None and not self.busy:
            self._server.limits.unread_responses.release(self._transport)
            self._go_on()

    def close_if_idle(self) -> None:
        if not self.busy:
            super().close_if_idle()

    def note_answer(self) -> None:
        super().note_answer()
        if self._unanswered:
            self._unanswered -= 1
        if self._unanswered == 0 and self._ahead:
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        """Read the data that came before aiohttp had finished its answer."""
        data, self._ahead = self._ahead, b""
        if data and not self._transport.is_closing():
            self._transport.resume_reading()
            self.data_received(data)

    # The response writer:

    def alarms(self, seconds: float) -> SharedTimeouts:
        """Return the shared timeouts of this duration."""
        return self._server.alarms(seconds)

    def send(self, data: bytes) -> None:
        """Write a part of an answer."""
        if self._last_answer is not None:
            self._last_answer.add(data)
        self._transport.write(data)

    def write(self, data: bytes, person: str) -> None:
        """Write a complete answer to a request of `person`."""
        self.send(data)
        if self._full:
            self._server.limits.unread_responses.hold(self._transport, person, len(data))

    async def write_parts(self, parts: Iterable[bytes], person: str, count: int) -> None:
        """Write a long answer of `count` bytes with backpressure; other connections get their turn in between."""
        unread_responses = self._server.limits.unread_responses
        unread_responses.hold(self._transport, person, count)
        for part in parts:
            self.send(part)
            await self.drain()
            await asyncio.sleep(0)
        unread_responses.release(self._transport)

    async def drain(self) -> None:
        """Wait while the write buffer is full."""
        while self._full and not self._transport.is_closing():
            self._room = self._loop.create_future()
            await self._room

    def _read(self, data: bytes) -> None:
        """Start the request at the beginning of `data`, or hand the connection over."""
        self.since = time.monotonic()
        self._ahead = b""
        head_found = self._head(data)
        if head_found is not None and len(data) < head_found[2]:
            self._ahead = data
            if self._waits is None:
                self._waits = self._server.alarms(WHOLE_WITHIN).set(self._give_up_waiting)
            return
        if self._waits is not None:
            self._server.alarms(WHOLE_WITHIN).cancel(self._waits)
            self._waits = None
        if (request := self._request(data, head_found)) is not None:
            self._start(request)
        else:
            self._hand_over(data)

    def _give_up_waiting(self) -> None:
        """Let aiohttp read a request whose body is slow."""
        self._waits = None
        if self._ahead and not self._transport.is_closing():
            self._hand_over(self._ahead)

    def _head(self, data: bytes) -> tuple[KnownHead, int, int] | None:
        """Return the head at the beginning of `data`, its size, and that of the request; None if it has no route."""
        end = data.find(HEAD_END) + len(HEAD_END)
        known = self._known_head(data[:end]) if 4 <= end <= LONGEST_HEAD and not self._server.draining else None
        if known is None or self._route(known) is None:
            return None
        if known.principal is None and time.monotonic() < known.until:
            return None  # the guard has refused its sender a moment ago
        size = end + known.head.length
        return (known, end, size) if size <= LARGEST else None

    def _request(self, data: bytes, head_found: tuple[KnownHead, int, int] | None) -> FastRequest | None:
        """Return the request at the beginning of `data`, if it is complete and its route can read it."""
        if head_found is None:
            return None
        known, end, size = head_found
        request = known.route.read(data[end:size]) if len(data) >= size and known.route is not None else None
        return (request, known, data, size) if request is not None else None

    def _start(self, request: FastRequest) -> None:
        """Let the task of this connection answer a request."""
        if self._serving is None:
            # Held here, and cancelled with the connection: a task group per connection would cost more than that.
            self._serving = self._loop.create_task(self._serve())
        self.busy = True
        if self._next is not None:
            self._next.set_result(request)

    def _known_head(self, raw: bytes) -> KnownHead | None:
        known = self._heads.get(raw)
        if known is None:
            head = read_head(raw)
            if head is None:
                return None
            if len(self._heads) >= HEADS or sum(map(len, self._heads)) + len(raw) > HEADS_SIZE:
                self._heads.clear()
            known = self._heads[raw] = KnownHead(head)
        self._routes.holders.note_use(self)
        return known

    def _route(self, known: KnownHead) -> FastRoute[Any] | None:
        """Return the route of this head, or None."""
        if known.route is None or not known.route.is_current():
            known.route = self._routes.find(known.head)
            known.until = 0.0
        return known.route

    async def _serve(self) -> None:
        """Serve one request after the other.

        Resumed within the data's own callback when no other connection runs a request, in the next iteration of the
        event loop otherwise: that saves a wait in the system at low load, and at high load each step of many requests
        costs less while they do the same work.
        """
        # In a drain, those that were accepted before are answered.
        while self._next is not None and (self.busy or not self._server.draining):
            request, known, data, size = await self._next
            self._next = None  # a poll waits long: its request, head and bytes are freed
            self._server.busy += 1
            try:
                principal = await self._admit(request, known)
                if principal is None:
                    self._hand_over(data + self._ahead)
                else:
                    rest, answer = data[size:], self._answer(request, known, principal)
                    del request, known, data, principal  # `answer` is all that a poll needs
                    await answer
                    self._finish(rest)
            except BaseException:  # on cancellation too: an answer may be half written
                self._transport.abort()
                raise
            finally:
                self.busy = False
                self._server.busy -= 1
                self._next = self._loop.create_future() if self._server.busy else ImmediateFuture(self._loop)

    async def _admit(self, request: Any, known: KnownHead) -> Principal | None:
        """Return the caller of a request, with a place taken for it; None leaves the request to aiohttp."""
        is_known = time.monotonic() < known.until and known.generation == self._routes.generation()
        principal = known.principal if is_known else await self._identify(known)
        route = known.route
        if route is None or principal is None or not route.can_answer(request, principal):
            return None
        if not route.places.take(principal.person):
            return None
        self._last = known.head.last
        CLIENT.set(known.client)
        return principal

    def _answer(self, request: Any, known: KnownHead, principal: Principal) -> Awaitable[None]:
        """Return the answer to one request, which holds its head only for the access log."""
        seen, route = access_log.begin(), cast("FastRoute[Any]", known.route)
        answer = self._run(route, request, principal)
        return answer if seen is None else self._log(answer, seen, known.head, principal)

    async def _run(self, route: FastRoute[Any], request: Any, principal: Principal) -> None:
        routes = self._routes
        try:
            with routes.hold(principal, self._transport.abort, route.app, route.needs):
                await route.answer(request, principal, self)
        finally:
            route.places.give(principal.person)
        if self._last:
            self._transport.close()

    async def _log(self, answer: Awaitable[None], seen: RequestFacts, head: RequestHead, principal: Principal) -> None:
        """Await the answer, and write the line of the access log."""
        sent = self._last_answer = _SentAnswer()
        try:
            await answer
        finally:
            self._last_answer = None
        host, trace = head.headers.get("host", ""), head.headers.get("traceparent")
        access_log.write(seen, head.method, head.target, host, sent.status, sent.bytes, principal, trace)

    async def _identify(self, known: KnownHead) -> Principal | None:
        """Return the authorized caller after a new check by the guard; None leaves the request to aiohttp.

        The guard's refusal stays with the connection, for the guard before aiohttp's handlers.
        """
        head, route = known.head, known.route
        request = GuardedRequest(head.method, head.headers, self.remote)
        known.client = self._routes.client(request)
        CLIENT.set(known.client)
        known.generation = self._routes.generation()
        known.principal = principal = await route.caller(request) if route is not None else None
        self.refusal = request.refusal
        expires = principal.expires if principal is not None else None
        known.until = time.monotonic() + (IDENTIFIED if expires is None else min(IDENTIFIED, expires - time.time()))
        return principal

    def _finish(self, rest: bytes) -> None:
        """Continue after an answer; `rest` came behind the request, before the data buffered meanwhile."""
        self.since = time.monotonic()
        if rest or self._ahead:
            self._ahead = rest + self._ahead
            self._loop.call_soon(self._go_on)  # other connections get their turn first

    def _go_on(self) -> None:
        """Continue with the data buffered meanwhile."""
        if self._ahead and not self.busy and not self._full and not self._transport.is_closing():
            self._transport.resume_reading()
            self._read(self._ahead)

    def _hand_over(self, data: bytes) -> None:
        """Hand the connection over to aiohttp."""
        self._ahead = b""
        self.give(data)
        self._transport.resume_reading()

    def _take_back(self) -> None:
        """Detach aiohttp from the connection, without closing it."""
        handler, self._handler = self._handler, None
        if handler is not None:
            handler.transport = None
            handler.connection_lost(None)

    def give(self, data: bytes) -> bool:
        """Pass `data` to aiohttp; after data that is not plainly one complete request, aiohttp keeps the connection."""
        whole = super().give(data)
        if self._unanswered is not None:
            self._unanswered = self._unanswered + 1 if whole else None
        return whole
