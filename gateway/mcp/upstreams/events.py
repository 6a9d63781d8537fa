"""Server-sent events, read from bytes as they come (WHATWG HTML, 9.2.6), with a limit on each event."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `retry` is in milliseconds."""

    type: str
    data: str
    id: str | None
    retry: int | None


class EventReader:
    """Gives the events in what it is fed. Raises ValueError for one beyond `limit` bytes, or no UTF-8."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._searched = 0
        self._data: list[str] = []
        self._size = 0
        self._type = "message"
        self._id: str | None = None
        self._retry: int | None = None
        self._first = True

    def feed(self, part: bytes) -> Iterator[Event]:
        """The events that `part` completes."""
        self._rest += part
        while (line := self._line()) is not None:
            event = self._take(line.decode())
            if event is not None:
                yield event
        if self._size + len(self._rest) > self._limit:
            raise ValueError(f"an event of more than {self._limit} bytes")

    def _line(self) -> bytes | None:
        feed = self._rest.find(b"\n", self._searched)
        returned = self._rest.find(b"\r", self._searched, feed if feed >= 0 else len(self._rest))
        at = returned if returned >= 0 else feed
        if at < 0:
            self._searched = len(self._rest)
            return None
        return self._cut(at)

    def _cut(self, at: int) -> bytes | None:
        if self._rest[at] == 0x0D and at + 1 == len(self._rest):
            self._searched = at  # a line feed may follow
            return None
        line = bytes(self._rest[:at])
        del self._rest[: at + (2 if self._rest[at : at + 2] == b"\r\n" else 1)]
        self._searched = 0
        if self._first:
            self._first = False
            return line.removeprefix(b"\xef\xbb\xbf")
        return line

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
