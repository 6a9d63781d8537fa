"""Reads the outcomes in a record one at a time: a journal, or the database that is filled from it."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import quote

import click
from sqlalchemy import Select, and_, false, func, or_, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio.engine import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.ext.asyncio.result import AsyncResult

from gateway.cli.group import Unusable
from gateway.documents.reader import open_file
from gateway.model import AuditRecord
from gateway.stores.lines import LINE_START, raw_lines, read_line
from gateway.stores.schema import AUDIT
from gateway.stores.sql import DRIVERS, first_line

_SQLITE: Final = b"SQLite format 3\0"
_OUTCOME: Final = b'"phase":"outcome"'
_SOCKET: Final = b'"method":"WEBSOCKET"'
_LINES: Final = "select line from audit where phase = 'outcome'"
_OPENINGS: Final = " or (phase = 'intent' and line like '%\"method\":\"WEBSOCKET\"%')"
_COUNT: Final = "select count(*) from audit where phase = 'outcome'"


_POSTGRESQL: Final = re.compile(r"postgres(ql)?(\+asyncpg)?://")
_ROWS: Final = 1000


@dataclass(frozen=True, slots=True)
class PostgresRecord:
    """The record in a PostgreSQL database; as text without its password."""

    url: str

    @property
    def name(self) -> str:
        """The name of the database."""
        return make_url(self.url).database or "postgresql"

    def __str__(self) -> str:
        return make_url(self.url).render_as_string(hide_password=True)


RecordPlace: TypeAlias = Path | PostgresRecord


class RecordType(click.ParamType[RecordPlace]):
    """The argument of a command that reads a record: a file, or a postgresql:// URL."""

    name = "path or url"

    def convert(
        self, value: str | RecordPlace, param: click.Parameter | None, ctx: click.Context | None
    ) -> RecordPlace:
        if not isinstance(value, str):
            return value
        return PostgresRecord(value) if _POSTGRESQL.match(value) else Path(value)


@dataclass(frozen=True, slots=True)
class ReadStep:
    """One step through the record: the position `done` of `total`, and an outcome, or None for a damaged line."""

    done: int
    record: AuditRecord | None


def is_record(path: RecordPlace) -> bool:
    """Return whether it is a database, or a file that is a journal or a database by its first bytes."""
    if isinstance(path, PostgresRecord):
        return True
    start = _start(path)
    return start.startswith(_SQLITE) or start.startswith(LINE_START)


def total(path: RecordPlace) -> int:
    """Return the size of the record, in the unit of `Read.done`. Raises `Unusable` if the file is neither kind."""
    if isinstance(path, PostgresRecord):
        return _count(path)
    start = _start(path)
    if start.startswith(_SQLITE):
        with closing(_database(path)) as database:
            return int(database.execute(_COUNT).fetchone()[0])
    if start and not LINE_START.startswith(start[: len(LINE_START)]) and not start.startswith(LINE_START):
        raise Unusable(f"{path}: is neither a journal of the gateway nor its SQLite database")
    return path.stat().st_size


def outcomes(path: RecordPlace, *, openings: bool = False) -> Iterator[ReadStep]:
    """Yield every outcome of the record in `path`, one at a time; the intents of WebSockets, too, with `openings`."""
    if isinstance(path, PostgresRecord):
        yield from _of_postgresql(path, openings=openings)
        return
    if _start(path).startswith(_SQLITE):
        yield from _of_database(path, openings=openings)
        return
    with os.fdopen(open_file(path), "rb") as file:
        for offset, raw in raw_lines(file):
            if _OUTCOME in raw or (openings and _SOCKET in raw):
                yield ReadStep(offset, _record(raw, openings=openings))


def _of_postgresql(record: PostgresRecord, *, openings: bool) -> Iterator[ReadStep]:
    """Read in one transaction that can write nothing."""
    sockets = and_(AUDIT.c.phase == "intent", AUDIT.c.line.contains(_SOCKET.decode())) if openings else false()
    which = or_(AUDIT.c.phase == "outcome", sockets)
    query = select(AUDIT.c.line).where(which).order_by(AUDIT.c.time, AUDIT.c.writer, AUDIT.c.seq)
    done = 0
    try:
        with asyncio.Runner() as runner:
            engine = _engine(record)
            connection = runner.run(_connect(engine))
            try:
                result = runner.run(_stream(connection, query))
                while rows := runner.run(result.fetchmany(_ROWS)):
                    for (line,) in rows:
                        done += 1
                        yield ReadStep(done, _record(str(line).encode(), openings=openings))
            finally:
                runner.run(connection.close())
                runner.run(engine.dispose())
    except (SQLAlchemyError, OSError) as error:
        raise Unusable(f"{record}: cannot be read: {first_line(error)}") from error


async def _connect(engine: AsyncEngine) -> AsyncConnection:
    connection = await engine.connect()
    return await connection.execution_options(postgresql_readonly=True)


async def _stream(connection: AsyncConnection, query: Select[tuple[str]]) -> AsyncResult[tuple[str]]:
    return await connection.stream(query)


def _count(record: PostgresRecord) -> int:
    async def count() -> int:
        engine = _engine(record)
        try:
            async with engine.connect() as connection:
                query = select(func.count()).select_from(AUDIT).where(AUDIT.c.phase == "outcome")
                return int((await connection.execute(query)).scalar_one())
        finally:
            await engine.dispose()

    try:
        return asyncio.run(count())
    except (SQLAlchemyError, OSError) as error:
        raise Unusable(f"{record}: cannot be read: {first_line(error)}") from error


def _engine(record: PostgresRecord) -> AsyncEngine:
    url = make_url(record.url)
    return create_async_engine(url.set(drivername=DRIVERS.get(url.drivername, url.drivername)), hide_parameters=True)


def _of_database(path: Path, *, openings: bool) -> Iterator[ReadStep]:
    try:
        with closing(_database(path)) as database:
            for done, (line,) in enumerate(database.execute(_LINES + _OPENINGS if openings else _LINES), 1):
                yield ReadStep(done, _record(str(line).encode(), openings=openings))
    except sqlite3.Error as error:
        raise Unusable(f"{path}: cannot be read: {error}") from error


def _database(path: Path) -> sqlite3.Connection:
    try:
        database = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True)
        database.execute("select line from audit limit 1").fetchone()
    except sqlite3.Error as error:
        raise Unusable(f"{path}: is not a database of the gateway: {error}") from error
    return database


def _record(raw: bytes, *, openings: bool) -> AuditRecord | None:
    try:
        record = read_line(raw).record
    except ValueError:
        return None
    read = record.phase == "outcome" or (openings and record.phase == "intent")
    return record if read else AuditRecord(record.id, record.phase, record.time, {})


def _start(path: Path) -> bytes:
    try:
        with os.fdopen(open_file(path), "rb") as file:
            return file.read(64)
    except OSError as error:
        raise Unusable(f"{path}: cannot be read: {error.strerror}") from error
