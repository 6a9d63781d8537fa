"""The database: filled from the journal in the background, asked for what happened; quotas are counted in it."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from sqlalchemy import Row, Select, and_, event, select, tuple_
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from gateway.errors import StartError
from gateway.model import Json
from gateway.stores.filler import Filler, first_line
from gateway.stores.journal import Journal
from gateway.stores.schema import AUDIT, migrate

DRIVERS: Final = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}
SQLITE_BUSY_SECONDS = 2


@dataclass(frozen=True, slots=True)
class Record:
    """What the record says of one exchange or tool call: the fields of its intent, and over them its outcome's.

    Times are in seconds since the epoch; `ended` is None while there is no outcome.
    """

    id: str
    time: float
    ended: float | None
    fields: Mapping[str, Json]


class Database:
    """The database at an SQLAlchemy URL such as `sqlite:///gateway.db`; an async context manager.

    Its tables are made, or brought to this version, at the start.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._engine: AsyncEngine | None = None

    async def __aenter__(self) -> Self:
        """Raises StartError where the database cannot be opened, or belongs to a newer gateway."""
        shown = "of this configuration"
        try:
            url = make_url(self._url)
            shown = url.render_as_string(hide_password=True)
            self._engine = _engine(url.set(drivername=DRIVERS.get(url.drivername, url.drivername)))
            async with self._engine.begin() as connection:
                await connection.run_sync(migrate)
        except (SQLAlchemyError, OSError, ImportError, ValueError) as error:
            await self._close()
            raise StartError(f"the database {shown} cannot be used: {first_line(error)}") from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def fill(self, journal: Journal) -> None:
        """Copy the journal's lines as they come, after those of before, until it closes; what fails is tried again."""
        await Filler(self._opened(), journal).run()

    async def query(self, limit: int, app: str | None = None, before: str | None = None) -> list[Record]:
        """The newest records first, of `app` alone if given, and older than the record with the id `before`.

        Raises SQLAlchemyError or OSError while the database is down.
        """
        async with self._opened().connect() as connection:
            return [_record(row) for row in await connection.execute(_newest(limit, app, before))]

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncConnection]:
        """A connection whose changes are lost unless they are committed. Raises OSError while the database is down."""
        try:
            async with self._opened().connect() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise OSError(f"the database cannot be used: {first_line(error)}") from error

    def _opened(self) -> AsyncEngine:
        if self._engine is None:
            raise OSError("the database is not open")
        return self._engine

    async def _close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.dispose()


def _newest(limit: int, app: str | None, before: str | None) -> Select[Any]:
    first, outcome, edge = AUDIT.alias("first"), AUDIT.alias("outcome"), AUDIT.alias("edge")
    end = and_(outcome.c.id == first.c.id, outcome.c.phase == "outcome")
    found = first.outerjoin(outcome, end)
    if before is not None:
        older = tuple_(first.c.time, first.c.writer, first.c.seq) < tuple_(edge.c.time, edge.c.writer, edge.c.seq)
        found = found.join(edge, and_(edge.c.id == before, edge.c.opens, older))
    wanted = (
        select(first.c.id, first.c.time, first.c.line, outcome.c.time.label("ended"), outcome.c.line.label("end"))
        .select_from(found)
        .where(first.c.opens)
        .order_by(first.c.time.desc(), first.c.writer.desc(), first.c.seq.desc())
        .limit(limit)
    )
    return wanted if app is None else wanted.where(first.c.app == app)


def _record(row: Row[Any]) -> Record:
    fields = json.loads(row.line)["fields"]
    if row.end is not None:
        fields |= json.loads(row.end)["fields"]
    return Record(row.id, row.time, row.ended, fields)


def _engine(url: URL) -> AsyncEngine:
    if url.get_backend_name() != "sqlite":
        return create_async_engine(url, pool_pre_ping=True)
    if url.database and url.database != ":memory:":
        os.close(os.open(url.database, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))  # SQLite alone lets others read
    engine = create_async_engine(url, connect_args={"timeout": SQLITE_BUSY_SECONDS})
    event.listen(engine.sync_engine, "connect", _set_up_sqlite)
    return engine


def _set_up_sqlite(connection: Any, _: object) -> None:
    """Readers and the filler do not wait for each other; the last transactions may be lost, the journal has them."""
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()
