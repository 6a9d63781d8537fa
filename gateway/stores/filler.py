"""Fills a sink from the journal: in the background, in order, each line once, through every outage."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from gateway.stores import copier
from gateway.stores.copying import CopyResult, Position, Sink, Stretch, copy
from gateway.stores.journal import Journal
from gateway.stores.lines import NO_HASH, read_line
from gateway.stores.segments import line_before
from gateway.stores.sql import sqlite_file
from gateway.telemetry import Metrics

NICE: Final = 10
"""The difference between the child's scheduling priority and the gateway's, which is higher."""

IDLE_SECONDS: Final = 60.0
"""Seconds without lines after which the child process is ended."""


class NoProcess(OSError):
    """The child process could not be started, or has exited."""


class FillProcess:
    """Copies into the database at `url`, in a child process that is started by the first copy, or by `begin`.

    Into a file of SQLite it copies without SQLAlchemy, and so starts in a third of the time.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._file = sqlite_file(url)
        self._process: asyncio.subprocess.Process | None = None
        self._idle: asyncio.TimerHandle | None = None

    async def begin(self) -> None:
        """Start the child process if it does not run: it takes some seconds until it can copy. Raises NoProcess."""
        await self._there()
        self._idles()

    async def copy(self, stretch: Stretch) -> CopyResult:
        """Copy as `gateway.stores.copying.copy` does. Raises NoProcess, too."""
        try:
            answer = await _ask_child(await self._there(), msgspec.json.encode(stretch) + b"\n")
            if isinstance(answer, str):
                raise OSError(answer)
        except BaseException:  # its late answer would be taken for the next one; without a database it exits
            await self.close()
            raise
        self._idles()
        return answer

    async def close(self) -> None:
        """Kill the child process in any state: lines that were not copied are in the journal."""
        process = self._process
        self._end()
        if process is not None:
            await process.wait()

    async def _there(self) -> asyncio.subprocess.Process:
        if self._idle is not None:
            self._idle.cancel()
        if self._process is None:
            self._process = await _start(self._url, self._file)
        return self._process

    def _idles(self) -> None:
        self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._end)

    def _end(self) -> None:
        process, self._process = self._process, None
        if self._idle is not None:
            self._idle.cancel()
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()


async def _start(url: str, file: Path | None) -> asyncio.subprocess.Process:
    """Start the process, which imports its modules before the first request."""
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", copier.__name__),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            process_group=0,  # Ctrl-C in a terminal is for the gateway
        )
    except OSError as error:
        raise NoProcess(f"it cannot be started: {error.strerror}") from error
    with suppress(ProcessLookupError):
        # From outside, so that its start has the low priority, too.
        os.setpriority(os.PRIO_PROCESS, process.pid, os.getpriority(os.PRIO_PROCESS, 0) + NICE)
    assert process.stdin is not None  # noqa: S101  # this is a pipe
    process.stdin.write(msgspec.json.encode((url, str(file) if file is not None else None)) + b"\n")
    return process


async def _ask_child(process: asyncio.subprocess.Process, line: bytes) -> CopyResult | str:
    """Send a request and return the answer: the copied lines, or an error."""
    assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018  # these are pipes
    with suppress(ConnectionError):
        process.stdin.write(line)
        await process.stdin.drain()
    answer = await process.stdout.readline()
    if not answer:
        raise NoProcess(f"it ended with status {await process.wait()}")
    return msgspec.json.decode(answer, type=CopyResult | str)


log = logging.getLogger(__name__)

LINGER_SECONDS = 0.25
"""Seconds without new lines before lines are copied: in one transaction, while exchanges leave time for it."""
LATEST_SECONDS = 5.0
"""Seconds that lines wait for that at most."""
BEGIN_SECONDS = 2.0
"""Seconds under load after which the child process is started in advance, since its start takes a while."""
REST: Final = 4.0
"""The pause after a batch while exchanges run, as a multiple of the batch's duration."""

WITNESS_SECONDS: Final = 60.0
"""Seconds between two checks for other journals in the sink."""
ASKED_SECONDS = 2.0
"""Seconds that a query of the sink waits for the lines before it."""
LAST_SECONDS = 5.0
"""Seconds that the end of the gateway waits for the last lines; what is left then is copied at the next start."""

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 10.0


class Filler:
    """Copies one journal into one sink. `tell` receives the current problem, and None once it is over.

    `aside` copies into the same sink while this process is busy.
    """

    def __init__(
        self,
        sink: Sink,
        journal: Journal,
        metrics: Metrics | None = None,
        tell: Callable[[str | None], None] = lambda _: None,
        aside: FillProcess | None = None,
    ) -> None:
        self._sink = sink
        self._aside = aside
        self._journal = journal
        self._metrics = metrics or Metrics()
        self._metrics.sink_failures.labels(sink.name)
        self._tell = tell
        self._end = 0
        self._epoch = 0
        self._witnessed_at = -math.inf
        self._failing = False
        self._ask_child = asyncio.Event()
        self._progress = asyncio.Event()
        self._retry = asyncio.Event()

    async def run(self) -> None:
        """Copy from the sink's position until the journal closes; retry after failures."""
        try:
            await self._run()
        finally:
            if self._aside is not None:
                await self._aside.close()

    async def _run(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        self._metrics.look(self._look)
        while True:
            try:
                self._epoch = await self._sink.take_over(self._journal.chain)
                self._end = await self._find_position()
                self._witnessed_at = -math.inf
                await self._copy(busy=False)
                self._failing = False
                self._tell(None)
                pause = FIRST_PAUSE_SECONDS
                while await self._journal.wait_for_growth(self._end):
                    await self._copy(busy=await self._rest())
                return
            except OSError as error:
                self._failing = True
                self._progress.set()
                self._metrics.sink_failures.labels(self._sink.name).inc()
                name = self._sink.name
                log.warning("the %s falls behind the journal, next try in %.1f s: %s", name, pause, error)
                self._tell(f"the {name} does not take the record, which waits in the journal: {error}")
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._retry.wait()
                self._retry.clear()
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def finish(self) -> None:
        """Wait until the sink has the whole journal; after a failure, try again at once, and only once."""
        self._failing = False
        self._retry.set()
        await self.caught_up(LAST_SECONDS)

    async def caught_up(self, seconds: float | None = None) -> None:
        """Wait until the sink has all current lines of the journal, unless it is down or that takes too long."""
        end = self._journal.position
        with suppress(TimeoutError):
            async with asyncio.timeout(ASKED_SECONDS if seconds is None else seconds):
                while self._end < end and not self._failing:
                    self._ask_child.set()
                    self._progress.clear()
                    await self._progress.wait()

    async def _rest(self) -> bool:
        """Wait until no line was written for a while, or a query waits; return True if lines still arrive."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        seen = -1
        while self._journal.position != seen and (seconds := loop.time() - began) < LATEST_SECONDS:
            if self._aside is not None and seconds > BEGIN_SECONDS:
                with suppress(NoProcess):  # the caller of `copy` reports it
                    await self._aside.begin()
            seen = self._journal.position
            if await self._pause(LINGER_SECONDS):
                return False
        return self._journal.position != seen

    async def _pause(self, seconds: float) -> bool:
        """Wait for `seconds`; return True early if a query waits."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ask_child.wait()
        return self._ask_child.is_set()

    async def _copy(self, *, busy: bool) -> None:
        """Copy all current lines, in one transaction for many lines.

        While exchanges run, another process copies, or this one pauses between batches.
        """
        loop = asyncio.get_running_loop()
        end = self._journal.position
        while self._end < end:
            began, before = loop.time(), self._journal.position
            await self._copy_some(end, busy=busy)
            busy = self._journal.position > before
            if busy and self._aside is None and self._end < end:
                await self._pause(REST * (loop.time() - began))
        if self._end >= self._journal.position:
            self._ask_child.clear()
        if loop.time() - self._witnessed_at > WITNESS_SECONDS:
            self._journal.witness(await self._sink.chains())
            self._witnessed_at = loop.time()

    async def _copy_some(self, end: int, *, busy: bool) -> None:
        stretch = Stretch(str(self._journal.path), self._journal.chain, self._end, end, self._epoch)
        aside = self._aside if busy else None
        try:
            copied_lines = await (aside.copy(stretch) if aside is not None else copy(self._sink, stretch))
        except NoProcess as error:
            log.warning("no process fills the %s beside this one, which does it now: %s", self._sink.name, error)
            self._aside = None
            return
        for wrong in copied_lines.wrong:
            log.error("%s: %s", self._journal.path, wrong)
        self._end = copied_lines.end
        if copied_lines.hash is not None:
            self._journal.note_copy(self._sink.name, copied_lines.hash)
        self._progress.set()

    async def _find_position(self) -> int:
        """Return the byte offset to resume at; 0 if the journal up to there is not the one that was copied."""
        position = await self._sink.position(self._journal.chain)
        known = position is not None and self._has(position)
        self._journal.note_copy(self._sink.name, position.hash if position is not None and known else NO_HASH)
        return position.end if position is not None and known else 0

    def _has(self, position: Position) -> bool:
        """Return whether the journal has that line at that place."""
        raw = line_before(self._journal.path, position.end)
        try:
            return raw is not None and read_line(raw).hash == position.hash
        except ValueError:
            return False

    def _look(self) -> None:
        self._metrics.sink_lag_bytes.labels(self._sink.name).set(max(0, self._journal.position - self._end))


@asynccontextmanager
async def filling(journal: Journal, fillers: Sequence[Filler]) -> AsyncIterator[None]:
    """Fill the sinks while the block runs; its end waits until they have the whole journal, its last head included."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(filler.run()) for filler in fillers]
        try:
            yield
        finally:
            await _fill_up(journal, fillers)
            for task in running:
                task.cancel()


async def _fill_up(journal: Journal, fillers: Sequence[Filler]) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(LAST_SECONDS):
            for _ in range(2):  # the first copy into an empty sink is what the next head must contain
                with suppress(OSError):
                    journal.seal()
                await asyncio.gather(*(filler.finish() for filler in fillers))
