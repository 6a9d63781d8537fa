"""Parses one HTTP/1.1 response: bytes in, head and body out, no I/O.

Errors that RFC 9112 permits a recipient to repair, and browsers do, are repaired; all other invalid input is refused,
as is any that could be read as more than one response, as the RFC requires of intermediaries (6.3).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol

from gateway.backends.codings import Body, is_coded
from gateway.backends.fields import without_coding, without_framing
from gateway.model import Headers

LINE_BYTES: Final = 8190
"""Bytes of the longest line; header fields may be as long as the head."""

HEADER_FIELDS: Final = 128
HEAD_BYTES: Final = 64 * 1024
TRAILERS: Final = 1000
"""Trailer fields after the last chunk."""

INTERIM: Final = 1000
"""Interim responses before the final one."""

CHUNKS_SLICE: Final = 200
"""Chunks that are parsed in one time slice."""

CODED_SLICE: Final = 16 * 1024
"""Bytes of a compressed body that are decoded in one time slice: the output may be two hundred times as large."""

CACHED_HEAD_BYTES: Final = 1024
"""Bytes of the longest head that is cached: a backend repeats the same one, for a second at least."""

_START: Final = b"HTTP/1."
_STATUS: Final = re.compile(rb"HTTP/1\.([0-9]) ([1-9][0-9]{2})(?: ([\t\x20-\x7e\x80-\xff]*))?")
_FIELD: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+)[ \t]*:[ \t]*([\t\x20-\x7e\x80-\xff]*)")
_MAY_FRAME: Final = re.compile(rb"(?i)[\0\r]|content.length|transfer.encoding")
"""An invalid line that may be two, or contain the body's length, is not ignored."""

_LENGTH: Final = re.compile(r"0*([0-9]{1,18})", re.ASCII)
_CHUNK: Final = re.compile(rb"0*([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
_NO_CODING: Final = frozenset({"", "identity"})
"""Transfer codings without effect; `identity` was part of HTTP/1.1 until 2014 (RFC 2616 3.6)."""

_BODILESS: Final = frozenset({204, 304})


RETRIED: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that are repeated once if the connection proves to be closed (RFC 9110 9.2.2)."""


class ConnectionLost(ConnectionError):
    """The connection ended before any byte of a response."""


class MalformedResponse(ValueError):
    """Bytes that are not a valid response; the message tells why."""


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The head of a response, with its framing and connection state (RFC 9112 6.3, 9.3).

    `length` is None without a content length, `coding` is its `content-encoding`. `passed_on` are the fields without
    those of the connection and of the coding.
    """

    status: int
    reason: str
    headers: Headers = ()
    chunked: bool = False
    length: int | None = None
    coding: str | None = None
    reusable: bool = False
    passed_on: Headers = ()


_NO_HEAD: Final = ResponseHead(0, "")


class Notifier(Protocol):
    """A future, as far as callbacks are concerned."""

    def add_done_callback(self, fn: Callable[[Any], object], /) -> None: ...


class BodyReader(Protocol):
    """A consumer of a body."""

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        ...

    def close(self) -> bytes:
        """Return the whole body, if it was stored."""
        ...


class ResponseReader:
    """Parses the response to one request with `method`; its body may have `limit` bytes.

    `open_body` creates the consumer of the body once the head is complete: by default a `Body`, which decodes and
    stores it within the limit. `begun`: something arrived. `reusable`: the connection can carry another
    request, once `feed` has returned True. Raises `MalformedResponse`, and `Refusal` as `Body` does.
    """

    __slots__ = (
        "_body",
        "_buffer",
        "_chunks",
        "_interim",
        "_limit",
        "_method",
        "_open_body",
        "_plain",
        "_position",
        "_remaining",
        "_step",
        "_trailers",
        "_until_close",
        "begun",
        "complete",
        "enough",
        "head",
        "paused",
        "reusable",
        "until",
    )

    def __init__(
        self, method: str, limit: int, open_body: Callable[[ResponseReader, str], BodyReader] | None = None
    ) -> None:
        self.begun = False
        self.complete = False
        self.enough = False
        """Set by the consumer of the body: the rest is not needed."""
        self.paused = False
        """Parsing is paused: after many chunks or much compressed data, or by the consumer of the body."""
        self.until: Notifier | None = None
        """The future that a pause waits for; None to only let other tasks run."""
        self.reusable = False
        self.head = _NO_HEAD
        self._method = method
        self._limit = limit
        self._buffer = b""
        self._position = 0  # of the unparsed part: cutting off what was parsed would cost more with each piece
        self._trailers = 0
        self._interim = 0
        self._chunks = 0
        self._open_body = open_body
        self._body: BodyReader | None = None
        self._plain: bytes | None = None
        self._remaining = 0
        self._step: Callable[[ResponseReader], bool] = ResponseReader._head  # a bound method would be a reference cycle
        self._until_close = False

    def feed(self, data: bytes) -> bool:
        """Parse received bytes; return True once the response is complete."""
        self.begun = True
        if data:
            self._buffer = self._buffer[self._position :] + data if len(self._buffer) > self._position else data
            self._position = 0
        while self._step(self):
            pass
        self.complete = self._step is ResponseReader._end
        if self.complete and len(self._buffer) > self._position:
            self.reusable = False  # the backend sent more than was requested
        return self.complete

    def begin(self, head: ResponseHead) -> None:
        """Take a head that another parser has read; `feed` takes the body without its framing then."""
        self.begun, self._method = True, "GET" if head.status in _BODILESS else self._method
        self.head = head
        self._frame(head)
        if self._step is not ResponseReader._end:
            self._until_close, self._step = not head.chunked and head.length is None, ResponseReader._rest

    def finish(self) -> None:
        """The other parser has reached the end of the response."""
        self.complete = True

    def resume(self) -> None:
        """End the pause."""
        self.paused, self.until, self._chunks = False, None, 0

    def eof(self) -> bool:
        """The connection has ended: return True if that also ends the response."""
        if self._until_close:
            self.reusable = False
            return True
        if self.begun and self._step is ResponseReader._head:
            raise MalformedResponse("it ended in the middle of the head")
        return False

    @property
    def in_body(self) -> bool:
        """True if the head is complete."""
        return self._step is not ResponseReader._head

    def body(self) -> bytes:
        """Return the whole body of a complete response. Raises `Refusal` as `Body` does."""
        if self._plain is not None:
            return self._plain
        if self._until_close and isinstance(self._body, Body):
            self._body.check_end()
        return self._body.close() if self._body is not None else b""

    @property
    def _unparsed_bytes(self) -> int:
        """The number of unparsed bytes."""
        return len(self._buffer) - self._position

    # Each step consumes from `_received`, and returns whether the next one may run at once.

    def _head(self) -> bool:
        buffer, at = self._buffer, self._position
        if not _START.startswith(buffer[at : at + len(_START)]):
            raise MalformedResponse("it does not begin with HTTP/1.")
        # A line may end with LF alone, as those of old servers do (RFC 9112 2.2).
        end, size = buffer.find(b"\n\r\n", at), 3
        bare = buffer.find(b"\n\n", at, end + 1 if end >= 0 else len(buffer))
        if bare >= 0:
            end, size = bare, 2
        if (end - at if end >= 0 else self._unparsed_bytes) > HEAD_BYTES:
            raise MalformedResponse("its head is too long")
        if end < 0:
            return False
        raw = buffer[at:end]
        head = _parse_head(raw) if len(raw) <= CACHED_HEAD_BYTES else _parse_head.__wrapped__(raw)
        self._position = end + size
        if head.status < 200:
            self._interim += 1
            if self._interim > INTERIM:
                raise MalformedResponse("it has too many interim answers")
            return self._unparsed_bytes > 0
        self.head = head
        self._frame(head)
        return self._step is not ResponseReader._end

    def _frame(self, head: ResponseHead) -> None:
        """Determine the body's length (RFC 9112 6.3)."""
        self.reusable = head.reusable
        length = head.length
        if self._method == "HEAD" or head.status in _BODILESS:
            if head.chunked or length or self._unparsed_bytes:
                self.reusable = False  # an unexpected body must not answer the next request
            self._step = ResponseReader._end
            return
        self._body = self._open_body(self, head.coding or "") if self._open_body is not None else None
        stored = self._body is None
        if stored and length is not None and head.coding is None and self._unparsed_bytes >= length <= self._limit:
            end = self._position + length
            self._plain, self._position = self._buffer[self._position : end], end
            self._step = ResponseReader._end
            return
        self._body = self._body or Body(head.coding or "", self._limit)
        if head.chunked:
            self._step = ResponseReader._chunk_size
        elif length is not None:
            self._remaining = length
            self._step = ResponseReader._sized_body if self._remaining else ResponseReader._end
        else:
            self._until_close = True
            self._step = ResponseReader._rest

    def _sized_body(self) -> bool:
        if not self._feed_body():
            return False
        self._step = ResponseReader._end
        return False

    def _rest(self) -> bool:
        self._remaining = self._unparsed_bytes
        self._feed_body()
        return False

    def _chunk_size(self) -> bool:
        self.paused = self.paused or self._chunks >= CHUNKS_SLICE
        if self.paused:
            return False
        line = self._line()
        if line is None:
            return False
        match = _CHUNK.fullmatch(line)
        if match is None:
            raise MalformedResponse("a chunk has no size")
        self._chunks += 1
        self._remaining = int(match[1], 16)
        self._step = ResponseReader._chunk if self._remaining else ResponseReader._trailer
        return True

    def _chunk(self) -> bool:
        if not self._feed_body():
            return False
        self._step = ResponseReader._chunk_end
        return True

    def _chunk_end(self) -> bool:
        if self._unparsed_bytes < 2:
            return False
        if not self._buffer.startswith(b"\r\n", self._position):
            raise MalformedResponse("a chunk is longer than its declared size")
        self._position += 2
        self._step = ResponseReader._chunk_size
        return True

    def _trailer(self) -> bool:
        """Parse and drop one trailer field."""
        line = self._line()
        if line is None:
            return False
        self._trailers += 1
        if self._trailers > TRAILERS:
            raise MalformedResponse("it has too many trailers")
        self._step = ResponseReader._trailer if line else ResponseReader._end
        return bool(line)

    def _end(self) -> bool:
        return False

    def _line(self) -> bytes | None:
        end = self._buffer.find(b"\r\n", self._position)
        if (end - self._position if end >= 0 else self._unparsed_bytes) > LINE_BYTES:
            raise MalformedResponse("a line is too long")
        if end < 0:
            return None
        line, self._position = self._buffer[self._position : end], end + 2
        return line

    def _feed_body(self) -> bool:
        """Pass up to `_remaining` bytes to the body; return True if none are missing."""
        if self._body is not None and self._unparsed_bytes:
            size = self._remaining if self.head.coding is None else min(self._remaining, CODED_SLICE)
            piece = self._buffer[self._position : self._position + size]
            self._position += len(piece)
            self._remaining -= len(piece)
            self._body.feed(piece)
            self.paused = self.paused or (self._remaining > 0 and self._unparsed_bytes > 0)
        return self._remaining == 0


@lru_cache(maxsize=64)
def _parse_head(raw: bytes) -> ResponseHead:
    """Parse a head without its empty line; of an interim response (RFC 9110 15.2) only the status."""
    lines = [line.removesuffix(b"\r") for line in raw.split(b"\n")]
    version, status, reason = _status_line(lines[0])
    if 100 <= status < 200:
        if status == 101:
            raise MalformedResponse(f"it answered with the status {status}")
        return ResponseHead(status, reason)
    return frame_head(version != b"0", status, reason, _fields(_unfold(lines[1:])))


def frame_head(persistent: bool, status: int, reason: str, headers: Headers) -> ResponseHead:
    """Return the head with these fields, and the framing that they declare; `persistent` is false for HTTP/1.0.

    Raises `MalformedResponse` for framing that could be read in two ways.
    """
    coding = length = connection = content_coding = None
    for name, value in headers:
        if name == "transfer-encoding":
            coding = value.lower() if coding is None else f"{coding}, {value.lower()}"
        elif name == "content-length":
            length = _length(value, length)
        elif name == "connection":
            connection = value if connection is None else f"{connection},{value}"
        elif name == "content-encoding":
            content_coding = value if content_coding is None else f"{content_coding}, {value}"
    chunked = coding is not None and coding not in _NO_CODING
    if chunked and (coding != "chunked" or not persistent):
        raise MalformedResponse("it has a transfer-encoding other than chunked")
    if chunked and length is not None:
        raise MalformedResponse("it has a content-length beside chunks")
    return ResponseHead(
        status,
        reason,
        headers,
        chunked=chunked,
        length=length,
        coding=content_coding if content_coding is not None and is_coded(content_coding) else None,
        reusable=persistent and coding in (None, "chunked") and "close" not in (connection or "").lower(),
        passed_on=without_coding(without_framing(headers)),
    )


def _length(value: str, before: int | None) -> int:
    """Parse a `content-length`; repeated equal values are accepted (RFC 9112 6.3)."""
    lengths = {before} if before is not None else set()
    for one in value.split(","):
        match = _LENGTH.fullmatch(one.strip(" \t"))
        if match is None:
            raise MalformedResponse("its content-length is not a number")
        lengths.add(int(match[1]))
    if len(lengths) > 1:
        raise MalformedResponse("it has different content-lengths")
    return lengths.pop()


def _status_line(line: bytes) -> tuple[bytes, int, str]:
    match = _STATUS.fullmatch(line)
    if match is None or len(line) > LINE_BYTES:
        raise MalformedResponse("its first line is not a status line")
    return match[1], int(match[2]), (match[3] or b"").strip(b" ").decode("latin-1")


def _unfold(lines: list[bytes]) -> list[bytes]:
    """Return the lines with folded fields joined by spaces (RFC 9112 5.2), without those that precede the first field.

    A recipient must consume these without further processing (2.2).
    """
    joined: list[bytes] = []
    for line in lines:
        if not line.startswith((b" ", b"\t")):
            joined.append(line)
        elif joined and (more := line.strip(b" \t")):
            joined[-1] += b" " + more
    return joined


def _fields(lines: list[bytes]) -> Headers:
    """Parse the header fields; an invalid line is ignored, as in browsers, unless it may affect the framing."""
    if len(lines) > HEADER_FIELDS:
        raise MalformedResponse("it has too many header fields")
    fields = []
    for line in lines:
        match = _FIELD.fullmatch(line)
        if match is None and _MAY_FRAME.search(line):
            raise MalformedResponse("it has a broken header field")
        if match is not None:
            fields.append((match[1].decode("ascii").lower(), match[2].rstrip(b" \t").decode("latin-1")))
    return tuple(fields)
