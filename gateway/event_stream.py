"""A parser of server-sent events (WHATWG HTML, 9.2.6), with a limit on each event."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.bounds import Area, Bound

BUFFERING: Final = ("x-accel-buffering", "no")
"""The header field by which nginx, and proxies that follow it, pass on each event at once."""

UNBUFFERED: Final = dict((("cache-control", "no-store, no-transform"), BUFFERING))
"""Header fields of an event stream: no proxy stores, compresses or buffers it (RFC 9111, 5.2.2.6)."""


def unbuffered_headers(headers: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the header fields of another server's event stream, with those that keep proxies from buffering it."""
    fields = [(name, value) for name, value in headers if name.lower() not in ("cache-control", BUFFERING[0])]
    directives = [value for name, value in headers if name.lower() == "cache-control"]
    words = ", ".join(directives) or "no-cache"
    if "no-transform" not in words.lower():
        words += ", no-transform"
    return [*fields, ("cache-control", words), BUFFERING]


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `data` is in UTF-8, `retry` in milliseconds."""

    type: str
    data: bytes | bytearray
    id: str | None
    retry: int | None


MOST_IDLE = 1000
"""Lines in one chunk that belong to no message: parsing them takes time from others."""

BOUNDS: Final = (
    Bound(
        Area.UPSTREAMS,
        "lines of an event stream outside of events",
        f"{MOST_IDLE:,}",
        "the stream ends",
    ),
)

(_IDLE_LINES,) = BOUNDS

IDLE_EACH = 16
"""Lines of no message that each message offsets."""

BOM = b"\xef\xbb\xbf"

FEW = 64
"""Lines after which None is yielded, so that the caller can check the clock."""


class EventReader:
    """Yields the events in the bytes fed. Raises ValueError for one over `limit` bytes, bad UTF-8, or idle lines."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._returned = False
        self._data = bytearray()
        self._size = 0
        self._type = "message"
        self._id: str | None = None
        self._retry: int | None = None
        self._first = True

    def feed(self, part: bytes) -> Iterator[Event | None]:
        """Yield the events that `part` completes, and now and then None."""
        idle = 0
        for count, line in enumerate(self._lines(part), 1):
            is_data, event = line.startswith(b"data"), self._take(line)
            if event is not None or not count % FEW:
                yield event
            if event is not None and event.data and event.type == "message":
                idle = max(0, idle - IDLE_EACH)
            elif not is_data:
                idle += 1
                if idle > MOST_IDLE:
                    _IDLE_LINES.report()
                    raise ValueError(f"more than {MOST_IDLE} lines at once that are of no message")
        if self._size + len(self._rest) > self._limit:
            raise ValueError(f"an event of more than {self._limit} bytes")

    def _lines(self, part: bytes) -> Iterator[bytes | bytearray]:
        """Yield the lines that `part` completes, with any line ending."""
        returned, self._returned = self._returned, part.endswith(b"\r")
        if returned:
            part = part.removeprefix(b"\n")
        if b"\r" in part:
            part = part.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        start = 0
        while (stop := part.find(b"\n", start)) >= 0:
            line, start = self._end_line(part[start:stop]), stop + 1
            yield line
        self._rest += part[start:]

    def _end_line(self, end: bytes) -> bytes | bytearray:
        """Return the line that `end` completes."""
        line: bytes | bytearray = end
        if self._rest:
            self._rest += end
            line, self._rest = self._rest, bytearray()
        first, self._first = self._first, False
        return line.removeprefix(BOM) if first and line.startswith(BOM) else line  # no copy of a long one

    def _take(self, line: bytes | bytearray) -> Event | None:
        if not line:
            return self._dispatch()
        self._size += len(line)
        if line.startswith(b"data:"):
            start = 6 if line.startswith(b" ", 5) else 5
            if isinstance(line, bytearray) and not self._data:
                del line[:start]  # no copy of a long one
                self._data = line
            else:
                self._data += memoryview(line)[start:]
            self._data += b"\n"
            return None
        name, _, value = line.decode().partition(":")
        value = value.removeprefix(" ")
        match name:
            case "data":
                self._data += b"\n"
            case "event":
                self._type = value or "message"
            case "id" if "\0" not in value:
                self._id = value
            case "retry" if value.isascii() and value.isdigit() and len(value) < 10:
                self._retry = int(value)
        return None

    def _dispatch(self) -> Event | None:
        has_fields = bool(self._data) or self._id is not None or self._retry is not None
        del self._data[-1:]
        event = Event(self._type, self._data, self._id, self._retry)
        self._data, self._size, self._type, self._id, self._retry = bytearray(), 0, "message", None, None
        return event if has_fields else None
