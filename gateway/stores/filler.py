"""The way from the journal into the database: in the background, in order, each line once."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.stores.followers import Follower
from gateway.stores.journal import NOTE, Journal
from gateway.stores.lines import Line, raw_lines, raw_lines_backwards, read_line
from gateway.stores.schema import AUDIT, FILLED

log = logging.getLogger(__name__)

BATCH = 250
BUFFER = 5000
LINGER_SECONDS = 0.25
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 10.0


class Filler:
    """Copies one journal into the database of `engine`."""

    def __init__(self, engine: AsyncEngine, journal: Journal) -> None:
        self._engine = engine
        self._journal = journal
        self._chain = ""
        self._offset = 0

    async def run(self) -> None:
        """Copy from where the database was left, until the journal closes; what fails is tried again and again."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                with self._journal.subscribe(BUFFER) as follower:
                    await self._catch_up(self._journal.size)
                    pause = FIRST_PAUSE_SECONDS
                    await self._follow(follower)
                if not follower.lost:
                    return
            except (SQLAlchemyError, OSError) as error:
                log.warning("the database falls behind the journal, next try in %.1f s: %s", pause, first_line(error))
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _catch_up(self, end: int) -> None:
        """Copy what stands in the file before the byte `end`."""
        self._offset = await self._left_off()
        lines = _lines(self._journal.path, self._offset, end)
        while batch := list(islice(lines, BATCH)):
            await self._store([line for _, line in batch], batch[-1][0])
        self._offset = end

    async def _follow(self, follower: Follower) -> None:
        """Copy lines as they are written: the next one begins at the byte `_offset`."""
        while lines := await follower.batch(BATCH):
            await self._store(lines, self._offset + sum(len(line.text) + 1 for line in lines))
            if len(lines) < BATCH:
                await asyncio.sleep(LINGER_SECONDS)  # lines come in pairs and bursts: one transaction for many

    async def _left_off(self) -> int:
        """The byte from which to go on; 0 where the journal is not the one of before up to there."""
        path = self._journal.path
        self._chain = _first_writer(path)
        async with self._engine.connect() as connection:
            found = (await connection.execute(select(FILLED).where(FILLED.c.chain == self._chain))).first()
        return found.offset if found is not None and _hash_before(path, found.offset) == found.hash else 0

    async def _store(self, lines: list[Line], end: int) -> None:
        """Put in lines of which the last one ends at the byte `end`."""
        async with self._engine.begin() as connection:
            await _insert(connection, [line for line in lines if line.record.phase != NOTE])
            await connection.execute(FILLED.delete().where(FILLED.c.chain == self._chain))
            await connection.execute(FILLED.insert().values(chain=self._chain, offset=end, hash=lines[-1].hash))
        self._offset = end


async def _insert(connection: AsyncConnection, lines: list[Line]) -> None:
    """Put in what is not there yet."""
    known: set[tuple[str, int]] = set()
    for writer in {line.writer for line in lines}:
        numbers = [line.seq for line in lines if line.writer == writer]
        wanted = select(AUDIT.c.seq).where(AUDIT.c.writer == writer, AUDIT.c.seq.between(min(numbers), max(numbers)))
        known.update((writer, seq) for seq in await connection.scalars(wanted))
    new = [line for line in lines if (line.writer, line.seq) not in known]
    if new:
        outcomes = [line.record.id for line in new if line.record.phase == "outcome"]
        opened = set(await connection.scalars(select(AUDIT.c.id).where(AUDIT.c.id.in_(outcomes))))
        await connection.execute(AUDIT.insert(), list(_rows(new, opened)))


def _rows(lines: list[Line], opened: set[str]) -> Iterator[dict[str, object]]:
    for line in lines:
        opens = line.record.phase != "outcome" or line.record.id not in opened
        opened.add(line.record.id)
        app = line.record.fields.get("app")
        yield {
            "writer": line.writer,
            "seq": line.seq,
            "id": line.record.id,
            "phase": line.record.phase,
            "opens": opens,
            "time": line.record.time,
            "app": app if isinstance(app, str) else None,
            "line": line.text,
        }


def _lines(path: Path, start: int = 0, end: int | None = None) -> Iterator[tuple[int, Line]]:
    with path.open("rb") as file:
        for offset, raw in raw_lines(file, start):
            if end is not None and offset > end:
                return
            try:
                yield offset, read_line(raw)
            except ValueError as error:
                log.error("%s: the line that ends at byte %d is not copied, it %s", path, offset, error)


def _first_writer(path: Path) -> str:
    return next((line.writer for _, line in _lines(path)), "")


def _hash_before(path: Path, offset: int) -> str:
    """The hash of the line that ends at the byte `offset`, empty where none does."""
    with path.open("rb") as file:
        if offset > os.fstat(file.fileno()).st_size:
            return ""
        try:
            return next((read_line(raw).hash for _, raw in raw_lines_backwards(file.fileno(), offset) if raw), "")
        except ValueError:
            return ""


def first_line(error: BaseException) -> str:
    """An error in one line: SQLAlchemy puts the statement and its values, which may be private, on the next ones."""
    return next(iter(str(error).splitlines()), type(error).__name__)
