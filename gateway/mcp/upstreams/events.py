"""Server-sent events, read from bytes as they come (WHATWG HTML, 9.2.6), with a limit on each event."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_LINE: Final = re.compile(rb"([^\r\n]*)(?:\n|\r\n?)")


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `retry` is in milliseconds."""

    type: str
    data: str
    id: str | None
    retry: int | None


MOST_IDLE = 1000
"""Lines, in what comes at once, that are of no message: to read them takes time from all others."""

IDLE_EACH = 16
"""Those that a message may have beside it, without being one of so many."""

FEW = 64
"""Lines after which whoever takes the events may look at the clock, where there is none in them."""


class EventReader:
    """Gives the events in what it is fed. Raises ValueError for one beyond `limit` bytes, no UTF-8, or idle lines."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._data: list[str] = []
        self._size = 0
        self._type = "message"
        self._id: str | None = None
        self._retry: int | None = None
        self._first = True

    def feed(self, part: bytes) -> Iterator[Event | None]:
        """The events that `part` completes, and None now and then between them."""
        idle = 0
        for count, line in enumerate(self._lines(part), 1):
            event = self._take(line.decode())
            if event is not None or not count % FEW:
                yield event
            if event is not None and event.data and event.type == "message":
                idle = max(0, idle - IDLE_EACH)
            elif not line.startswith(b"data"):
                idle += 1
                if idle > MOST_IDLE:
                    raise ValueError(f"more than {MOST_IDLE} lines at once that are of no message")
        if self._size + len(self._rest) > self._limit:
            raise ValueError(f"an event of more than {self._limit} bytes")

    def _lines(self, part: bytes) -> Iterator[bytes]:
        """The lines that `part` completes; the last one of all waits, also where a line feed may follow it."""
        ended = self._rest.endswith(b"\r")
        self._rest += part
        if not ended and b"\n" not in part and b"\r" not in part:
            return
        whole = bytes(self._rest)
        last = len(whole) - whole.endswith(b"\r")
        end = max(whole.rfind(b"\n", 0, last), whole.rfind(b"\r", 0, last)) + 1
        start = 0
        if end and self._first:
            self._first = False
            start = 3 if whole.startswith(b"\xef\xbb\xbf") else 0
        self._rest = bytearray(whole[end:])
        if b"\r" in whole:
            for found in _LINE.finditer(whole, start, end):
                yield found[1]
            return
        while start < end:
            stop = whole.index(b"\n", start)
            yield whole[start:stop]
            start = stop + 1

    def _take(self, line: str) -> Event | None:
        if not line:
            return self._done()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        self._size += len(line)
        match name:
            case "data":
                self._data.append(value)
            case "event":
                self._type = value or "message"
            case "id" if "\0" not in value:
                self._id = value
            case "retry" if value.isascii() and value.isdigit() and len(value) < 10:
                self._retry = int(value)
        return None

    def _done(self) -> Event | None:
        event = Event(self._type, "\n".join(self._data), self._id, self._retry)
        told = bool(self._data) or self._id is not None or self._retry is not None
        self._data, self._size, self._type, self._id, self._retry = [], 0, "message", None, None
        return event if told else None
