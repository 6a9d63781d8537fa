"""How lines of a journal come into a sink: some at a time, each whole line once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from gateway.stores.lines import Line, read_line
from gateway.stores.segments import lines_from

BATCH: Final = 500
SLICE: Final = 20
"""Lines that are read at a time: an exchange that comes meanwhile waits no longer."""


class Placed(Struct, frozen=True):
    """A line, and the byte of the whole journal behind it."""

    line: Line
    end: int


@dataclass(frozen=True, slots=True)
class Position:
    """How far a sink is: the byte behind the last line that it has, and that line's hash."""

    end: int
    hash: str


class Superseded(OSError):
    """Another process fills this sink by now: what a dead gateway left behind overwrites nothing of the next one."""

    def __init__(self) -> None:
        super().__init__("another process has taken over since")


class Sink(Protocol):
    """Where the lines of a journal, whose `chain` it is, also go. All raise OSError while it is down."""

    @property
    def name(self) -> str: ...

    async def position(self, chain: str) -> Position | None:
        """How far it is, None if it has nothing."""
        ...

    async def chains(self) -> Sequence[str]:
        """The journals of which it has lines."""
        ...

    async def take_over(self, chain: str) -> int:
        """Keep everybody who fills the journal in so far from storing anything more; the epoch of the caller."""
        ...

    async def store(self, chain: str, lines: Sequence[Placed], position: Position, epoch: int) -> None:
        """Take these lines, some of which it may have already, and keep the position behind the last one.

        Raises `Superseded` if another one has taken over since that `epoch` began.
        """
        ...


class Stretch(Struct, frozen=True):
    """The lines of the journal `chain` in the file `path`, from the byte `start` up to the byte `end`.

    `epoch` is that of who copies them.
    """

    path: str
    chain: str
    start: int
    end: int
    epoch: int


class Copied(Struct, frozen=True):
    """The byte behind all lines that were looked at, and what is wrong with those that were not copied.

    `hash` is that of the last line that was; None if none was.
    """

    end: int
    wrong: list[str]
    hash: str | None = None


async def copy(sink: Sink, stretch: Stretch) -> Copied:
    """Copy the first `BATCH` lines of `stretch` that are whole. Raises OSError while the sink is down."""
    found = await asyncio.to_thread(
        lambda: list(
            islice(takewhile(lambda one: one[0] <= stretch.end, lines_from(Path(stretch.path), stretch.start)), BATCH)
        )
    )
    placed, wrong = list[Placed](), list[str]()
    for number, (offset, raw) in enumerate(found, 1):
        try:
            placed.append(Placed(read_line(raw), offset))
        except ValueError as error:
            wrong.append(f"the line that ends at byte {offset} is not copied, it {error}")
        if number % SLICE == 0:
            await asyncio.sleep(0)  # requests come between
    last = Position(placed[-1].end, placed[-1].line.hash) if placed else None
    if last is not None:
        await sink.store(stretch.chain, placed, last, stretch.epoch)
    return Copied(found[-1][0] if found else stretch.end, wrong, last.hash if last is not None else None)
