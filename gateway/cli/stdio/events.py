"""The messages in an event stream of the gateway."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from gateway.event_stream import EventReader

LARGEST = 64 * 1024 * 1024
"""Bytes of the largest event; an app of several megabytes is one event."""


@dataclass(slots=True)
class Messages:
    """Bytes in, data of events out; `last_id` is the latest event id, with which a broken stream is resumed."""

    last_id: str | None = None
    _reader: EventReader = field(default_factory=lambda: EventReader(LARGEST))

    def feed(self, data: bytes) -> Iterator[str]:
        """Yield the data of events completed by `data`. Raises ValueError for an event that is too large."""
        for event in self._reader.feed(data):
            if event is None:
                continue
            if event.id is not None:
                self.last_id = event.id
            if event.data:  # an event with only an id, for resumption, has no data
                yield event.data.decode()
