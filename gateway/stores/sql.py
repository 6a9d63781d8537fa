"""The database, SQLite or PostgreSQL: opened, migrated, and shared by the stores."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Float,
    Integer,
    Row,
    Table,
    cast,
    event,
    func,
    literal_column,
    select,
    text,
    update,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio.engine import AsyncConnection, AsyncEngine, create_async_engine

from gateway.crypto import digest
from gateway.errors import DatabaseUnavailable, StartError
from gateway.stores.schema import SCHEMA_VERSION, SECRETS, migrate
from gateway.stores.sealing import KeyRing, SealBroken

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

P = ParamSpec("P")
T = TypeVar("T")


async def whole(work: Awaitable[T]) -> T:
    """Run `work` to its end, then raise a cancellation: an interrupted driver keeps its file lock for a while.

    A loop, since anyio's scopes cancel repeatedly.
    """
    task = asyncio.ensure_future(work)
    cancellation: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is None:
        return task.result()
    raise cancellation from None if task.cancelled() else task.exception()


def as_whole(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Decorate a coroutine function that runs to its end, as `whole` does."""

    @wraps(method)
    async def run(*arguments: P.args, **options: P.kwargs) -> T:
        return await whole(method(*arguments, **options))

    return run


def insert(connection: AsyncConnection, table: Table) -> postgresql.Insert | sqlite.Insert:
    """Return an insert into `table` that supports `on_conflict_…`."""
    if connection.dialect.name != "postgresql":
        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql  # noqa: PLC0415  here, so that only gateways with PostgreSQL load it

    return postgresql.insert(table)


def database_time(connection: AsyncConnection) -> ColumnElement[float]:
    """Return the database's clock in a statement, in seconds since the epoch: the same for all processes."""
    if connection.dialect.name == "postgresql":
        return literal_column("CAST(extract(epoch FROM clock_timestamp()) AS double precision)", Float)
    return literal_column("(julianday('now') - 2440587.5) * 86400.0", Float)


async def lock_in_turn(connection: AsyncConnection, number: int, name: str) -> None:
    """Hold a lock of this name until the transaction ends; `number` is of its kind. SQLite has one writer anyway."""
    if connection.dialect.name == "postgresql":
        key = int.from_bytes(digest(name)[:4], signed=True)
        await connection.execute(select(func.pg_advisory_xact_lock(cast(number, Integer), cast(key, Integer))))


DRIVERS: Final = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg", "postgres": "postgresql+asyncpg"}
SQLITE_BUSY_SECONDS = 8
"""Seconds that a write waits for SQLite's lock: the filler holds it for a batch, with low priority on a busy machine.
Less than the shutdown waits for connections.
"""

POSTGRESQL_SECONDS = 5
"""Seconds to connect, and for one statement: beyond that the database counts as down."""
LENT_SECONDS = 10
"""Seconds that the shutdown waits for borrowed connections: one that is returned later is never closed."""

MIGRATING_SECONDS = 60
"""Seconds for connections and statements at the start: processes that start together wait for each other."""

RESEALED_AT_ONCE: Final = 200
"""Rows that are sealed with a new key in one transaction, so that the running gateway can write between two of them."""

_MIGRATING = 7_238_104_655
"""The number of the advisory lock for PostgreSQL's migrations: processes may start at the same time."""


_SORT: Final = """
    SELECT max(length(row)) FROM (
        SELECT repeat('x', 1024) || number AS row FROM generate_series(1, 256) AS number ORDER BY 1 OFFSET 0
    ) AS sorted
"""
"""Sorts four times `work_mem`, in a file that is then deleted."""

CONFIGURATION_LIMIT: Final = "53400"
"""PostgreSQL's code for `temp_file_limit` (PostgreSQL, appendix A)."""


class Database:
    """The database at an SQLAlchemy URL such as `sqlite:///gateway.db`; an async context manager.

    Its tables are created or migrated at the start.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._engine: AsyncEngine | None = None
        self._file: tuple[Path, os.stat_result] | None = None
        self._borrowed = 0
        self._back = asyncio.Event()

    async def __aenter__(self) -> Self:
        """Open and migrate. Raises StartError if the database cannot be opened, or belongs to a newer gateway."""
        subject = "of this configuration"
        try:
            url = make_url(self._url)
            subject = url.render_as_string(hide_password=True)
            url = url.set(drivername=DRIVERS.get(url.drivername, url.drivername))
            self._engine = _engine(url)
            await _migrate_in_turn(url)
            if url.get_backend_name() == "sqlite" and url.database:
                self._file = Path(url.database), os.stat(url.database)
        except (SQLAlchemyError, OSError, ImportError, ValueError) as error:
            await self._close()
            raise StartError(f"the database {subject} cannot be used: {first_line(error)}") from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncConnection]:
        """Yield a connection; uncommitted changes are rolled back. Raises OSError while the database is down."""
        if self._engine is None:
            raise DatabaseUnavailable("the database is not open")
        self._borrowed += 1
        try:
            opening = self._engine.connect()
            try:
                await whole(_start_connection(opening))  # SQLite's thread would outlive a caller that is cancelled here
                yield opening
            finally:
                if opening.sync_connection is not None:
                    await whole(opening.close())
        except (SQLAlchemyError, TimeoutError) as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # a cancelled caller would retry after an error
                raise asyncio.CancelledError from error
            raise DatabaseUnavailable(f"the database cannot be used: {first_line(error)}") from error
        finally:
            self._borrowed -= 1
            self._back.set()

    async def check(self) -> None:
        """Raise OSError if nothing could be read and written now.

        It is gone, read-only, locked or full of others, or its disk is full.
        """
        if self._file is not None:
            path, open_files = self._file
            try:
                same = os.path.samestat(os.stat(path), open_files)
            except OSError as error:
                raise DatabaseUnavailable(f"the file {path} cannot be used: {error.strerror}") from error
            if not same:
                raise DatabaseUnavailable(f"the file {path} was replaced while the gateway runs: restart the gateway")
        async with self.connect() as connection:
            if connection.dialect.name == "postgresql":
                await connection.execute(SCHEMA_VERSION.select().with_for_update())
                await _spill(connection)
                await connection.commit()  # the lock has changed the row, so that this waits for the write-ahead log
            else:
                for step in (1, -1):  # SQLite writes no page whose content stays the same
                    await connection.execute(SCHEMA_VERSION.update().values(version=SCHEMA_VERSION.c.version + step))
                await connection.commit()  # only this writes, a page of the write-ahead log, which is used again

    async def reconnect(self) -> None:
        """Close the pooled connections; the next use opens new ones."""
        if self._engine is not None:
            await self._engine.dispose()

    async def _close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(LENT_SECONDS):
                while self._borrowed:
                    self._back.clear()
                    await self._back.wait()
        await engine.dispose()


async def _spill(connection: AsyncConnection) -> None:
    """Let PostgreSQL write a temporary file, so that a full disk shows: an update that fits into a page needs none.

    Raises as the database does, unless its operator bounds temporary files.
    """
    await connection.execute(text("SET LOCAL work_mem = '64kB'"))
    try:
        await connection.execute(text(_SORT))
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != CONFIGURATION_LIMIT:
            raise


async def _start_connection(connection: AsyncConnection) -> None:
    await connection.start()


async def _migrate_in_turn(url: URL) -> None:
    """Migrate the tables, waiting for other processes that do so first."""
    engine = _engine(url, MIGRATING_SECONDS)
    try:
        async with engine.begin() as connection:
            await connection.run_sync(_migrate)
    finally:
        await engine.dispose()


def _migrate(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_MIGRATING})"))
    migrate(connection)


def _engine(url: URL, seconds: float = POSTGRESQL_SECONDS) -> AsyncEngine:
    if url.get_backend_name() != "sqlite":
        limits = {"timeout": seconds, "command_timeout": seconds}
        return create_async_engine(url, pool_pre_ping=True, connect_args=limits, hide_parameters=True)
    if url.database and url.database != ":memory:":
        _make(Path(url.database))
    engine = create_async_engine(url, connect_args={"timeout": SQLITE_BUSY_SECONDS}, hide_parameters=True)
    event.listen(engine.sync_engine, "connect", _set_up_sqlite)
    return engine


def sqlite_file(text: str) -> Path | None:
    """Return the file of a SQLite database at the URL `text`; None for others, and for one with driver options."""
    try:
        url = make_url(text)
    except (SQLAlchemyError, ValueError):
        return None
    plain = url.drivername == "sqlite" and url.database and url.database != ":memory:" and not url.query
    return Path(url.database) if plain and url.database else None


def _make(file: Path) -> None:
    """Create the file with access for its owner alone: SQLite would let others read it.

    An existing file is not opened: closing it again would release the locks of all connections of this process.
    """
    if not file.exists():
        os.close(os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))


def _set_up_sqlite(connection: Any, _: object) -> None:
    """Let readers and the filler run concurrently; the last transactions may be lost, but the journal has them."""
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()


def first_line(error: BaseException) -> str:
    """Return an error's first line: SQLAlchemy puts the statement and its private values on the next ones."""
    return next(iter(str(error).splitlines()), type(error).__name__)


async def reseal_states(database: Database, ring: KeyRing, table: Table, place: Callable[[Row[Any]], str]) -> None:
    """Seal the column `state` of all rows with the newest key, except of those that no key opens."""
    newest = ring.ids[0]
    async with database.connect() as connection:
        rows = (await connection.execute(select(table).where(table.c.seal != newest))).all()
    for some in (rows[start : start + RESEALED_AT_ONCE] for start in range(0, len(rows), RESEALED_AT_ONCE)):
        async with database.connect() as connection:
            for row in some:
                try:
                    seal, state = ring.seal(ring.open(row.seal, bytes(row.state), place(row)), place(row))
                except SealBroken:
                    continue
                same_row = (table.c.key == row.key) & (table.c.state == row.state)  # by the running gateway
                await connection.execute(update(table).where(same_row).values(seal=seal, state=state))
            await connection.commit()


async def stored_secret(connection: AsyncConnection, name: str) -> bytes:
    """Return the secret `name`: created once, shared by all processes."""
    row = {"name": name, "value": secrets.token_bytes(32)}
    await connection.execute(insert(connection, SECRETS).values(row).on_conflict_do_nothing())
    value = (await connection.execute(select(SECRETS.c.value).where(SECRETS.c.name == name))).scalar_one()
    await connection.commit()
    return bytes(value)
