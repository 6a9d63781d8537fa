"""A PostgreSQL for simulations: the real statements of the stores, run by SQLite without threads, on virtual time.

SQLAlchemy compiles for a dialect named `postgresql`, so that the stores take the same ways as in production. What
differs from PostgreSQL: a transaction that has begun to write excludes other writers of the whole database, where
PostgreSQL locks rows; `SELECT … FOR UPDATE` counts as a write. Until then each statement reads what is committed at
its time, as with READ COMMITTED. Advisory locks are held until the end of the transaction, as there. The transaction
of a stopped process is rolled back after `IDLE` seconds.
"""

from __future__ import annotations

import asyncio
import random
import re
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from sqlalchemy import create_engine
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler, SQLiteDialect
from sqlalchemy.ext.asyncio.engine import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool
from sqlalchemy.util import await_only

from gateway.stores.schema import METADATA
from gateway.stores.sql import POSTGRESQL_SECONDS, Database
from tests.cluster.simulation.virtual_time import EPOCH, MACHINE, Machine, VirtualLoop

IDLE: Final = 2.0
"""Seconds after which the open transaction of a stopped process is rolled back."""

_TIME: Final = re.compile(r"extract\(epoch FROM clock_timestamp\(\)\)")
_ADVISORY: Final = re.compile(r"pg_advisory_xact_lock\(([^)]*)\)")
_WRITES: Final = re.compile(r"\s*(INSERT|UPDATE|DELETE)|/\* FOR UPDATE \*/", re.IGNORECASE)


class _Compiler(SQLiteCompiler):
    def for_update_clause(self, select: Any, **options: Any) -> str:
        return " /* FOR UPDATE */"

    def visit_extract(self, extract: Any, **options: Any) -> str:
        return self.process(extract.expr, **options)


class VirtualDialect(SQLiteDialect):
    """SQLite's SQL, under the name of PostgreSQL."""

    name = "postgresql"
    driver = "virtual"
    is_async = True
    supports_statement_cache = True
    statement_compiler = _Compiler
    default_paramstyle = "qmark"

    @classmethod
    def get_pool_class(cls, url: Any) -> Any:
        """Return the pool that keeps nothing."""
        return NullPool

    def initialize(self, connection: Any) -> None:
        """Do nothing: the version is known."""

    def on_connect(self) -> None:
        """Do nothing."""

    def do_ping(self, dbapi_connection: Any) -> bool:
        """Return True."""
        return True

    def is_disconnect(self, e: Any, connection: Any, cursor: Any) -> bool:
        """Return False: connections are not kept."""
        return False


registry.register("virtualpg", __name__, "VirtualDialect")


@cache
def _engine() -> AsyncEngine:
    """Return the engine of all runs of this process, which has compiled their statements."""
    module = SimpleNamespace(
        connect=lambda **_: _servers[-1].connect(),
        paramstyle="qmark",
        Binary=memoryview,
        sqlite_version_info=sqlite3.sqlite_version_info,
        **{name: getattr(sqlite3, name) for name in dir(sqlite3) if name.endswith("Error")},
    )
    return create_async_engine("virtualpg://", module=module)


_servers: list[Server] = []


class Server:
    """The database of one run. `chance` decides about delays and failures while `unreliable` is above 0.

    `down_until` is the time until which it refuses connections.
    """

    def __init__(self, loop: VirtualLoop, chance: random.Random, folder: Path, note: Callable[[str], None]) -> None:
        self.loop = loop
        self.chance = chance
        self.note = note
        self.unreliable = 0.0
        self.down_until = 0.0
        self.connections: dict[_Connection, None] = {}
        self._locks: dict[str, _Connection] = {}
        self._queue: deque[tuple[_Connection, str, Callable[[], None]]] = deque()
        path = folder / "virtual.db"
        for old in folder.glob("virtual.db*"):
            old.unlink()
        if not (template := folder / "template.db").exists():
            engine = create_engine(f"sqlite:///{template}")
            METADATA.create_all(engine)
            with engine.connect() as connection:
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")
            engine.dispose()
        path.write_bytes(template.read_bytes())
        self._writer, self._reader = self._open(path), self._open(path)
        _servers[:] = [self]

    def _open(self, path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None, cached_statements=512)
        connection.execute("PRAGMA synchronous=OFF")
        connection.create_function("clock_timestamp", 0, self.time)
        return connection

    def time(self) -> float:
        """Return the time of the database, in seconds since the epoch."""
        return EPOCH + self.loop.now

    def read(self, statement: str, *values: Any) -> list[Any]:
        """Return committed rows at once, for those who judge a run."""
        return self._reader.execute(statement, values).fetchall()

    def database(self) -> Database:
        """Return the store that uses this database, as it is after its start."""
        database = Database("virtualpg://")
        database._engine = _engine()  # its start would migrate tables, which a run does not need
        return database

    def connect(self) -> _Connection:
        """Return a new connection."""
        connection = _Connection(self, MACHINE.get())
        await_only(self._ask(connection, lambda: None))
        self.connections[connection] = None
        return connection

    def restart(self, seconds: float) -> None:
        """Break all connections, and refuse new ones for some time."""
        self.down_until = self.loop.now + seconds
        for connection in list(self.connections):
            self.drop(connection)

    def drop_machine(self, machine: Machine) -> None:
        """Roll back what a process has not committed that was killed."""
        for connection in [one for one in self.connections if one.machine is machine]:
            self.loop.later(0.01, self.drop, connection)

    def drop_idle(self, machine: Machine) -> None:
        """Roll back what a process has not committed that has been stopped for long."""
        for connection in [one for one in self.connections if one.machine is machine]:
            self.drop(connection)

    def drop(self, connection: _Connection) -> None:
        """Break a connection."""
        connection.broken = True
        self.connections.pop(connection, None)
        self._end(connection, commit=False)

    def close(self) -> None:
        """Close the files."""
        self._writer.close()
        self._reader.close()

    # ── one statement ───────────────────────────────────────────────────────────────────────────────────────────

    async def _ask(self, connection: _Connection, run: Callable[[], Any], lock: str | None = None) -> Any:
        """Return the result of `run`, which the server runs once it has the lock. Raises what drivers raise."""
        answer: asyncio.Future[Any] = self.loop.create_future()

        def reply(result: Any, error: Exception | None) -> None:
            if not answer.done():
                answer.set_result(result) if error is None else answer.set_exception(error)

        def send(result: Any, error: Exception | None = None) -> None:
            self.loop.later(self._delay(), reply, result, error)

        def serve() -> None:
            if connection.broken or self.loop.now < self.down_until:
                self.drop(connection)
                send(None, sqlite3.OperationalError("the connection is lost"))
                return
            lose = self.chance.random() < self.unreliable
            if lose and self.chance.random() < 0.5:
                self.note("a statement is lost before its effect")
                self.drop(connection)
                send(None, sqlite3.OperationalError("the connection was lost before"))
                return
            try:
                result = run()
            except sqlite3.Error as error:
                send(None, error)
                return
            if lose:
                self.note("the answer to a statement is lost")
                self.drop(connection)
                send(None, sqlite3.OperationalError("the connection was lost after"))
                return
            send(result)

        def arrive() -> None:
            if lock is None or connection.broken or self._locks.get(lock) is connection:
                serve()
            elif lock not in self._locks:
                self._take(connection, lock)
                serve()
            else:
                self._queue.append((connection, lock, serve))

        self.loop.later(self._delay(), arrive)
        try:
            async with asyncio.timeout(POSTGRESQL_SECONDS):
                return await answer
        except TimeoutError:
            self.drop(connection)
            raise

    def _take(self, connection: _Connection, lock: str) -> None:
        self._locks[lock] = connection
        if lock == "write":
            self._writer.execute("BEGIN IMMEDIATE")

    def _end(self, connection: _Connection, *, commit: bool) -> None:
        """End a transaction, and let those go on that wait for its locks."""
        mine = [lock for lock, owner in self._locks.items() if owner is connection]
        if "write" in mine:
            self._writer.execute("COMMIT" if commit else "ROLLBACK")
        for lock in mine:
            del self._locks[lock]
        waiting, self._queue = self._queue, deque()
        for other, lock, serve in waiting:
            if other.broken:
                self.loop.later(0.0, serve)
            elif lock not in self._locks:
                self._take(other, lock)
                self.loop.later(0.0, serve)
            else:
                self._queue.append((other, lock, serve))

    def _delay(self) -> float:
        if self.unreliable and self.chance.random() < self.unreliable / 4:
            return self.chance.uniform(0.5, 8.0)
        return 0.0002 + 0.003 * self.chance.random()

    def run(self, connection: _Connection, sql: str, values: Any, *, many: bool) -> _Result:
        """Run one statement now, in the transaction of a connection if that writes."""
        place = self._writer if self._locks.get("write") is connection else self._reader
        cursor = place.executemany(sql, values) if many else place.execute(sql, values)
        rows = cursor.fetchall() if cursor.description else []
        return _Result(cursor.description, rows, cursor.rowcount, cursor.lastrowid)


class _Result:
    def __init__(self, description: Any, rows: list[Any], rowcount: int, lastrowid: int | None) -> None:
        self.description = description
        self.rows = rows
        self.rowcount = rowcount
        self.lastrowid = lastrowid


class _Connection:
    """A connection as SQLAlchemy sees one of an asynchronous driver."""

    def __init__(self, server: Server, machine: Machine | None) -> None:
        self.server = server
        self.machine = machine
        self.broken = False

    def cursor(self, *_: Any, **__: Any) -> _Cursor:
        return _Cursor(self)

    def execute(self, sql: str, values: Any, *, many: bool) -> _Result:
        server, sql = self.server, _TIME.sub("clock_timestamp()", sql)
        if (advisory := _ADVISORY.search(sql)) is not None:
            lock = f"advisory {advisory[1] if '?' not in advisory[1] else list(values)}"
            return _answer(await_only(server._ask(self, lambda: _Result((("lock",) * 7,), [(None,)], 1, None), lock)))
        lock_needed = "write" if _WRITES.search(sql) else None
        run = lambda: server.run(self, sql, values, many=many)  # noqa: E731  one expression
        return _answer(await_only(server._ask(self, run, lock_needed)))

    def commit(self) -> None:
        if self._writes():
            await_only(self.server._ask(self, lambda: self.server._end(self, commit=True)))

    def rollback(self) -> None:
        if self._writes():
            with suppress(sqlite3.Error, TimeoutError):
                await_only(self.server._ask(self, lambda: self.server._end(self, commit=False)))

    def close(self) -> None:
        self.server.connections.pop(self, None)
        if self._writes():
            self.server._end(self, commit=False)

    def terminate(self) -> None:
        self.close()

    def _writes(self) -> bool:
        return self in self.server._locks.values()


def _answer(result: Any) -> _Result:
    if not isinstance(result, _Result):
        raise TypeError("a statement has a result")
    return result


class _Cursor:
    arraysize = 1

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self._rows: deque[Any] = deque()
        self.description: Any = None
        self.rowcount = -1
        self.lastrowid: int | None = None
        self.server_side = False

    def execute(self, sql: str, values: Any = ()) -> None:
        self._keep(self._connection.execute(sql, values, many=False))

    def executemany(self, sql: str, values: Sequence[Any]) -> None:
        self._keep(self._connection.execute(sql, values, many=True))

    def _keep(self, result: _Result) -> None:
        self.description, self.rowcount, self.lastrowid = result.description, result.rowcount, result.lastrowid
        self._rows = deque(result.rows)

    def fetchone(self) -> Any:
        return self._rows.popleft() if self._rows else None

    def fetchmany(self, size: int | None = None) -> list[Any]:
        return [self._rows.popleft() for _ in range(min(size or self.arraysize, len(self._rows)))]

    def fetchall(self) -> list[Any]:
        rows, self._rows = list(self._rows), deque()
        return rows

    def setinputsizes(self, *_: Any) -> None: ...

    async def _async_soft_close(self) -> None: ...

    def close(self) -> None:
        self._rows.clear()
