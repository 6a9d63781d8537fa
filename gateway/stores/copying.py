"""Copies journal lines into a sink in batches, each whole line once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from gateway.stores.lines import Line, read_line
from gateway.stores.segments import lines_from

BATCH: Final = 500
"""Lines of one transaction in the gateway's own process."""

LARGE_BATCH: Final = 1500
"""Lines of one transaction in the child process: the fewer there are, the fewer pages are written twice."""

BATCH_BYTES: Final = 4 * 1024 * 1024
"""Bytes after which a batch ends in any case."""

SLICE: Final = 20
"""Lines between two yields to the event loop, which bounds the wait of an exchange."""


class PlacedLine(Struct, frozen=True):
    """A line, and the byte offset behind it in the whole journal."""

    line: Line
    end: int


@dataclass(frozen=True, slots=True)
class Position:
    """The progress of a sink: the byte offset behind its last line, and that line's hash."""

    end: int
    hash: str


class SinkSuperseded(OSError):
    """Another process fills this sink now: a late write of a dead gateway must not overwrite its successor's."""

    def __init__(self) -> None:
        super().__init__("another process has taken over since")


class LineStore(Protocol):
    """Stores journal lines; `chain` identifies a journal."""

    async def store(self, chain: str, lines: Sequence[PlacedLine], position: Position, epoch: int) -> None:
        """Store these lines, some of which may be stored already, and the position behind the last one.

        Raises `SinkSuperseded` if another filler has taken over since `epoch`, and OSError while the sink is down.
        """
        ...


class Sink(LineStore, Protocol):
    """A destination of journal lines. All methods raise OSError while it is down."""

    @property
    def name(self) -> str: ...

    async def position(self, chain: str) -> Position | None:
        """Return the progress, None if the sink is empty."""
        ...

    async def chains(self) -> Sequence[str]:
        """Return the journals of which the sink has lines."""
        ...

    async def take_over(self, chain: str) -> int:
        """Fence off all previous fillers of the journal, and return the caller's epoch (a fencing token)."""
        ...


class Stretch(Struct, frozen=True):
    """The lines of the journal `chain` in the file `path`, from byte `start` to byte `end`.

    `epoch` is the copying process's fencing token.
    """

    path: str
    chain: str
    start: int
    end: int
    epoch: int


class CopyResult(Struct, frozen=True):
    """The byte offset behind all processed lines, and the problems of those that were not copied.

    `hash` is that of the last copied line; None if there was none.
    """

    end: int
    wrong: list[str]
    hash: str | None = None


async def copy(sink: LineStore, stretch: Stretch, most: int = BATCH) -> CopyResult:
    """Copy the first whole lines of `stretch`, `most` at most. Raises OSError while the sink is down."""
    batch = await asyncio.to_thread(_batch, stretch, most)
    lines_placed, wrong = list[PlacedLine](), list[str]()
    for number, (offset, raw) in enumerate(batch, 1):
        try:
            lines_placed.append(PlacedLine(read_line(raw), offset))
        except ValueError as error:
            wrong.append(f"the line that ends at byte {offset} is not copied, it {error}")
        if number % SLICE == 0:
            await asyncio.sleep(0)  # let requests run in between
    last = Position(lines_placed[-1].end, lines_placed[-1].line.hash) if lines_placed else None
    if last is not None:
        await sink.store(stretch.chain, lines_placed, last, stretch.epoch)
    return CopyResult(batch[-1][0] if batch else stretch.end, wrong, last.hash if last is not None else None)


def _batch(stretch: Stretch, most: int) -> list[tuple[int, bytes]]:
    """Return the first lines, each with the byte offset behind it."""
    end = min(stretch.end, stretch.start + BATCH_BYTES)
    lines, lines_found = lines_from(Path(stretch.path), stretch.start), list[tuple[int, bytes]]()
    for offset, raw in islice(lines, most):
        if offset > stretch.end:
            break
        lines_found.append((offset, raw))
        if offset >= end:
            break
    return lines_found
