"""The bound on unsolicited messages, by a clock that tests move."""

from __future__ import annotations

from gateway.mcp.upstreams.transport.notifications import MESSAGES, SIZE, WHILE, Flood
from tests.clock import Clock


def flood_error(flood: Flood, count: int, size: int = 0) -> list[str]:
    """Return the error after so many messages."""
    found = []
    for _ in range(count):
        flood.count_message(size)
        found.append(flood.over())
    return [why for why in found if why is not None]


def test_a_flood_is_one_of_messages_or_of_bytes() -> None:
    """The bound is exact to the message."""
    flood = Flood(Clock())
    assert not flood_error(flood, MESSAGES)
    assert flood_error(flood, 1) == ["the upstream sent too many unsolicited messages"]
    assert not flood_error(large := Flood(Clock()), 64, SIZE // 64)
    assert flood_error(large, 1, 1) == [f"the upstream sent {SIZE} unsolicited bytes"]


def test_an_answer_ends_it() -> None:
    """As many may follow again."""
    flood = Flood(Clock())
    for _ in range(3):
        assert not flood_error(flood, MESSAGES, SIZE // MESSAGES)
        flood.ebb()


def test_a_little_for_long_is_none() -> None:
    """A ping every second, or progress of a long call, is never cut off; much more is."""
    clock = Clock()
    for rate, cut in ((0.5, False), (2.0, True)):
        flood, found = Flood(clock), list[str]()
        for _ in range(300):
            clock.now += WHILE / 100
            found += flood_error(flood, int(rate * MESSAGES / 100), SIZE // MESSAGES)
        assert bool(found) is cut
