"""The way from the journal into a sink: in the background, in order, each line once, through every outage."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

from gateway.quick import quick
from gateway.stores.followers import Follower
from gateway.stores.journal import Journal
from gateway.stores.lines import Line, read_line
from gateway.stores.segments import line_before, lines_from
from gateway.telemetry import Metrics

log = logging.getLogger(__name__)

BATCH = 500
BUFFER = 5000
LINGER_SECONDS = 0.25
WITNESS_SECONDS: Final = 60.0
"""Between two looks at which other journals the sink has."""
REST: Final = 4.0
"""How many times as long as it took to store lines the sink is left alone after that."""

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 10.0


@quick
@dataclass(frozen=True, slots=True)
class Placed:
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

    async def run(self) -> None:
        """Copy from where the sink was left, until the journal closes; what fails is tried again and again."""
        pause = FIRST_PAUSE_SECONDS
        self._metrics.look(self._look)
        while True:
            try:
                with self._journal.subscribe(BUFFER) as follower:
                    await self._catch_up(self._journal.position)
                    self._tell(None)
                    pause = FIRST_PAUSE_SECONDS
                    await self._follow(follower)
                if not follower.lost:
                    return
            except OSError as error:
                self._metrics.sink_failures.labels(self._sink.name).inc()
                name = self._sink.name
                log.warning("the %s falls behind the journal, next try in %.1f s: %s", name, pause, error)
                self._tell(f"the {name} does not take the record, which waits in the journal: {error}")
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _catch_up(self, end: int) -> None:
        """Copy what stands in the files before the byte `end`."""
        self._end = await self._left_off()
        self._journal.witness(await self._sink.chains())
        lines = self._lines(end)
        while batch := await asyncio.to_thread(lambda: list(islice(lines, BATCH))):
            await self._store(batch)
        self._end = end

    async def _follow(self, follower: Follower) -> None:
        """Copy lines as they are written: the next one begins at the byte `_end`."""
        loop = asyncio.get_running_loop()
        witnessed = loop.time()
        while lines := await follower.batch(BATCH):
            end = self._end
            placed = [Placed(line, end := end + len(line.text) + 1) for line in lines]
            began = loop.time()
            await self._store(placed)
            # Lines come in bursts: one transaction for many. And exchanges come first: what they do not leave time for
            # is read from the journal when they do.
            linger = LINGER_SECONDS if len(lines) < BATCH else 0.0
            await asyncio.sleep(max(linger, REST * (loop.time() - began)))
            if loop.time() - witnessed > WITNESS_SECONDS:
                witnessed = loop.time()
                self._journal.witness(await self._sink.chains())

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

    async def _store(self, placed: list[Placed]) -> None:
        await self._sink.store(self._journal.chain, placed, Position(placed[-1].end, placed[-1].line.hash))
        self._end = placed[-1].end

    def _lines(self, end: int) -> Iterator[Placed]:
        path = self._journal.path
        for offset, raw in lines_from(path, self._end):
            if offset > end:
                return
            try:
                yield Placed(read_line(raw), offset)
            except ValueError as error:
                log.error("%s: the line that ends at byte %d is not copied, it %s", path, offset, error)

    def _look(self) -> None:
        self._metrics.sink_lag_bytes.labels(self._sink.name).set(max(0, self._journal.position - self._end))


def first_line(error: BaseException) -> str:
    """An error in one line: SQLAlchemy puts the statement and its values, which may be private, on the next ones."""
    return next(iter(str(error).splitlines()), type(error).__name__)
