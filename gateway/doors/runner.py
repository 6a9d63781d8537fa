"""Runs an application in the runner of aiohttp, with limits on the connections of all clients, and the fast path."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from aiohttp import hdrs, web
from aiohttp.abc import AbstractAccessLogger
from aiohttp.http_exceptions import BadHttpMessage, HttpProcessingError, LineTooLong
from aiohttp.payload import Payload
from aiohttp.typedefs import Handler

from gateway.bounds import Area, Bound
from gateway.doors import access_log
from gateway.doors.client_connection import ConnectionLimits, HttpConnection, ServerState
from gateway.doors.guard import PRINCIPAL
from gateway.doors.responses import NamelessHandler, nameless
from gateway.eventloop.shared_timeouts import SharedTimeouts

IDLE: Final = 75.0
"""Seconds after which an idle connection is closed."""

HEAD_WITHIN = 15.0
"""Seconds in which a request head must be complete, so that slow clients do not hold places."""

TAKEN_WITHIN = 120.0
"""Seconds in which a client must accept some of the data in the write buffer.
The system reports progress only when a good part of its own buffer is free, which takes a slow client a while.
"""

BOUNDS: Final = (
    Bound(
        Area.DOORS,
        "idle connections",
        f"{IDLE:g} s",
        "it is closed",
        uncounted="clients keep idle connections on purpose",
    ),
    Bound(
        Area.DOORS,
        "incomplete request heads",
        f"{HEAD_WITHIN:g} s",
        "the connection is closed",
    ),
    Bound(
        Area.DOORS,
        "unread responses",
        f"{TAKEN_WITHIN:g} s without a byte read",
        "the connection is closed",
    ),
)

_QUIET, _HEAD, _UNTAKEN = BOUNDS

SWEEP = 5.0
"""Seconds between two checks of all connections."""


class ClientConnections:
    """Makes the protocol of each connection by `kind`; `handler` makes those of aiohttp.

    `busy` is the number of connections with a request on the fast path.
    """

    def __init__(
        self,
        handler: Callable[[], web.RequestHandler],
        limits: ConnectionLimits,
        kind: Callable[[ServerState], HttpConnection] = HttpConnection,
    ) -> None:
        self.handler = handler
        self.limits = limits
        self.open: set[HttpConnection] = set()
        self.draining = False
        self.busy = 0
        self._kind = kind
        self._alarms: dict[float, SharedTimeouts] = {}
        self._change = asyncio.Event()
        self._sweep: asyncio.TimerHandle | None = None

    def __call__(self) -> HttpConnection:
        """Return the protocol of a new connection."""
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(SWEEP, self._swept)
        return self._kind(self)

    @property
    def connections(self) -> list[HttpConnection]:
        """The open connections, under aiohttp's name."""
        return list(self.open)

    def alarms(self, seconds: float) -> SharedTimeouts:
        """Return the shared timeouts of this duration."""
        alarm = self._alarms.get(seconds)
        if alarm is None:
            alarm = self._alarms[seconds] = SharedTimeouts(seconds)
        return alarm

    def remove(self, connection: HttpConnection) -> None:
        """Remove a closed connection."""
        self.open.discard(connection)
        self._change.set()

    def close_idle(self) -> None:
        """Close idle connections; each further answer is its connection's last one."""
        self.draining = True
        for connection in tuple(self.open):
            connection.close_if_idle()

    async def drain(self, seconds: float) -> None:
        """Close idle connections; running requests, and clients that read answers, have so many seconds."""
        self.close_idle()
        if self._sweep is not None:
            self._sweep.cancel()
        end = time.monotonic() + seconds
        running = {connection.running for connection in self.open if connection.running is not None}
        if running:
            _, late = await asyncio.wait(running, timeout=seconds)
            for task in late:
                task.cancel()
            self.close_idle()
        await self.all_closed(end - time.monotonic())
        for connection in tuple(self.open):
            connection.abort()
        for alarms in self._alarms.values():
            alarms.close()

    async def all_closed(self, seconds: float) -> None:
        """Wait until no connection is open, for so many seconds at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.open:
                    self._change.clear()
                    await self._change.wait()

    def _swept(self) -> None:
        loop = asyncio.get_running_loop()
        now = time.monotonic()
        for connection in tuple(self.open):
            late, stuck = connection.trickles(now - HEAD_WITHIN), connection.takes_nothing(now, now - TAKEN_WITHIN)
            if late or stuck:
                (_HEAD if late else _UNTAKEN).report(client=connection.remote)
                connection.transport.abort()
            elif connection.since < now - IDLE:
                connection.close_if_idle()
        self._sweep = loop.call_later(SWEEP, self._swept)


LIMITS: Final = web.AppKey("limits", ConnectionLimits)
"""The limits of connections to an application."""

CONNECTION: Final[web.AppKey[Callable[[ServerState], HttpConnection]]] = web.AppKey("connection", Callable)  # type: ignore[arg-type]  # any callable
"""Makes the protocol of each connection; without it aiohttp reads all requests."""


class Drain(Protocol):
    """The end of an application's running calls."""

    def announce(self) -> None:
        """Say at `/readyz` that the gateway stops."""
        ...

    @property
    def running(self) -> int:
        """The number of running calls."""
        ...

    def begin(self) -> None:
        """End requests without an awaited answer: long-lived streams, pending polls."""
        ...

    async def end(self, seconds: float) -> None:
        """Wait until no call runs; those left after `seconds` are answered with an error."""
        ...

    def cut(self) -> None:
        """Answer all running calls with an error now."""
        ...


DRAIN: Final = web.AppKey("drain", Drain)
"""Ends the running calls of an application."""

SWITCHING: Final = 101
"""The status of an answer that begins a WebSocket."""

LINGER: Final = 0.5
"""Seconds after the end of listening in which requests on open connections are served: their clients could not know."""

LINGER_IN_CLUSTER: Final = 3.0
"""The same beside other nodes: a balancer uses up the connections that it keeps before it asks the next node."""

BACKLOG: Final = 1024
"""Connections that wait to be accepted; the system may allow fewer."""

CLEAN: Final = 5.0
"""Seconds for answers to be written after the drain, before connections are aborted."""

log = logging.getLogger(__name__)


class GatewayRunner(web.AppRunner):
    """Runs an application with its `LIMITS`, `CONNECTION` and `DRAIN`; at the end, calls have `drain` seconds."""

    def __init__(self, app: web.Application, *, drain: float, keepalive: float = IDLE, linger: float = 0) -> None:
        app.middlewares.insert(0, _begins)
        app.on_response_prepare.append(_announce_close)
        super().__init__(
            app,
            access_log=log,
            access_log_class=_AnswerListener,
            handler_cancellation=True,
            shutdown_timeout=min(drain, CLEAN),
            keepalive_timeout=keepalive,
        )
        self.drain = drain
        self._linger = linger
        self._sockets: list[socket.socket] = []
        self._inherited: list[socket.socket] = []
        self._connections: ClientConnections | None = None

    @property
    def server(self) -> Any:
        """The protocol factory: our connections, each with aiohttp's protocol behind it."""
        behind = super().server
        if self._connections is None and behind is not None:
            kind = self.app.get(CONNECTION, HttpConnection)
            self._connections = ClientConnections(lambda: nameless(behind(), _Handler), self.app[LIMITS], kind)
        return self._connections

    async def listen(self, sock: socket.socket, *, inherited: bool = False) -> None:
        """Accept connections on a socket; an inherited one stays open in the process that it came from."""
        await web.SockSite(self, sock, backlog=BACKLOG).start()
        (self._inherited if inherited else self._sockets).append(sock)

    async def cleanup(self) -> None:
        """Stop listening, serve what clients have sent before they could know, then shut down."""
        await self._stop_listening()
        drain = self.app.get(DRAIN)
        if self._connections is not None and drain is not None and self._linger:
            await self._finish_requests(self._connections, drain)
        await super().cleanup()

    async def _finish_requests(self, connections: ClientConnections, drain: Drain) -> None:
        """Finish the running calls, and what clients send before they learn that their connection ends.

        An answer that had begun before the drain did not tell them.
        """
        end, running = time.monotonic() + self.drain, True
        connections.draining = True
        drain.begin()
        while running and time.monotonic() < end:
            await connections.all_closed(self._linger)
            running = drain.running > 0
            await drain.end(max(0, end - time.monotonic()))

    async def _stop_listening(self) -> None:
        """Close the sockets, after accepting the connections that the system has accepted already."""
        loop = asyncio.get_running_loop()
        for sock in self._sockets:
            _ignore_new(sock)
        for sock in (*self._sockets, *self._inherited):
            loop.remove_reader(sock)
        for _ in range(2):  # asyncio drops a connection that it has accepted if its server closes before the next step
            await asyncio.sleep(0)
        listening, self._sockets = [sock.dup() for sock in self._sockets], []
        for site in tuple(self.sites):
            await site.stop()
        for sock in listening:
            with sock, suppress(OSError):
                while True:
                    accepted, _ = sock.accept()
                    accepted.setblocking(False)
                    await loop.connect_accepted_socket(self.server, accepted)

    async def shutdown(self) -> None:
        """Close idle connections, let running calls end, then shut down like aiohttp."""
        if self._connections is not None:
            self._connections.close_idle()
        drain = self.app.get(DRAIN)
        if drain is not None:
            drain.begin()
            await drain.end(self.drain)
        await super().shutdown()
        if self._connections is not None:
            await self._connections.drain(min(self.drain, CLEAN))


_ATTACH_FILTER: Final = 26
"""The option SO_ATTACH_FILTER of Linux (socket(7)), which Python does not name."""

_DROP_ALL: Final = struct.pack("HBBI", 6, 0, 0, 0)
"""The filter `return 0`: no byte of a packet is let through."""


def _ignore_new(sock: socket.socket) -> None:
    """Make Linux ignore new connections to a listening socket: it would reset those accepted just before its end.

    Their clients try again after a second, and are then refused.
    """
    if sys.platform == "linux":
        program = ctypes.create_string_buffer(_DROP_ALL)
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(program)))


_TOO_MANY_FIELDS: Final = "Too many headers received"
"""The message of aiohttp's parser for a head with more fields than it reads."""


class _Handler(NamelessHandler):
    """aiohttp's protocol; requests that its parser rejects never reach the guard."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Count a malformed request.

        A head that exceeds the parser's limits is refused by 414 if its target does (RFC 9110, 15.5.15), and otherwise
        by 431 (RFC 6585, 5).
        """
        too_long = isinstance(exc, LineTooLong) or (isinstance(exc, BadHttpMessage) and exc.message == _TOO_MANY_FIELDS)
        connection = self.transport.get_protocol() if self.transport is not None else None
        if isinstance(connection, HttpConnection) and isinstance(exc, HttpProcessingError):
            connection.note_malformed(too_long=too_long)
            if too_long:
                status = 414 if connection.has_long_target else 431
        return super().handle_error(request, status, exc, message)


class _AnswerListener(AbstractAccessLogger):
    """An access logger by which aiohttp reports a written answer."""

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        """Notify the connection, unless aiohttp closes it now; write the line of the access log."""
        seen = request.get(access_log.ACCESS)
        if seen is not None:
            access_log.write(
                seen,
                request.method,
                request.raw_path,
                request.headers.get("host", ""),
                response.status,
                response.body_length,
                request.get(PRINCIPAL),
                request.headers.get("traceparent"),
            )
        connection = request.transport.get_protocol() if request.transport is not None else None
        if isinstance(connection, HttpConnection) and response.keep_alive:
            connection.note_answer()


def _length(answer: web.Response) -> int:
    """Bytes of the body of an answer."""
    body = answer.body
    return (body.size or 0) if isinstance(body, Payload) else len(body or b"")


@web.middleware
async def _begins(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Notify the connection that the head of a request is complete, and of the length of the answer."""
    connection = request.transport.get_protocol() if request.transport is not None else None
    if not isinstance(connection, HttpConnection):
        return await handler(request)
    connection.begins()
    answer = await handler(request)
    if isinstance(answer, web.Response):
        principal = request.get(PRINCIPAL)
        connection.answers(principal.person if principal is not None else None, _length(answer))
    return answer


async def _announce_close(request: web.Request, answer: web.StreamResponse) -> None:
    """Handle `on_response_prepare`: tell the client when this is the last answer on its connection (RFC 9112, 9.6)."""
    connection = request.transport.get_protocol() if request.transport is not None else None
    if isinstance(connection, HttpConnection) and connection.closing and answer.status != SWITCHING:
        answer.force_close()
        answer.headers[hdrs.CONNECTION] = "close"
