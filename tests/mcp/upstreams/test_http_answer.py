"""The answer of an upstream over HTTP, read as its bytes arrive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from gateway.eventloop.fair_share import RoundRobin, TimeSlices
from gateway.mcp.upstreams.transport.requests import Credentials, HttpAnswer, StreamPosition

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
COUNT = 30_000


class Counted(RoundRobin):
    """Counts the turns taken."""

    times = 0

    def add(self, go_on: Callable[[], object], worked: float = 0.0) -> None:
        """Count one more."""
        self.times += 1
        super().add(go_on, worked)


async def test_many_events_that_nobody_asked_for_are_taken_in_turn() -> None:
    """However many arrive at once; until then the connection is not read further."""
    in_turn, taken = Counted(), list[object]()

    def take(message: object, related: int | None, size: int) -> bool:
        taken.append(message)
        return False

    credentials = Credentials(cast(Any, None), cast(Any, None), lambda: None)
    answer = HttpAnswer("POST", 2**20, StreamPosition(None), take, credentials, TimeSlices(in_turn))
    answer.reading.feed(HEAD + b"".join(b"data: %d\n\n" % number for number in range(COUNT)))
    assert answer.reading.paused
    await answer.wait_for_end()
    assert taken == [*range(COUNT)]
    assert in_turn.times > 5
