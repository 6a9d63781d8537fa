"""Retention: old values are deleted, in the journal and in the database; the hash chain still holds."""

from __future__ import annotations

import asyncio
import glob
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from sqlalchemy import and_, select, tuple_, update

from gateway.stores.journal import Journal
from gateway.stores.lines import NOTE, raw_lines, read_link, without_values
from gateway.stores.schema import AUDIT
from gateway.stores.segments import Segment, all_segments
from gateway.stores.sql import Database
from gateway.stores.sqlite_lines import COPIED

log = logging.getLogger(__name__)

EVERY = 3600.0
"""Seconds between two deletions."""

_BATCH = 500
_ORDERLY = 1000
"""Young lines in a row that end the search for old ones: a clock that jumped once does not hide the others."""


class Retention:
    """Deletes values that are older than `seconds`. Each deletion is first noted in the journal, signed."""

    def __init__(
        self, journal: Journal, database: Database | None, seconds: float, now: Callable[[], float] = time.time
    ) -> None:
        self._journal = journal
        self._database = database
        self._seconds = seconds
        self._now = now

    async def run(self) -> None:
        """Delete now, then every hour, until cancelled; retry after failures."""
        while True:
            try:
                await self.delete()
            except OSError as error:
                log.error("old values of the record cannot be deleted: %s", error)
            await asyncio.sleep(EVERY)

    async def delete(self) -> int:
        """Delete old values; return how many lines of the journal lost theirs.

        A failure in one file does not prevent the others, nor the database. Raises the first `OSError` at the end.
        """
        before = self._now() - self._seconds
        segments = all_segments(self._journal.path)
        if await asyncio.to_thread(_has_old, segments, before):
            # The note comes first: values that are missing without one count as tampering.
            self._journal.note("values were deleted by audit.retain", deleted_before=before)
        deleted = 0
        failures: list[OSError] = []
        for segment in segments:
            try:
                deleted += await asyncio.to_thread(_blank, segment, before)
            except OSError as error:
                failures.append(error)
        try:
            await asyncio.to_thread(_forget_torn, self._journal.path, before)
        except OSError as error:
            failures.append(error)
        if self._database is not None:
            await _shorten(self._database, before)
        if failures:
            raise failures[0]
        return deleted


def _forget_torn(journal: Path, before: float) -> None:
    """Delete old files of torn lines, which may contain values as well."""
    for path in journal.parent.glob(f"{glob.escape(journal.name)}.torn-*"):
        if path.stat().st_mtime < before:
            path.unlink()


def _has_old(segments: list[Segment], before: float) -> bool:
    """Return whether there are old values; unreadable files are reported later, by the deletion."""
    for segment in segments:
        with suppress(OSError), segment.path.open("rb") as file:
            if _old_lines(file, before, 1):
                return True
    return False


def _old_lines(file: BinaryIO, before: float, most: int | None = None) -> list[tuple[int, bytes]]:
    """Return offset and blanked form of old lines with values. Notes keep theirs, which are signed and hold no call."""
    lines: list[tuple[int, bytes]] = []
    young = 0
    for end, raw in raw_lines(file):
        try:
            link = read_link(raw)
        except ValueError:
            continue  # `verify` reports it
        young = young + 1 if link.time >= before else 0
        if young > _ORDERLY:
            break
        if not young and link.phase != NOTE and link.values is not None:
            blank = without_values(raw)
            if blank is not None:
                lines.append((end - 1 - len(raw), blank))
        if most is not None and len(lines) >= most:
            break
    return lines


def _blank(segment: Segment, before: float) -> int:
    """Overwrite old values in place: no line moves, and the next run completes an interrupted one."""
    with segment.path.open("rb") as file:
        lines = _old_lines(file, before)
        if lines:
            descriptor = os.open(segment.path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                if not os.path.samestat(os.fstat(descriptor), os.fstat(file.fileno())):
                    return 0  # the journal was rotated: the next run finds the old file
                for offset, blank in lines:
                    os.pwrite(descriptor, blank, offset)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    return len(lines)


async def _shorten(database: Database, before: float) -> None:
    """Delete the same values in the database, including the separate columns."""
    table, last = AUDIT.c, ("", 0)
    old = and_(table.time < before, table.phase != NOTE, table.line.contains('"fields":'))
    query = select(table.writer, table.seq, table.line).where(old).order_by(table.writer, table.seq).limit(_BATCH)
    gone = dict.fromkeys((*COPIED, "status"))
    while True:
        async with database.connect() as connection:
            rows = (await connection.execute(query.where(tuple_(table.writer, table.seq) > last))).all()
            for row in rows:
                last = (row.writer, row.seq)
                with suppress(ValueError):  # an altered line: `verify` reports it
                    blank = without_values(row.line.encode("ascii", "replace"))
                    if blank is not None:
                        values = {"line": blank.decode().rstrip(" "), **gone}
                        mine = and_(table.writer == row.writer, table.seq == row.seq)
                        await connection.execute(update(AUDIT).where(mine).values(values))
            await connection.commit()
        if len(rows) < _BATCH:
            return
