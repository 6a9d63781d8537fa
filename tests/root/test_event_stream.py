"""Event streams of upstreams: any split of their bytes, and input that only costs time."""

from __future__ import annotations

import tracemalloc
from itertools import chain

import pytest

from gateway.event_stream import FEW, MOST_IDLE, Event, EventReader

STREAM = (
    b"\xef\xbb\xbf: a comment\r\n\r\nid: 1\rdata: one\r\rretry: 20\nevent: other\ndata:two\r\ndata\ndata:  three\n\n"
    b"data: \xe2\x80\xa8\x0b\x1c\x85\n\nid: a\0b\nunknown: x\n\nid: 2\n\n"
).replace(b"\x85", b"\xc2\x85")
FOUND = [
    Event("message", b"one", "1", None),
    Event("other", b"two\n\n three", None, 20),
    Event("message", "\u2028\x0b\x1c\x85".encode(), None, None),
    Event("message", b"", "2", None),
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_however_they_are_cut(size: int) -> None:
    """Lines end in three ways, and nowhere else."""
    reader = EventReader(1000)
    parts = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
    assert [event for part in parts for event in reader.feed(part) if event is not None] == FOUND


@pytest.mark.parametrize(
    "idle",
    [
        b"\n",
        b"\r",
        b"\r\n",
        b":\n",
        b"x: y\r",
        b"id: 1\n\n",
        b"event: x\ndata: y\n\n",
        b"id: 1\n\n" * 50 + b"data: 7\n\n",
    ],
)
@pytest.mark.bound("lines of an event stream outside of events")
def test_lines_that_are_of_no_message_end_a_stream(idle: bytes) -> None:
    """A chunk may contain many: each takes time, and thousands of them block the event loop."""
    with pytest.raises(ValueError, match="of no message"):
        list(EventReader(2**30).feed(idle * 2**16))


def test_pings_end_no_stream() -> None:
    """They come one by one, for days, and between messages."""
    reader = EventReader(1000)
    assert not any(event for _ in range(5 * MOST_IDLE) for event in reader.feed(b": ping\n\n"))
    many = b"event: message\ndata: {}\n\n: ping\n\n" * MOST_IDLE
    assert sum(event is not None for event in EventReader(1000).feed(many)) == MOST_IDLE


@pytest.mark.parametrize("endless", [b"x", b"data: x\n"])
def test_an_event_has_an_end(endless: bytes) -> None:
    """In one line or in many."""
    reader = EventReader(1000)
    with pytest.raises(ValueError, match="more than 1000 bytes"):
        list(chain.from_iterable(reader.feed(endless) for _ in range(2000)))


def test_a_long_event_is_not_copied() -> None:
    """Neither as a whole, nor as the first one of a stream: copying blocks the event loop."""
    reader, long = EventReader(2**24), 2**23
    tracemalloc.start()
    list(reader.feed(b"data: " + b"x" * long))
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    (event,) = reader.feed(b"x\n\n")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert event is not None
    assert len(event.data) == long + 1
    assert most - before < long / 2


def test_whoever_takes_the_events_may_look_at_the_clock() -> None:
    """The reader yields None between lines, however many end no event."""
    told = list(EventReader(2**20).feed(b"data: 1\n" * 10 * FEW))
    assert told == [None] * 10
