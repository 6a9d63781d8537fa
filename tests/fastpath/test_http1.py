"""Tests of `gateway.fastpath.http1`: when the start of a streamed answer is written."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from gateway.eventloop.shared_timeouts import SharedTimeouts
from gateway.fastpath.http1 import StreamStart


class Writer:
    """Takes what is written."""

    closing = False

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def alarms(self, seconds: float) -> SharedTimeouts:
        """Return timeouts."""
        return SharedTimeouts(seconds)

    def send(self, data: bytes) -> None:
        """Take a piece."""
        self.pieces.append(data)

    def write(self, data: bytes, person: str) -> None:
        """Take a whole answer."""
        self.pieces.append(data)

    async def write_parts(self, parts: Iterable[bytes], person: str, count: int) -> None:
        """Take a long answer."""
        self.pieces += parts

    async def drain(self) -> None:
        """Return at once."""

    def abort(self) -> None:
        """End the answer."""


async def test_what_ends_at_once_is_written_in_one_piece() -> None:
    """Head, parts and end of an event stream that has ended arrive together."""
    writer = Writer()
    start = StreamStart(writer, b"head ", 3600, holds=True)
    start.send(b"event ")
    start.send(b"end")
    assert writer.pieces == []
    start.flush()
    assert writer.pieces == [b"head event end"]


async def test_a_start_is_written_after_a_moment() -> None:
    """Without an end, the head waits only shortly, and later parts not at all; of another answer, the head neither."""
    writer = Writer()
    start = StreamStart(writer, b"head", 0.001, holds=True)
    async with asyncio.timeout(60):
        while not writer.pieces:
            await asyncio.sleep(0.001)
    start.send(b"event")
    assert writer.pieces == [b"head", b"event"]
    StreamStart(writer, b"other", 3600, holds=False)
    assert writer.pieces[2:] == [b"other"]


async def test_little_is_held_back() -> None:
    """A large part is written at once."""
    writer = Writer()
    start = StreamStart(writer, b"head", 3600, holds=True)
    start.send(b"x" * 100_000)
    assert list(map(len, writer.pieces)) == [100_004]
