"""HTTP/1.1 on the fast path: the one parser of request heads (RFC 9112), and answers in the same form as aiohttp's.

The parser is stricter than any other: a head that two parsers could read differently is left to aiohttp.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Final, Protocol

from aiohttp.helpers import rfc822_formatted_time
from multidict import CIMultiDict, istr

from gateway.doors.responses import NAME
from gateway.doors.site import site_headers
from gateway.event_stream import BUFFERING
from gateway.eventloop.shared_timeouts import SharedTimeouts
from gateway.mcp.fast import EVENTS, PING, last_event
from gateway.model import Headers, Response

LONGEST_HEAD: Final = 8190
"""Bytes of the longest request head that is parsed here."""

MOST_FIELDS: Final = 100
"""Header fields of a head that is parsed here; aiohttp refuses more than 128."""

NAMES: Final = 256
"""Field names of which heads share the text."""

_METHODS: Final = rb"GET|POST|PUT|PATCH|DELETE"
_PATH: Final = rb"(?:/(?![./])[A-Za-z0-9._~!$&'()*+,;=:@-]*)+"
"""A path in origin-form (RFC 9112, 3.2.1) that needs no decoding and no normalising; `//` may begin an authority."""

_QUERY: Final = rb"[A-Za-z0-9._~!$&'()*+,;=:@/?%-]*"
_NAME: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}"
_HEAD: Final = re.compile(
    rb"(%b) ((%b)(?:\?%b)?) HTTP/1\.1\r\n((?:%b: ?[\x21-\x7e][\x20-\x7e]*\r\n)+)" % (_METHODS, _PATH, _QUERY, _NAME)
)

_ASIDE: Final = frozenset(
    {
        b"content-encoding",
        b"expect",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Fields of requests that are framed, coded or continued otherwise than by `Content-Length`."""

_CONNECTION: Final = frozenset({b"keep-alive", b"close"})


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A head that is eligible for the fast path, with a body of `length` bytes; `target` is path and query.

    `fields` are the header fields as they came. `last` means that the client asks to close the connection afterwards.
    """

    method: str
    target: str
    path: str
    length: int
    fields: tuple[tuple[bytes, bytes], ...]
    headers: CIMultiDict[str]
    last: bool


def read_head(raw: bytes) -> RequestHead | None:
    """Parse a head with its empty line; return None if it is not plainly eligible."""
    match = _HEAD.fullmatch(raw, 0, len(raw) - 2)
    if match is None:
        return None
    method, target, path, lines = match.groups()
    fields = tuple(
        (_shared_name(name)[0], value.strip(b" "))
        for name, _, value in (line.partition(b":") for line in lines.split(b"\r\n") if line)
    )
    values = {name.lower(): value for name, value in fields}
    connection = values.get(b"connection", b"keep-alive").lower()
    length = values.get(b"content-length", b"0" if method == b"GET" else b"")
    if (
        len(values) != len(fields)
        or len(fields) > MOST_FIELDS
        or not _ASIDE.isdisjoint(values)
        or connection not in _CONNECTION
    ):
        return None
    if b"host" not in values or not length.isdigit() or len(length) > 7 or (method == b"GET" and length != b"0"):
        return None
    headers = CIMultiDict((_shared_name(name)[1], value.decode("ascii")) for name, value in fields)
    last = connection == b"close"
    return RequestHead(method.decode(), target.decode(), path.decode(), int(length), fields, headers, last)


@lru_cache(maxsize=NAMES)
def _shared_name(name: bytes) -> tuple[bytes, istr]:
    """Return a field name as bytes and as text, the same objects for all heads that have it."""
    return name, istr(name.decode("ascii"))


LAST_CHUNK: Final = b"0\r\n\r\n"
"""The end of a chunked body (RFC 9112, 7.1)."""

BODILESS: Final = frozenset({204, 304})
"""Statuses of answers without a body, which no framing field announces (RFC 9110, 8.6 and RFC 9112, 6.1)."""

_STREAM: Final = {"content-type": "text/event-stream", "cache-control": "no-cache, no-transform"}
_CLOSING: Final = b"Connection: close\r\n"
_JSON_START: Final = b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\n"
_REASONS: Final = {one.value: one.phrase.encode() for one in HTTPStatus}
_SERVER: Final = f"Server: {NAME}\r\n\r\n".encode("ascii")


class ResponseWriter(Protocol):
    """The connection that takes one answer: `gateway.fastpath.connection.FastConnection`."""

    @property
    def closing(self) -> bool:
        """True if an answer that begins now is the last one on this connection."""
        ...

    def alarms(self, seconds: float) -> SharedTimeouts:
        """Return the shared timeouts of this duration."""
        ...

    def send(self, data: bytes) -> None:
        """Write a part of an answer."""
        ...

    def write(self, data: bytes, person: str) -> None:
        """Write a complete answer to a request of `person`."""
        ...

    async def write_parts(self, parts: Iterable[bytes], person: str, count: int) -> None:
        """Write a long answer of `count` bytes with backpressure, in turns with other connections."""
        ...

    async def drain(self) -> None:
        """Wait while the write buffer is full."""
        ...

    def abort(self) -> None:
        """Abort the connection in the middle of an answer."""
        ...


_HELD: Final = 64 * 1024
"""Bytes of a streamed answer that are held back at most."""


class StreamStart:
    """Sends the start of an event stream in one piece: up to its end, or what arrives within `seconds`.

    A page must not see a stream open that has ended. Of another answer, `holds` is false: nothing is held back.
    """

    def __init__(self, writer: ResponseWriter, head: bytes, seconds: float, *, holds: bool) -> None:
        self._writer = writer
        self._head = head
        self._alarms = alarms = writer.alarms(seconds)
        self._alarm = alarms.set(self.flush)
        if not holds:
            self.flush()

    def send(self, data: bytes) -> None:
        """Write a part, or hold it back."""
        if self._head:
            self._head += data
            if len(self._head) > _HELD:
                self.flush()
        else:
            self._writer.send(data)

    def flush(self) -> None:
        """Write what is held back, and hold back nothing more."""
        self._alarms.cancel(self._alarm)
        head, self._head = self._head, b""
        if head:
            self._writer.send(head)


class JsonAnswer:
    """One answer in JSON: whole, or an event stream that begins after some seconds of silence, with pings."""

    def __init__(self, writer: ResponseWriter, silence: float) -> None:
        self._writer = writer
        self._begun = False
        self._alarms = alarms = writer.alarms(silence)
        self._alarm = alarms.set(self._ping)

    def end(self) -> None:
        """Stop the pings, as the answer is complete or the call was cancelled."""
        self._alarms.cancel(self._alarm)

    def rest(self, text: str, status: int) -> bytes:
        """Return the remaining bytes, with the answer."""
        if self._begun:
            return b"".join(chunk(piece) for piece in last_event(text)) + LAST_CHUNK
        body = text.encode()
        return _json_head(len(body), status, self._closing()) + body

    def pieces(self, answer: list[bytes], status: int) -> Iterator[bytes]:
        """Yield the same for a long answer."""
        if self._begun:
            yield from map(chunk, last_event(answer))
            yield LAST_CHUNK
        else:
            yield _json_head(sum(map(len, answer)), status, self._closing())
            yield from answer

    def _closing(self) -> bytes:
        return _CLOSING if self._writer.closing else b""

    def _ping(self) -> None:
        if not self._begun:
            self._begun = True
            self._writer.send(_event_head(self._closing()))
        self._writer.send(chunk(PING))
        self._alarm = self._alarms.set(self._ping)


def stream_head(session: str, *, last: bool) -> bytes:
    """Return the head of a session's standing stream, in aiohttp's form."""
    return _chunked_head(_STREAM | {"mcp-session-id": session, **dict([BUFFERING])}, _CLOSING if last else b"")


def site_head(response: Response, size: int | None, *, last: bool) -> bytes:
    """Return the head of an answer at an app's site, with a body of `size` bytes; None for a chunked body."""
    closing = _CLOSING if last else b""
    start = _site_start(response.status, response.reason_phrase, response.headers, response.length, date())
    if response.length is not None or response.status in BODILESS:
        framing = b""
    elif size is None:
        framing = b"Transfer-Encoding: chunked\r\n"
    else:
        framing = b"Content-Length: %d\r\n" % size
    return b"%b%b%b%b" % (start, framing, closing, _SERVER)


@lru_cache(maxsize=256)
def _site_start(status: int, reason: str, headers: Headers, length: int | None, now: str) -> bytes:
    fields = [(name, value) for name, value in site_headers(headers, length) if name != "server"]
    if all(name != "date" for name, _ in fields):
        fields.append(("Date", now))
    lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in fields), ""]
    return "\r\n".join(lines).encode("latin-1")  # each character one byte (Fetch, "isomorphic encode")


def chunk(data: bytes) -> bytes:
    """Return a chunk of a chunked body (RFC 9112, 7.1)."""
    return b"%x\r\n%b\r\n" % (len(data), data)


date: Callable[[], str] = rfc822_formatted_time
"""Return the current value of the `Date` field."""


def _json_head(length: int, status: int, more: bytes) -> bytes:
    """Return the head of an answer in aiohttp's form."""
    start = _JSON_START % (status, _REASONS[status])
    return b"%bContent-Length: %d\r\nDate: %b\r\n%b%b" % (start, length, date().encode("ascii"), more, _SERVER)


def _event_head(more: bytes) -> bytes:
    return _chunked_head(EVENTS, more)


def _chunked_head(values: Mapping[str, str], more: bytes) -> bytes:
    fields = "".join(f"{name}: {value}\r\n" for name, value in values.items())
    head = f"HTTP/1.1 200 OK\r\n{fields}Transfer-Encoding: chunked\r\nDate: {date()}\r\n"
    return b"%b%b%b" % (head.encode("ascii"), more, _SERVER)
