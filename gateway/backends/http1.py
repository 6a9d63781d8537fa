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

from gateway.backends.body import Body
from gateway.backends.codings import is_coded
from gateway.backends.fields import without_framing
from gateway.model import Headers

LINE_BYTES: Final = 8190
"""Bytes of the longest line; header fields may be as long as the head."""

HEADER_FIELDS: Final = 128
HEAD_BYTES: Final = 64 * 1024
TRAILERS: Final = 1000
"""Trailer fields after the last chunk."""

INTERIM: Final = 1000
"""Interim responses before the final one."""

CHUNKS: Final = 200
"""Chunks that are parsed in one time slice."""

CODED: Final = 16 * 1024
"""Bytes of a compressed body that are decoded in one time slice: the output may be two hundred times as large."""

REMEMBERED: Final = 1024
"""Bytes of the longest head that is cached: a backend repeats the same one, for a second at least."""

_START: Final = b"HTTP/1."
_STATUS: Final = re.compile(rb"HTTP/1\.([0-9]) ([1-9][0-9]{2})(?: ([\t\x20-\x7e\x80-\xff]*))?")
_FIELD: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+)[ \t]*:[ \t]*([\t\x20-\x7e\x80-\xff]*)")
_MEANT: Final = re.compile(rb"(?i)[\0\r]|content.length|transfer.encoding")
"""An invalid line that may be two, or contain the body's length, is not ignored."""

_LENGTH: Final = re.compile(r"0*([0-9]{1,18})", re.ASCII)
_CHUNK: Final = re.compile(rb"0*([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
_NO_CODING: Final = frozenset({"", "identity"})
"""Transfer codings without effect; `identity` was part of HTTP/1.1 until 2014 (RFC 2616 3.6)."""

_BODILESS: Final = frozenset({204, 304})


class Malformed(ValueError):
    """Bytes that are not a valid response; the message tells why."""


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The head of a response, with its framing and connection state (RFC 9112 6.3, 9.3).

    `length` is None without a content length, `coding` is its `content-encoding`. `shown` are the fields without those
    of the connection.
    """

    status: int
    reason: str
    headers: Headers = ()
    chunked: bool = False
    length: int | None = None
    coding: str | None = None
    reusable: bool = False
    shown: Headers = ()


_NO_HEAD: Final = ResponseHead(0, "")


class Awaited(Protocol):
    """A future, as far as callbacks are concerned."""

    def add_done_callback(self, fn: Callable[[Any], object], /) -> None: ...


class Taker(Protocol):
    """A consumer of a body."""

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        ...

    def close(self) -> bytes:
        """Return the whole body, if it was stored."""
        ...


class ResponseReader:
    """Parses the response to one request with `method`; its body may have `limit` bytes.

    `taker` creates the consumer of the body once the head is complete: by default a `Body`, which decodes and stores it
    within the limit. `begun`: something arrived. `reusable`: the connection can carry another request, once `feed` has
    returned True. Raises `Malformed`, and `Refusal` as `Body` does.
    """

    def __init__(self, method: str, limit: int, taker: Callable[[ResponseReader, str], Taker] | None = None) -> None:
        self.begun = False
        self.complete = False
        self.enough = False
        """Set by the consumer of the body: the rest is not needed."""
        self.held = False
        """Parsing is paused: after many chunks or much compressed data, or by the consumer of the body."""
        self.until: Awaited | None = None
        """The future that a pause waits for; None to only let other tasks run."""
        self.reusable = False
        self.head = _NO_HEAD
        self._method = method
        self._limit = limit
        self._kept = b""
        self._at = 0  # start of the unparsed part of `_kept`: cutting it off each time would cost more with each piece
        self._trailers = 0
        self._interim = 0
        self._chunks = 0
        self._taker = taker
        self._body: Taker | None = None
        self._plain: bytes | None = None
        self._left = 0
        self._step: Callable[[ResponseReader], bool] = ResponseReader._head  # a bound method would be a reference cycle
        self._until_close = False

    def feed(self, data: bytes) -> bool:
        """Parse received bytes; return True once the response is complete."""
        self.begun = True
        if data:
            self._kept = self._kept[self._at :] + data if len(self._kept) > self._at else data
            self._at = 0
        while self._step(self):
            pass
        self.complete = self._step is ResponseReader._done
        if self.complete and len(self._kept) > self._at:
            self.reusable = False  # the backend sent more than was requested
        return self.complete

    def go_on(self) -> None:
        """End the pause."""
        self.held, self.until, self._chunks = False, None, 0

    def eof(self) -> bool:
        """The connection has ended: return True if that also ends the response."""
        if self._until_close:
            self.reusable = False
            return True
        if self.begun and self._step is ResponseReader._head:
            raise Malformed("it ended in the middle of the head")
        return False

    @property
    def in_body(self) -> bool:
        """Whether the head is complete."""
        return self._step is not ResponseReader._head

    def body(self) -> bytes:
        """Return the whole body of a complete response. Raises `Refusal` as `Body` does."""
        if self._plain is not None:
            return self._plain
        if self._until_close and isinstance(self._body, Body):
            self._body.check_end()
        return self._body.close() if self._body is not None else b""

    @property
    def _over(self) -> int:
        """The number of unparsed bytes."""
        return len(self._kept) - self._at

    # Each step consumes from `_kept`, and returns whether the next one may run at once.

    def _head(self) -> bool:
        kept, at = self._kept, self._at
        if not _START.startswith(kept[at : at + len(_START)]):
            raise Malformed("it does not begin with HTTP/1.")
        # A line may end with LF alone, as those of old servers do (RFC 9112 2.2).
        end, size = kept.find(b"\n\r\n", at), 3
        bare = kept.find(b"\n\n", at, end if end >= 0 else len(kept))
        if bare >= 0:
            end, size = bare, 2
        if (end - at if end >= 0 else self._over) > HEAD_BYTES:
            raise Malformed("its head is too long")
        if end < 0:
            return False
        said = kept[at:end]
        head = _read_head(said) if len(said) <= REMEMBERED else _read_head.__wrapped__(said)
        self._at = end + size
        if head.status < 200:
            self._interim += 1
            if self._interim > INTERIM:
                raise Malformed("it has too many interim answers")
            return self._over > 0
        self.head = head
        self._frame(head)
        return self._step is not ResponseReader._done

    def _frame(self, head: ResponseHead) -> None:
        """Determine the body's length (RFC 9112 6.3)."""
        self.reusable = head.reusable
        length = head.length
        if self._method == "HEAD" or head.status in _BODILESS:
            if head.chunked or length or self._over:
                self.reusable = False  # an unexpected body must not answer the next request
            self._step = ResponseReader._done
            return
        self._body = self._taker(self, head.coding or "") if self._taker is not None else None
        kept = self._body is None
        if kept and length is not None and head.coding is None and self._over >= length <= self._limit:
            end = self._at + length
            self._plain, self._at = self._kept[self._at : end], end
            self._step = ResponseReader._done
            return
        self._body = self._body or Body(head.coding or "", self._limit)
        if head.chunked:
            self._step = ResponseReader._chunk_size
        elif length is not None:
            self._left = length
            self._step = ResponseReader._counted if self._left else ResponseReader._done
        else:
            self._until_close = True
            self._step = ResponseReader._rest

    def _counted(self) -> bool:
        if not self._take():
            return False
        self._step = ResponseReader._done
        return False

    def _rest(self) -> bool:
        self._left = self._over
        self._take()
        return False

    def _chunk_size(self) -> bool:
        self.held = self.held or self._chunks >= CHUNKS
        if self.held:
            return False
        line = self._line()
        if line is None:
            return False
        found = _CHUNK.fullmatch(line)
        if found is None:
            raise Malformed("a chunk has no size")
        self._chunks += 1
        self._left = int(found[1], 16)
        self._step = ResponseReader._chunk if self._left else ResponseReader._trailer
        return True

    def _chunk(self) -> bool:
        if not self._take():
            return False
        self._step = ResponseReader._chunk_end
        return True

    def _chunk_end(self) -> bool:
        if self._over < 2:
            return False
        if not self._kept.startswith(b"\r\n", self._at):
            raise Malformed("a chunk does not end where it said")
        self._at += 2
        self._step = ResponseReader._chunk_size
        return True

    def _trailer(self) -> bool:
        """Parse and drop one trailer field."""
        line = self._line()
        if line is None:
            return False
        self._trailers += 1
        if self._trailers > TRAILERS:
            raise Malformed("it has too many trailers")
        self._step = ResponseReader._trailer if line else ResponseReader._done
        return bool(line)

    def _done(self) -> bool:
        return False

    def _line(self) -> bytes | None:
        end = self._kept.find(b"\r\n", self._at)
        if (end - self._at if end >= 0 else self._over) > LINE_BYTES:
            raise Malformed("a line is too long")
        if end < 0:
            return None
        line, self._at = self._kept[self._at : end], end + 2
        return line

    def _take(self) -> bool:
        """Pass up to `_left` bytes to the body; return True if none are missing."""
        if self._body is not None and self._over:
            size = self._left if self.head.coding is None else min(self._left, CODED)
            piece = self._kept[self._at : self._at + size]
            self._at += len(piece)
            self._left -= len(piece)
            self._body.feed(piece)
            self.held = self.held or (self._left > 0 and self._over > 0)
        return self._left == 0


@lru_cache(maxsize=64)
def _read_head(said: bytes) -> ResponseHead:
    """Parse a head without its empty line; of an interim response (RFC 9110 15.2) only the status."""
    lines = [line.removesuffix(b"\r") for line in said.split(b"\n")]
    version, status, reason = _status_line(lines[0])
    if 100 <= status < 200:
        if status == 101:
            raise Malformed(f"it answered with the status {status}")
        return ResponseHead(status, reason)
    headers = _fields(_unfolded(lines[1:]))
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
    if chunked and (coding != "chunked" or version == b"0"):
        raise Malformed("it has a transfer-encoding other than chunked")
    if chunked and length is not None:
        raise Malformed("it has a content-length beside chunks")
    return ResponseHead(
        status,
        reason,
        headers,
        chunked=chunked,
        length=length,
        coding=content_coding if content_coding is not None and is_coded(content_coding) else None,
        reusable=version != b"0" and coding in (None, "chunked") and "close" not in (connection or "").lower(),
        shown=without_framing(headers),
    )


def _length(value: str, before: int | None) -> int:
    """Parse a `content-length`; repeated equal values are accepted (RFC 9112 6.3)."""
    lengths = {before} if before is not None else set()
    for one in value.split(","):
        found = _LENGTH.fullmatch(one.strip(" \t"))
        if found is None:
            raise Malformed("its content-length is no number")
        lengths.add(int(found[1]))
    if len(lengths) > 1:
        raise Malformed("it says different content-lengths")
    return lengths.pop()


def _status_line(line: bytes) -> tuple[bytes, int, str]:
    found = _STATUS.fullmatch(line)
    if found is None or len(line) > LINE_BYTES:
        raise Malformed("its first line is no status line")
    return found[1], int(found[2]), (found[3] or b"").strip(b" ").decode("latin-1")


def _unfolded(lines: list[bytes]) -> list[bytes]:
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
        raise Malformed("it has too many header fields")
    fields = []
    for line in lines:
        found = _FIELD.fullmatch(line)
        if found is None and _MEANT.search(line):
            raise Malformed("it has a broken header field")
        if found is not None:
            fields.append((found[1].decode("ascii").lower(), found[2].rstrip(b" \t").decode("latin-1")))
    return tuple(fields)
