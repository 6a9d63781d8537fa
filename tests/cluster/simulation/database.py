"""A PostgreSQL for simulations: the real statements of the stores, run by SQLite without threads, on virtual time.

The stores' statements are compiled by SQLAlchemy for a dialect named `postgresql`, so that they take the same ways as
in production; its engine, pool and greenlets are left out, since they took most of the time of a run. What differs
from PostgreSQL: a transaction that has begun to write excludes other writers of the whole database, where PostgreSQL
locks rows; `SELECT … FOR UPDATE` counts as a write. Until then each statement reads what is committed at its time, as
with READ COMMITTED. Advisory locks are held until the end of the transaction, as there. The transaction of a stopped
process is rolled back after `IDLE` seconds.
"""

from __future__ import annotations

import asyncio
import random
import re
import sqlite3
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import cache
from pathlib import Path
from typing import Any, Final

from sqlalchemy import create_engine, exc
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler, SQLiteDialect
from sqlalchemy.engine.result import IteratorResult, SimpleResultMetaData

from gateway.stores.schema import METADATA
from gateway.stores.sql import POSTGRESQL_SECONDS, Database
from tests.cluster.simulation.virtual_time import EPOCH, MACHINE, Machine, VirtualLoop

IDLE: Final = 2.0
"""Seconds after which the open transaction of a stopped process is rolled back."""

MUCH: Final = 1.0
"""Seconds of a delay above which a statement may take longer than its client waits."""

_TIME: Final = re.compile(r"extract\(epoch FROM clock_timestamp\(\)\)")
_ADVISORY: Final = re.compile(r"pg_advisory_xact_lock\(([^)]*)\)")
_WRITES: Final = re.compile(r"\s*(INSERT|UPDATE|DELETE)|.*/\* FOR UPDATE \*/", re.IGNORECASE | re.DOTALL)


class _Compiler(SQLiteCompiler):
    def for_update_clause(self, select: Any, **options: Any) -> str:
        return " /* FOR UPDATE */"

    def visit_extract(self, extract: Any, **options: Any) -> str:
        return self.process(extract.expr, **options)


class VirtualDialect(SQLiteDialect):
    """SQLite's SQL, under the name of PostgreSQL."""

    name = "postgresql"
    driver = "virtual"
    supports_statement_cache = True
    statement_compiler = _Compiler
    default_paramstyle = "qmark"


_DIALECT: Final = VirtualDialect(paramstyle="qmark")
_COMPILED: Final[dict[Any, Any]] = {}
"""The compiled statements of all runs of this process, by SQLAlchemy's key."""


@cache
def _template() -> bytes:
    """Return the file of an empty database with all tables."""
    memory = sqlite3.connect(":memory:")
    engine = create_engine("sqlite://", creator=lambda: memory)
    METADATA.create_all(engine)
    return memory.serialize()


def prepare() -> None:
    """Do what all runs need."""
    _template()


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
        path.write_bytes(_template())
        self._writer, self._reader = self._open(path), self._open(path)

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
        database._engine = _Engine(self)  # type: ignore[assignment]  # its start would migrate tables
        return database

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
        self.end(connection, commit=False)

    def close(self) -> None:
        """Close the files."""
        self._writer.close()
        self._reader.close()

    # ── one statement ───────────────────────────────────────────────────────────────────────────────────────────

    async def ask(self, connection: _Connection, run: Callable[[], Any], lock: str | None = None) -> Any:
        """Return the result of `run`, which the server runs once it has the lock. Raises what drivers raise."""
        loop, answer = self.loop, self.loop.create_future()
        sent, context = loop.now, copy_context()

        def reply(result: Any, error: Exception | None) -> None:
            if not answer.done():
                answer.set_result(result) if error is None else answer.set_exception(error)

        def expire() -> None:
            self.drop(connection)
            reply(None, TimeoutError())

        def wait_at_most() -> None:
            timers.append(loop.call_at(sent + POSTGRESQL_SECONDS, expire, context=context))

        def send(result: Any, error: Exception | None = None) -> None:
            if (delay := self._delay()) > MUCH and not timers:
                wait_at_most()
            loop.later(delay, reply, result, error)

        def serve() -> None:
            if connection.broken or loop.now < self.down_until:
                self.drop(connection)
                send(None, sqlite3.OperationalError("the connection is lost"))
                return
            lose = self.unreliable and self.chance.random() < self.unreliable
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
                if not timers:
                    wait_at_most()
                self._queue.append((connection, lock, serve))

        timers: list[asyncio.TimerHandle] = []
        if (delay := self._delay()) > MUCH:
            wait_at_most()
        loop.later(delay, arrive)
        try:
            return await answer
        finally:
            for timer in timers:
                timer.cancel()

    def _take(self, connection: _Connection, lock: str) -> None:
        self._locks[lock] = connection
        if lock == "write":
            self._writer.execute("BEGIN IMMEDIATE")

    def end(self, connection: _Connection, *, commit: bool) -> None:
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

    def run(self, connection: _Connection, sql: str, values: Sequence[Any]) -> tuple[list[Any], list[str], int]:
        """Run one statement now, in the transaction of a connection if that writes.

        Return its rows, the names of its columns, and how many rows it has changed.
        """
        cursor = (self._writer if self._locks.get("write") is connection else self._reader).execute(sql, values)
        names = [column[0] for column in cursor.description or ()]
        return cursor.fetchall() if names else [], names, cursor.rowcount

    def holds_any(self, connection: _Connection) -> bool:
        """Return whether a connection has locks."""
        return any(owner is connection for owner in self._locks.values())


class _Engine:
    """The part of SQLAlchemy's engine that stores use: it makes connections."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def connect(self) -> _Connection:
        return _Connection(self._server, MACHINE.get())


class _Result(IteratorResult[Any]):
    """The rows of a statement, and how many rows it has changed."""

    rowcount: int = -1


class _Connection:
    """A connection, with the methods of SQLAlchemy's `AsyncConnection` that stores use."""

    dialect = _DIALECT

    def __init__(self, server: Server, machine: Machine | None) -> None:
        self.server = server
        self.machine = machine
        self.broken = False
        self.sync_connection: object = None

    async def start(self) -> None:
        """Take it from the pool, which costs no message."""
        self.sync_connection = self
        self.server.connections[self] = None

    async def execute(self, statement: Any, given: Any = None) -> _Result:
        """Run a statement, once for each of the given rows. Raises what SQLAlchemy raises."""
        rows = [_compile(statement, one) for one in (given if isinstance(given, list) else [given])]
        server, (sql, values, compiled) = self.server, rows[0]
        kind = _kind(sql)
        if kind.startswith("advisory"):
            lock: str | None = f"advisory {values}" if "?" in kind else kind
            run: Callable[[], Any] = lambda: ([(None,)], ["lock"], 1)  # noqa: E731  one expression
        else:
            lock = kind or None
            run = lambda: [server.run(self, sql, values) for sql, values, _ in rows][-1]  # noqa: E731  one expression
        try:
            answer, names, count = await server.ask(self, run, lock)
        except sqlite3.IntegrityError as error:
            raise exc.IntegrityError(sql, None, error) from error
        except sqlite3.Error as error:
            raise exc.OperationalError(sql, None, error) from error
        result = _Result(_metadata(compiled) or SimpleResultMetaData(names), iter(answer))
        result.rowcount = count
        return result

    async def scalar(self, statement: Any) -> Any:
        """Return the first column of the first row; None without one."""
        return (await self.execute(statement)).scalar()

    async def scalars(self, statement: Any) -> Any:
        """Return the first column of all rows."""
        return (await self.execute(statement)).scalars()

    async def commit(self) -> None:
        """End the transaction. Raises what SQLAlchemy raises."""
        if self.server.holds_any(self):
            try:
                await self.server.ask(self, lambda: self.server.end(self, commit=True))
            except sqlite3.Error as error:
                raise exc.OperationalError("COMMIT", None, error) from error

    async def rollback(self) -> None:
        """Give the transaction up."""
        if self.server.holds_any(self):
            with suppress(sqlite3.Error, TimeoutError):
                await self.server.ask(self, lambda: self.server.end(self, commit=False))

    async def close(self) -> None:
        """Give the connection back to the pool, which rolls back what is not committed."""
        await self.rollback()
        self.server.connections.pop(self, None)
        if self.server.holds_any(self):
            self.server.end(self, commit=False)


def _compile(statement: Any, given: Mapping[str, Any] | None) -> tuple[str, list[Any], Any]:
    """Return the text and the values of a statement, and what it was compiled to, as SQLAlchemy's engine does."""
    compiled, extracted, *more = statement._compile_w_cache(
        _DIALECT, compiled_cache=_COMPILED, column_keys=list(given or ())
    )
    options = {"_collected_params": more[0]} if len(more) > 1 else {}  # since SQLAlchemy 2.1
    named = compiled.construct_params(given or {}, extracted_parameters=extracted, escape_names=False, **options)
    convert, sql, names = compiled._bind_processors, compiled.string, compiled.positiontup or []
    if compiled.literal_execute_params or compiled.post_compile_params:
        expanded = compiled._process_parameters_for_postcompile(named)
        convert, sql, names = {**convert, **expanded.processors}, expanded.statement, expanded.positiontup or []
    return (
        _for_sqlite(sql),
        [convert[name](named[name]) if name in convert else named[name] for name in names],
        compiled,
    )


@cache
def _for_sqlite(sql: str) -> str:
    return _TIME.sub("clock_timestamp()", sql)


@cache
def _kind(sql: str) -> str:
    """Return "write" for a statement that writes, the call of an advisory lock, or nothing."""
    if (advisory := _ADVISORY.search(sql)) is not None:
        return f"advisory {advisory[1]}"
    return "write" if _WRITES.match(sql) else ""


@cache
def _metadata(compiled: Any) -> SimpleResultMetaData | None:
    """Return the names of a statement's columns with what converts them; None if only the database knows them."""
    columns = getattr(compiled, "_result_columns", ())
    convert = [column.type.dialect_impl(_DIALECT).result_processor(_DIALECT, None) for column in columns]
    names = [column.keyname for column in columns]
    return SimpleResultMetaData(names, _processors=convert if any(convert) else None) if names else None
