"""A parser of server-sent events (WHATWG HTML, 9.2.6) that takes bytes in pieces of any size."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass, field

LINE_END = re.compile(r"\r\n|\n|\r")
LARGEST_EVENT = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event of the stream."""

    name: str
    data: str


@dataclass(slots=True)
class EventReader:
    """Bytes in, events out. A character, a line break or an event may be split between two pieces."""

    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
    )
    _text: str = ""
    _name: str = ""
    _data: list[str] = field(default_factory=list)
    _size: int = 0

    def feed(self, piece: bytes) -> list[ServerEvent]:
        """Return the events that this piece completes. Raises ValueError if an event is too large."""
        text = self._text + self._decoder.decode(piece)
        events, start = [], 0
        for end in LINE_END.finditer(text):
            if end.group() == "\r" and end.end() == len(text):  # a line feed may follow in the next piece
                break
            line, start = text[start : end.start()], end.end()
            if line:
                self._take_field(line)
                continue
            if self._data:
                events.append(ServerEvent(self._name or "message", "\n".join(self._data)))
            self._name, self._data, self._size = "", [], 0
        self._text = text[start:]
        if self._size + len(self._text) > LARGEST_EVENT:
            raise ValueError("an event of the stream is too large")
        return events

    def _take_field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._name = value
        elif name == "data":
            self._data.append(value)
            self._size += len(value)
