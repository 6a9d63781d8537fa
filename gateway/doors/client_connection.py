"""A connection of a client: aiohttp reads its requests, within limits that aiohttp lacks."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol, cast

from aiohttp import web

from gateway.bounds import Area, Bound, size
from gateway.doors.client_limits import REFUSAL, Peers, Unread, peer_of
from gateway.doors.identify import RefusedCaller
from gateway.eventloop.shared_timeouts import SharedTimeouts
from gateway.model import Headers

HEAD_BYTES: Final = 64 * 1024
"""Bytes of the longest head, buffered for any client before it is identified."""

LINE_BYTES: Final = 8190
"""Bytes of the longest line of a head, as aiohttp's parser limits them."""

FIELDS: Final = 128
"""Header fields of a request, as aiohttp's parser limits them."""

BOUNDS: Final = (
    Bound(
        Area.DOORS,
        "request heads",
        f"{size(HEAD_BYTES)}, of which {LINE_BYTES:,} bytes in each line and {FIELDS} fields",
        "414 for a request line, else 431",
    ),
)

(_HEAD,) = BOUNDS

_FIRST_LINE: Final = re.compile(rb"[\r\n]*[A-Z-]{0,24}(?: |\Z)")
_TOO_LONG: Final = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits that all connections share: `peers` counts them.

    `unread_responses` counts the bytes that clients have not read.
    `note_malformed` counts a request of an address that no parser can read.
    """

    peers: Peers
    unread_responses: Unread
    note_malformed: Callable[[str | None], None]


class ServerState(Protocol):
    """The state shared by all connections: `gateway.doors.runner.ClientConnections`."""

    limits: ConnectionLimits
    handler: Callable[[], web.RequestHandler]
    """Makes aiohttp's protocol for a connection."""
    open: set[HttpConnection]
    draining: bool
    """True if a drain has begun: the fast path reads no requests, and each answer is its connection's last one."""
    busy: int
    """The number of connections with a request on the fast path."""

    def alarms(self, seconds: float) -> SharedTimeouts:
        """Return the shared timeouts of this duration."""
        ...

    def remove(self, connection: HttpConnection) -> None:
        """Remove a closed connection from `open`."""
        ...


class HttpConnection(asyncio.Protocol):
    """One connection. `remote` is the address of the peer; `since` is when the last request came or ended.

    aiohttp's protocol for it is made with the first data, and until then the connection is idle.
    """

    __slots__ = (
        "_between",
        "_body_remaining",
        "_full",
        "_handler",
        "_handles",
        "_head_end",
        "_head_since",
        "_head_size",
        "_line_ended",
        "_line_size",
        "_place",
        "_progress_at",
        "_server",
        "_transport",
        "refusal",
        "remote",
        "since",
    )

    def __init__(self, server: ServerState) -> None:
        self.remote: str | None = None
        self.since = time.monotonic()
        self.refusal: RefusedCaller | None = None
        """The caller of the next request for aiohttp, if the fast path has failed to identify it."""
        self._server = server
        self._transport: asyncio.Transport
        self._place: str | None = None
        self._handler: web.RequestHandler | None = None
        self._full = False  # the write buffer
        self._body_remaining = 0
        self._progress_at = self.since
        self._head_since: float | None = None  # when a still incomplete head began
        self._head_size = 0
        self._head_end = b""
        self._line_size, self._line_ended = 0, False  # of the request line, without its end
        self._between = True  # all data so far are whole requests: the next byte begins one
        self._handles = False  # aiohttp has read a head that is not answered

    @property
    def transport(self) -> asyncio.Transport:
        """The connection's transport, whichever protocol reads it."""
        return self._transport

    @property
    def running(self) -> asyncio.Task[None] | None:
        """The task of a request that is answered without aiohttp, for a drain."""
        return None

    @property
    def closing(self) -> bool:
        """True if an answer that begins now is the last one on this connection, since the gateway stops."""
        return self._server.draining

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.remote = peer_of(transport)
        self._place = self._server.limits.peers.take(self.remote)
        if self._place is None:
            self._transport.write(REFUSAL)
            self._transport.close()
        else:
            self._server.open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.remove(self)
        self._server.limits.unread_responses.release(self._transport)
        if self._place is not None:
            self._server.limits.peers.give(self._place)
        if self._handler is not None:
            self._handler.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.give(data)

    def eof_received(self) -> None:
        """Treat a half-closed connection as closed, as aiohttp does: the client's requests end."""
        if self._handler is not None:
            self._handler.eof_received()

    def pause_writing(self) -> None:
        self._full = True
        if self._handler is not None:
            self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._full, self._progress_at = False, time.monotonic()
        if self._handler is not None:
            self._handler.resume_writing()

    def close_if_idle(self) -> None:
        """Close the connection if nothing came on it; aiohttp closes its own."""
        if self._handler is None:
            self._transport.close()

    def abort(self) -> None:
        """Abort the connection unless aiohttp has it."""
        if self._handler is None:
            self._transport.abort()

    def trickles(self, before: float) -> bool:
        """Return whether a request began before then whose head is still incomplete."""
        return self._head_since is not None and self._head_since < before

    def takes_nothing(self, now: float, before: float) -> bool:
        """Return whether the write buffer has data of which the client accepted nothing since `before`."""
        left = self._transport.get_write_buffer_size()
        if not left or left < self._body_remaining:
            self._progress_at = now
        self._body_remaining = left
        return self._progress_at < before

    def note_malformed(self, *, too_long: bool) -> None:
        """aiohttp cannot read what came as a request, or it has a line or more fields than it reads."""
        self._server.limits.note_malformed(self.remote)
        if too_long:
            _HEAD.report(client=self.remote)

    @property
    def has_long_target(self) -> bool:
        """True if the request line of the head that aiohttp reads is longer than it reads."""
        return self._line_size > LINE_BYTES

    def begins(self) -> None:
        """Note that aiohttp has read the head of a request."""
        self._handles, self._head_since = True, None
        self._head_size, self._head_end = 0, b""

    def answers(self, person: str | None, count: int) -> None:
        """aiohttp is about to write an answer of so many bytes."""
        self._server.limits.unread_responses.hold(self._transport, person or f"address {self.remote}", count)

    def note_answer(self) -> None:
        """Note that aiohttp has written one answer, after which the connection stays open."""
        self._server.limits.unread_responses.release(self._transport)
        self._handles = False

    def give(self, data: bytes) -> bool:
        """Pass `data` to aiohttp; return whether it is exactly one request."""
        if self._handler is None:
            self._handler = self._server.handler()
            self._handler.connection_made(self._transport)
            if self._full:
                self._handler.pause_writing()
        if self._between or (self._head_since is None and not self._handles):
            data = parseable(data)
        if self._head_since is None:
            self._line_size, self._line_ended = 0, False
        if not self._line_ended:
            end = data.find(b"\n")
            self._line_ended = end >= 0
            self._line_size += end if self._line_ended else len(data)
        whole = is_one_request(data)
        self._between = self._between and whole
        if not whole and not self._handles and self._head_since is None:
            self._head_since = time.monotonic()
            # Data of a request whose head came before the last answer was complete is its body.
            self._head_size, self._head_end = 0, b"" if _FIRST_LINE.match(data) else HEAD_END
        if self._head_since is not None and self._is_too_long(data):
            _HEAD.report(client=self.remote)
            self._transport.write(_TOO_LONG)
            self._transport.close()
        else:
            self._handler.data_received(data)
        return whole

    def _is_too_long(self, data: bytes) -> bool:
        """Return whether the head that aiohttp reads exceeds the limit with `data`, and has not ended."""
        if self._head_end == HEAD_END:
            return False
        self._head_size += len(data)
        seen = self._head_end + data
        self._head_end = HEAD_END if HEAD_END in seen else seen[-3:]
        return self._head_end != HEAD_END and self._head_size > HEAD_BYTES


_PATCH: Final = re.compile(rb"(?i)patch (?=/[\x21-\x7e]* HTTP/1\.1\r\n)")


def parseable(data: bytes) -> bytes:
    """Return `data`, the beginning of a request, as aiohttp can parse it.

    Browsers send `patch` as a page writes it (Fetch, "normalize a method"), and aiohttp knows `PATCH` alone.
    """
    return _PATCH.sub(b"PATCH ", data, count=1) if _PATCH.match(data) else escape_ids(data)


_ESCAPED: Final = "webmcp-gateway-event-id"
_EVENT_STREAM: Final = b"text/event-stream"
_CONTROLS: Final = re.compile(
    rb"(?i)(?<=\r\n)last-event-id:([^\r\n\0]*[\x01-\x08\x0b\x0c\x0e-\x1f\x7f][^\r\n\0]*)(?=\r\n)"
)
_HEX: Final = re.compile(r"(?:[0-9a-f]{2})*")


def escape_ids(data: bytes) -> bytes:
    """Return `data`, the beginning of a request, with the id in hexadecimal if aiohttp could not parse it."""
    if not data.startswith(b"GET ") or _EVENT_STREAM not in data:
        return data
    end = data.find(b"\r\n\r\n") + 2  # of the last field's line
    return _CONTROLS.sub(_in_hex, data[:end], count=1) + data[end:]


def _in_hex(escape: re.Match[bytes]) -> bytes:
    return f"{_ESCAPED}: ".encode() + escape[1].strip(b" \t").hex().encode()


def received_headers(raw: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return names in lower case, values as Latin-1 (Fetch, "isomorphic decode"), the id as the browser sent it."""
    return tuple(_field(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in raw)


def _field(name: str, value: str) -> tuple[str, str]:
    if name == _ESCAPED and _HEX.fullmatch(value):
        return "last-event-id", bytes.fromhex(value).decode("latin-1")
    return name, value


HEAD_END: Final = b"\r\n\r\n"
"""The end of a head."""

_ONE_HEAD: Final = re.compile(
    rb"(?!CONNECT )[A-Z]{3,7} [\x21-\x7e]+ HTTP/1\.1\r\n"
    rb"((?:[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}:[\t\x20-\x7e\x80-\xff]*\r\n)+)\Z"
)
_LENGTH: Final = re.compile(rb"(?i)(?:^|\n)content-length: ?([0-9]{1,7})\r\n")
_ELSEWHERE: Final = re.compile(rb"(?i)(?:^|\n)(?:transfer-encoding|upgrade|expect):")
"""Fields with which the end of a request depends on more than its length."""


def is_one_request(data: bytes) -> bool:
    """Return whether `data` is exactly one request: the next byte begins another. False if in doubt."""
    end = data.find(HEAD_END) + 4
    match = _ONE_HEAD.match(data[: end - 2]) if end >= 4 else None
    if match is None or _ELSEWHERE.search(match[1]):
        return False
    length, declared = _LENGTH.search(match[1]), match[1].lower().count(b"content-length:")
    if declared != (length is not None):
        return False
    return len(data) - end == (int(length[1]) if length is not None else 0)
