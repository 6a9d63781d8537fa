"""Parses event streams (WHATWG HTML, 9.2) as far as MCP uses them: each event's data and id."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

LARGEST = 64 * 1024 * 1024
"""Bytes of the largest event; an app of several megabytes is one event."""


class EventTooLarge(ValueError):
    """An event exceeds the limit."""


@dataclass(slots=True)
class EventReader:
    """Bytes in, data of events out; `last_id` is the latest event id."""

    last_id: str | None = None
    _kept: bytearray = field(default_factory=bytearray)
    _data: list[str] = field(default_factory=list)
    _size: int = 0

    def feed(self, data: bytes) -> Iterator[str]:
        """Yield the data of events completed by `data`. Raises `EventTooLarge`."""
        self._kept += data
        if b"\n" not in data:
            self._check(len(self._kept))
            return
        lines = bytes(self._kept).split(b"\n")
        self._kept = bytearray(lines.pop())
        for raw in lines:
            line = raw.removesuffix(b"\r").decode("utf-8", "replace")
            if not line:
                if any(self._data):  # an event with only an id, for resumption, has no data
                    yield "\n".join(self._data)
                self._data, self._size = [], 0
            elif line.startswith("data:"):
                self._data.append(line[5:].removeprefix(" "))
                self._size += len(line)
                self._check(self._size)
            elif line.startswith("id:"):
                self.last_id = line[3:].strip()

    def _check(self, size: int) -> None:
        if size > LARGEST:
            raise EventTooLarge(f"an event is larger than {LARGEST} bytes")
