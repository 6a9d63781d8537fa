"""The fast path for HTTP: a plain POST is read from its connection without aiohttp's machinery.
Any other request is passed to aiohttp byte for byte, with the connection, which is taken back after a complete request
was answered. The guard decides as in aiohttp, and its refusals are left to aiohttp.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, cast

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger
from multidict import CIMultiDict

from gateway.bounds import Area, Bound, size
from gateway.client_address import CLIENT
from gateway.doors.access import Asked
from gateway.doors.client_limits import REFUSAL, Peers, Unread, peer_of
from gateway.eventloop.immediate_future import Arrival
from gateway.eventloop.shared_timeouts import Alarms
from gateway.fastpath.borrowed_connection import HEAD_END, Lent
from gateway.fastpath.request_head import BEGINNING, LONGEST_HEAD, RequestHead, read_head
from gateway.fastpath.responses import Answering
from gateway.mcp.fast import Fast, Traced
from gateway.model import Principal
from gateway.shares import Shares
from gateway.traces import arriving

HEADS: Final = 16
"""Request heads cached per connection: clients repeat the same one, except for the length of the body."""

HEADS_SIZE: Final = 32 * 1024
"""Bytes of those."""

KEPT: Final = 256 * 1024
"""Bytes buffered ahead before reading is paused."""

PIECES: Final = 4
"""Pieces in which a request may arrive: a slower one is left to aiohttp, and watched by the guard."""

STRANGE: Final = 64 * 1024
"""Bytes of the largest request read from a caller not yet identified on this connection."""

BOUNDS: Final = (
    Bound(
        Area.DOORS,
        "cached request heads of a connection",
        f"{HEADS}, {size(HEADS_SIZE)} in all",
        "they are parsed again",
        uncounted="a cache",
    ),
    Bound(
        Area.DOORS,
        "pipelined bytes of a connection",
        size(KEPT),
        "reading pauses until their turn",
        uncounted="the client waits",
    ),
    Bound(
        Area.DOORS,
        "body bytes of an unauthenticated caller",
        f"{size(STRANGE)} before authentication",
        "reading pauses until the caller is authenticated",
        uncounted="the rest is read after authentication",
    ),
)

LOOK: Final = 1.0
"""Seconds for which an identified caller is not checked again, per connection and head."""


@dataclass(slots=True)
class Plain:
    """The parts of a request that the guard examines."""

    method: str
    headers: CIMultiDict[str]
    remote: str | None


@dataclass(slots=True)
class Sent:
    """A repeated request head: its fast path and tool, and its sender."""

    head: RequestHead
    fast: Fast[Any] | None = None
    tool: bytes = b""
    principal: Principal | None = None
    client: str | None = None
    until: float = 0.0
    """The time of the next check of the sender, on the monotonic clock."""


Begun: TypeAlias = tuple[Fast[Any], Traced, Sent, bytes, int]
"""A request on the fast path: the path, its call, its head, the received bytes, and the request's part of them."""


class Gate(Protocol):
    """The guard of the fast path: `gateway.fastpath.application.McpGate`."""

    fast_path: bool
    """Whether plain requests are read here (`server.fast_path`); otherwise aiohttp reads all."""
    peers: Peers
    """The places of all connections."""
    unread: Unread
    """The large answers that wait for their clients."""
    places: Shares
    """Those of all requests that are in flight, by person."""

    def malformed(self, client: str | None) -> None:
        """Count a malformed request of this address."""
        ...

    def fast(self, mount: str) -> Fast[Any] | None:
        """Return the current fast path of a mount."""
        ...

    def client(self, request: Asked) -> str | None:
        """Return the address of the client, for the audit log."""
        ...

    async def caller(self, request: Asked, mount: str) -> Principal | None:
        """Return the authorized caller; None leaves the request to aiohttp."""
        ...

    def held(self, principal: Principal, end: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `end` when the credential of `principal` is revoked or expires while the block runs."""
        ...


class Shared(Protocol):
    """The state shared by all connections: `gateway.fastpath.connections.Fronts`."""

    gate: Gate
    """Authorizes requests."""
    behind: Callable[[], web.RequestHandler]
    """Makes aiohttp's protocol for a connection."""
    open: set[Front]
    draining: bool
    """Whether a drain has begun: the fast path accepts no new requests."""
    busy: int
    """The number of connections with a request on the fast path."""

    def alarms(self, seconds: float) -> Alarms:
        """Return the shared timeouts of this duration."""
        ...


class Front(asyncio.Protocol):
    """One connection, with one request in flight at most; `since` is when the last one came or ended.
    `remote` is the address of the peer. `serving` is the task for all its requests on the fast path, from the first one
    on; `busy` means that one is running.
    """

    def __init__(self, fronts: Shared) -> None:
        self.serving: asyncio.Task[None] | None = None
        self.busy = False
        self._loop = asyncio.get_running_loop()
        self._begun: Arrival[Begun] | asyncio.Future[Begun] = Arrival(self._loop)
        self.since = time.monotonic()
        self._fronts = fronts
        self._lent: Lent | None = None
        self._transport: asyncio.Transport
        self._kept = b""
        self._pieces = 0
        self._full = False
        self._room: asyncio.Future[None] | None = None
        self._left = 0
        self._taken = self.since
        self._heads: dict[bytes, Sent] = {}
        self._known = False
        self.remote: str | None = None
        self._place: str | None = None

    @property
    def transport(self) -> asyncio.Transport:
        """The connection's transport, whichever protocol reads it."""
        return self._transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.remote = peer_of(transport)
        self._place = self._fronts.gate.peers.take(self.remote)
        if self._place is None:
            self._transport.write(REFUSAL)
            self._transport.close()
        else:
            self._fronts.open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fronts.open.discard(self)
        self._fronts.gate.unread.release(self._transport)
        if self._place is not None:
            self._fronts.gate.peers.give(self._place)
        if self._lent is not None:
            self._lent.behind.connection_lost(exc)
        if self.serving is not None:
            self.serving.cancel()
            self.serving = None  # the task's last exception refers to this connection

    def data_received(self, data: bytes) -> None:
        if self._lent is not None and self._lent.done and data.startswith(BEGINNING) and self._fronts.gate.fast_path:
            self._lent.take_back()
            self._lent = None
        if self._lent is not None:
            self._lent.give(data)
        elif self.busy or self._full:
            self._kept += data
            if len(self._kept) > KEPT:
                self._transport.pause_reading()
        else:
            self._take(self._kept + data if self._kept else data)

    def eof_received(self) -> None:
        """Treat a half-closed connection as closed, as aiohttp does: the client's requests end."""
        if self._lent is not None:
            self._lent.behind.eof_received()

    def pause_writing(self) -> None:
        if self._lent is not None:
            self._lent.behind.pause_writing()
        self._full = True

    def resume_writing(self) -> None:
        self._full, self._taken = False, time.monotonic()
        if self._lent is None and not self.busy:
            self._fronts.gate.unread.release(self._transport)
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        if self._lent is not None:
            self._lent.behind.resume_writing()
        elif not self.busy:
            self._go_on()

    def close_if_idle(self) -> None:
        """Close the connection if it is idle; aiohttp closes its own."""
        if self._lent is None and not self.busy:
            self._transport.close()

    def abort(self) -> None:
        """Abort the connection unless aiohttp has it."""
        if self._lent is None:
            self._transport.abort()

    def trickles(self, before: float) -> bool:
        """Whether a request began before then whose head is still incomplete."""
        if self._lent is None:
            return bool(self._kept) and not self.busy and not self._full and self.since < before
        return self._lent.head_since is not None and self._lent.head_since < before

    def takes_nothing(self, now: float, before: float) -> bool:
        """Whether the write buffer has data of which the client accepted nothing since `before`."""
        left = self._transport.get_write_buffer_size()
        if not left or left < self._left:
            self._taken = now
        self._left = left
        return self._taken < before

    def malformed(self) -> None:
        """aiohttp cannot read what came as a request."""
        self._fronts.gate.malformed(self.remote)

    def begins(self) -> None:
        """Note that aiohttp has read the head of a request."""
        if self._lent is not None:
            self._lent.begins()

    def answers(self, person: str | None, count: int) -> None:
        """aiohttp is about to write an answer of so many bytes."""
        self._fronts.gate.unread.hold(self._transport, person or f"address {self.remote}", count)

    def answered(self) -> None:
        """Note that aiohttp has written one answer, after which the connection stays open."""
        self._fronts.gate.unread.release(self._transport)
        if self._lent is not None:
            self._lent.answered()

    def _take(self, data: bytes) -> None:
        """Start the request at the beginning of `data`, or hand the connection over."""
        self.since = time.monotonic()
        self._kept = b""
        end = data.find(HEAD_END) + len(HEAD_END)
        may = self._fronts.gate.fast_path and not self._fronts.draining
        sent = self._sent(data[:end]) if may and 4 <= end <= LONGEST_HEAD else None
        fast = self._fast(sent) if sent is not None else None
        if sent is None or fast is None:
            self._hand_over(data)
            return
        size = end + sent.head.length
        if size > STRANGE and not self._known:
            self._hand_over(data)  # aiohttp reads a body after the guard has seen the head
        elif len(data) < size:
            self._kept = data
            self._pieces += 1
            if self._pieces >= PIECES:
                self._hand_over(data)
        elif (call := fast.read(sent.tool, data[end:size])) is None:
            self._hand_over(data)
        else:
            self._pieces = 0
            if self.serving is None:
                # Held here, and cancelled with the connection: a task group per connection would cost more than that.
                self.serving = self._loop.create_task(self._serve())
            self.busy = True
            self._begun.set_result((fast, call, sent, data, size))

    def _sent(self, raw: bytes) -> Sent | None:
        known = self._heads.get(raw)
        if known is None:
            head = read_head(raw)
            if head is None:
                return None
            if len(self._heads) >= HEADS or sum(map(len, self._heads)) + len(raw) > HEADS_SIZE:
                self._heads.clear()
            known = self._heads[raw] = Sent(head)
        return known

    def _fast(self, sent: Sent) -> Fast[Any] | None:
        """Return the fast path for this head, or None."""
        fast = self._fronts.gate.fast(sent.head.mount)
        if fast is not sent.fast:
            tool = fast.tool(sent.head.raw) if fast is not None else None
            sent.fast, sent.tool = (fast, tool) if tool is not None else (None, b"")
        return sent.fast

    async def _asked(self, sent: Sent) -> Principal | None:
        """Return the authorized caller after a new check by the guard; None leaves the request to aiohttp."""
        asked = Plain("POST", sent.head.headers, self.remote)
        found = sent.principal = await self._fronts.gate.caller(asked, sent.head.mount)
        sent.client = self._fronts.gate.client(asked)
        self._known = self._known or found is not None
        ends = found.expires if found is not None else None
        sent.until = time.monotonic() + (LOOK if ends is None else min(LOOK, ends - time.time()))
        return found

    async def _serve(self) -> None:
        """Serve one request after the other.
        If no other connection is busy, the next request starts as soon as it arrives. Otherwise all connections take
        each step in the same turn of the event loop, which costs less while they do the same work.
        """
        while self.busy or not self._fronts.draining:  # requests accepted before the drain are answered
            fast, call, sent, data, size = await self._begun
            self._fronts.busy += 1
            try:
                if await self._carry(fast, call, sent):
                    self._answered(data[size:])
                else:
                    self._hand_over(data + self._kept)
            except BaseException:  # on cancellation too: an answer may be half written
                self._transport.abort()
                raise
            finally:
                self.busy = False
                self._fronts.busy -= 1
                self._begun = self._loop.create_future() if self._fronts.busy else Arrival(self._loop)

    async def _carry(self, fast: Fast[Any], call: Traced, sent: Sent) -> bool:
        """Answer one call; return False if it is left to aiohttp."""
        principal = sent.principal if time.monotonic() < sent.until else await self._asked(sent)
        places = self._fronts.gate.places
        if principal is None or not places.take(principal.person):
            return False
        try:
            await self._answer(fast, call, sent, principal)
        finally:
            places.give(principal.person)
        return True

    async def _answer(self, fast: Fast[Any], call: Traced, sent: Sent, principal: Principal) -> None:
        """Answer one call of `principal`."""
        head = sent.head
        CLIENT.set(sent.client)
        answering = Answering(self._transport, self._fronts.alarms(fast.silence), last=head.last)
        try:
            said = call.trace or (head.headers if head.traced else None)
            with self._fronts.gate.held(principal, self._transport.abort), arriving(said):
                text, status = await fast.message(call, principal)
        finally:
            answering.end()
        unread = self._fronts.gate.unread
        if isinstance(text, str):
            self._transport.write(answering.rest(text, status))
            if self._full:
                unread.hold(self._transport, principal.person, len(text))
        else:
            unread.hold(self._transport, principal.person, sum(map(len, text)))
            await self._write(answering.pieces(text, status))
            unread.release(self._transport)
        if head.last:
            self._transport.close()

    async def _write(self, pieces: Iterable[bytes]) -> None:
        """Write a long answer with backpressure; other connections get their turn in between."""
        for piece in pieces:
            self._transport.write(piece)
            while self._full:
                self._room = self._loop.create_future()
                await self._room
            await asyncio.sleep(0)

    def _answered(self, rest: bytes) -> None:
        """Continue after an answer; `rest` came behind the request, before the data buffered meanwhile."""
        self.since = time.monotonic()
        if rest or self._kept:
            self._kept = rest + self._kept
            self._loop.call_soon(self._go_on)  # other connections get their turn first
        elif self._fronts.draining:
            self._transport.close()

    def _go_on(self) -> None:
        """Continue with the data buffered meanwhile."""
        if self._kept and not self.busy and not self._full and not self._transport.is_closing():
            self._transport.resume_reading()
            self._take(self._kept)

    def _hand_over(self, data: bytes) -> None:
        """Hand the connection over to aiohttp."""
        lent = self._lent = Lent(self._transport, self._fronts.behind())
        self._kept, self._pieces, self._heads = b"", 0, {}
        if self._full:
            lent.behind.pause_writing()
        lent.give(data)
        self._transport.resume_reading()


class AnswerListener(AbstractAccessLogger):
    """An access logger by which aiohttp reports a written answer: the connection may be taken back then."""

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        """Notify the connection, unless aiohttp closes it now."""
        front = request.transport.get_protocol() if request.transport is not None else None
        if isinstance(front, Front) and response.keep_alive:
            front.answered()
