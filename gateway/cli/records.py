"""Reads the outcomes in a copy of the record one at a time: a journal, or the SQLite database filled from it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from gateway.cli.group import Unusable
from gateway.documents.reader import open_file
from gateway.model import AuditRecord
from gateway.stores.lines import LINE_START, raw_lines, read_line

_SQLITE: Final = b"SQLite format 3\0"
_OUTCOME: Final = b'"phase":"outcome"'
_LINES: Final = "select line from audit where phase = 'outcome'"
_COUNT: Final = "select count(*) from audit where phase = 'outcome'"


@dataclass(frozen=True, slots=True)
class Read:
    """One step through the record: the position `done` of `total`, and an outcome, or None for a damaged line."""

    done: int
    record: AuditRecord | None


def is_record(path: Path) -> bool:
    """Return whether a file is a journal or a database, by its first bytes."""
    start = _start(path)
    return start.startswith(_SQLITE) or start.startswith(LINE_START)


def total(path: Path) -> int:
    """Return the size of the record, in the unit of `Read.done`. Raises `Unusable` if the file is neither kind."""
    start = _start(path)
    if start.startswith(_SQLITE):
        with closing(_database(path)) as database:
            return int(database.execute(_COUNT).fetchone()[0])
    if start and not LINE_START.startswith(start[: len(LINE_START)]) and not start.startswith(LINE_START):
        raise Unusable(f"{path}: is neither a journal of the gateway nor its SQLite database")
    return path.stat().st_size


def outcomes(path: Path) -> Iterator[Read]:
    """Yield every outcome of the record in `path`, one at a time."""
    if _start(path).startswith(_SQLITE):
        yield from _of_database(path)
        return
    with os.fdopen(open_file(path), "rb") as file:
        for offset, raw in raw_lines(file):
            if _OUTCOME in raw:
                yield Read(offset, _record(raw))


def _of_database(path: Path) -> Iterator[Read]:
    try:
        with closing(_database(path)) as database:
            for done, (line,) in enumerate(database.execute(_LINES), 1):
                yield Read(done, _record(str(line).encode()))
    except sqlite3.Error as error:
        raise Unusable(f"{path}: cannot be read: {error}") from error


def _database(path: Path) -> sqlite3.Connection:
    try:
        database = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True)
        database.execute("select line from audit limit 1").fetchone()
    except sqlite3.Error as error:
        raise Unusable(f"{path}: is no database of the gateway: {error}") from error
    return database


def _record(raw: bytes) -> AuditRecord | None:
    try:
        record = read_line(raw).record
    except ValueError:
        return None
    return record if record.phase == "outcome" else AuditRecord(record.id, record.phase, record.time, {})


def _start(path: Path) -> bytes:
    try:
        with os.fdopen(open_file(path), "rb") as file:
            return file.read(64)
    except OSError as error:
        raise Unusable(f"{path}: cannot be read: {error.strerror}") from error
