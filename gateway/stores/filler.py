"""The way from the journal into a sink: in the background, in order, each line once, through every outage."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Final, Protocol

from msgspec import Struct

from gateway.stores.journal import Journal
from gateway.stores.lines import Line, read_line
from gateway.stores.segments import line_before, lines_from
from gateway.telemetry import Metrics

log = logging.getLogger(__name__)

BATCH: Final = 500
SLICE: Final = 20
"""Lines that are read at a time: an exchange that comes meanwhile waits no longer."""

LINGER_SECONDS = 0.25
"""Lines are copied when none came for so long: in one transaction for many, and when exchanges leave time for it."""
LATEST_SECONDS = 5.0
"""They wait for that no longer than this."""
REST: Final = 4.0
"""How many times as long as it took to copy lines nothing is copied after that, where exchanges came meanwhile."""

WITNESS_SECONDS: Final = 60.0
"""Between two looks at which other journals the sink has."""
ASKED_SECONDS = 2.0
"""Who reads the sink waits for the lines before that no longer."""

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 10.0


class Placed(Struct, frozen=True):
    """A line, and the byte of the whole journal behind it."""

    line: Line
    end: int


@dataclass(frozen=True, slots=True)
class Position:
    """How far a sink is: the byte behind the last line that it has, and that line's hash."""

    end: int
    hash: str


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

    async def store(self, chain: str, lines: Sequence[Placed], position: Position) -> None:
        """Take these lines, some of which it may have already, and keep the position behind the last one."""
        ...


class Filler:
    """Copies one journal into one sink. `tell` is told what is wrong, and None when nothing is any more."""

    def __init__(
        self,
        sink: Sink,
        journal: Journal,
        metrics: Metrics | None = None,
        tell: Callable[[str | None], None] = lambda _: None,
    ) -> None:
        self._sink = sink
        self._journal = journal
        self._metrics = metrics or Metrics()
        self._tell = tell
        self._end = 0
        self._witnessed = -math.inf
        self._failing = False
        self._asked = asyncio.Event()
        self._moved = asyncio.Event()

    async def run(self) -> None:
        """Copy from where the sink was left, until the journal closes; what fails is tried again and again."""
        pause = FIRST_PAUSE_SECONDS
        self._metrics.look(self._look)
        while True:
            try:
                self._end = await self._left_off()
                self._witnessed = -math.inf
                await self._copy()
                self._failing = False
                self._tell(None)
                pause = FIRST_PAUSE_SECONDS
                while await self._journal.grown(self._end):
                    await self._rest()
                    await self._copy()
                return
            except OSError as error:
                self._failing = True
                self._moved.set()
                self._metrics.sink_failures.labels(self._sink.name).inc()
                name = self._sink.name
                log.warning("the %s falls behind the journal, next try in %.1f s: %s", name, pause, error)
                self._tell(f"the {name} does not take the record, which waits in the journal: {error}")
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def caught_up(self) -> None:
        """Wait until the sink has what stands in the journal now, unless it is down, or that takes too long."""
        end = self._journal.position
        with suppress(TimeoutError):
            async with asyncio.timeout(ASKED_SECONDS):
                while self._end < end and not self._failing:
                    self._asked.set()
                    self._moved.clear()
                    await self._moved.wait()

    async def _rest(self) -> None:
        """Wait until nothing more was written for a while, or somebody asks."""
        loop = asyncio.get_running_loop()
        latest = loop.time() + LATEST_SECONDS
        seen = -1
        while self._journal.position != seen and loop.time() < latest:
            seen = self._journal.position
            if await self._pause(LINGER_SECONDS):
                return

    async def _pause(self, seconds: float) -> bool:
        """Wait so long; True where somebody asks before."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._asked.wait()
        return self._asked.is_set()

    async def _copy(self) -> None:
        """Copy what stands in the files now, one transaction for many lines, and time for exchanges between them."""
        loop = asyncio.get_running_loop()
        end = self._journal.position
        while self._end < end:
            began, before = loop.time(), self._journal.position
            await self._copy_some(end)
            if self._end < end and self._journal.position > before:
                await self._pause(REST * (loop.time() - began))
        if self._end >= self._journal.position:
            self._asked.clear()
        if loop.time() - self._witnessed > WITNESS_SECONDS:
            self._journal.witness(await self._sink.chains())
            self._witnessed = loop.time()

    async def _copy_some(self, end: int) -> None:
        read, behind = await self._read(end)
        if read:
            await self._sink.store(self._journal.chain, read, Position(read[-1].end, read[-1].line.hash))
        self._end = behind
        self._moved.set()

    async def _left_off(self) -> int:
        """The byte from which to go on; 0 where the journal is not the one of before up to there."""
        position = await self._sink.position(self._journal.chain)
        if position is None:
            return 0
        raw = line_before(self._journal.path, position.end)
        try:
            return position.end if raw is not None and read_line(raw).hash == position.hash else 0
        except ValueError:
            return 0

    async def _read(self, end: int) -> tuple[list[Placed], int]:
        """The next lines up to the byte `end` that are whole, and the byte behind all that were looked at."""
        path, start = self._journal.path, self._end
        found = await asyncio.to_thread(
            lambda: list(islice(takewhile(lambda one: one[0] <= end, lines_from(path, start)), BATCH))
        )
        placed: list[Placed] = []
        for number, (offset, raw) in enumerate(found, 1):
            try:
                placed.append(Placed(read_line(raw), offset))
            except ValueError as error:
                log.error("%s: the line that ends at byte %d is not copied, it %s", path, offset, error)
            if number % SLICE == 0:
                await asyncio.sleep(0)  # requests come between
        return placed, found[-1][0] if found else end

    def _look(self) -> None:
        self._metrics.sink_lag_bytes.labels(self._sink.name).set(max(0, self._journal.position - self._end))


def first_line(error: BaseException) -> str:
    """An error in one line: SQLAlchemy puts the statement and its values, which may be private, on the next ones."""
    return next(iter(str(error).splitlines()), type(error).__name__)
