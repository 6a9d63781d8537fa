"""Versions of the database: an older gateway beside a newer one, and lines whose journal is gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine, inspect, text
from sqlalchemy.ext.asyncio import create_async_engine

from gateway.stores.schema import MIGRATIONS, SCHEMA_VERSION, migrate, version_of
from tests.postgresql import postgresql


@contextmanager
def lite(folder: Path) -> Iterator[Connection]:
    """A connection to an SQLite file."""
    engine = create_engine(f"sqlite:///{folder / 'gateway.db'}")
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def newer(connection: Connection, oldest: int | None) -> None:
    """Make the database one of the next version."""
    migrate(connection)
    connection.execute(SCHEMA_VERSION.update().values(version=len(MIGRATIONS) + 1, oldest=oldest))


@pytest.mark.parametrize("oldest", [len(MIGRATIONS), len(MIGRATIONS) - 1])
def test_a_newer_database_that_this_version_can_use_is_left_as_it_is(tmp_path: Path, oldest: int) -> None:
    """Two versions run beside each other while one replaces the other, also after a restart of the older one."""
    with lite(tmp_path) as connection:
        newer(connection, oldest)
        migrate(connection)
        assert version_of(connection) == len(MIGRATIONS) + 1


@pytest.mark.parametrize("oldest", [len(MIGRATIONS) + 1, None])
def test_a_newer_database_that_lacks_something_is_refused_with_the_remedy(tmp_path: Path, oldest: int | None) -> None:
    """The remedies are the newer gateway, and the backup of before."""
    with lite(tmp_path) as connection:
        newer(connection, oldest)
        with pytest.raises(ValueError, match=r"run the newer gateway .* storage restore"):
            migrate(connection)


OLD = "CREATE TABLE audit (line TEXT NOT NULL, id VARCHAR NOT NULL, PRIMARY KEY (id))"


def old(connection: Connection, rows: int) -> None:
    """Make the tables of version 3, with another form of lines."""
    for step in MIGRATIONS[:3]:
        step(connection)
    for name in ("audit", "audit_filled"):
        connection.execute(text(f"DROP TABLE {name}"))
    connection.execute(text(OLD))
    connection.execute(text("CREATE INDEX audit_id ON audit (id)"))
    connection.execute(text("CREATE TABLE audit_filled (chain VARCHAR NOT NULL, PRIMARY KEY (chain))"))
    for number in range(rows):
        connection.execute(text(f"INSERT INTO audit VALUES ('line {number}', '{number}')"))  # a number
    connection.execute(SCHEMA_VERSION.insert().values(version=3))


def check_kept(connection: Connection) -> None:
    """Migrate, twice, and find the old lines."""
    old(connection, 2)
    migrate(connection)
    connection.execute(SCHEMA_VERSION.update().values(version=3))  # as if it had been killed before the end
    migrate(connection)
    kept = connection.execute(text("SELECT line FROM audit_before_4 ORDER BY id")).scalars().all()
    assert kept == ["line 0", "line 1"]
    assert "position" in {column["name"] for column in inspect(connection).get_columns("audit")}


def test_old_lines_are_kept_in_sqlite(tmp_path: Path) -> None:
    """The journal that could fill the new table may have been moved away."""
    with lite(tmp_path) as connection:
        check_kept(connection)


async def test_old_lines_are_kept_in_postgresql() -> None:
    """The same, with its names of keys."""
    with postgresql() as server:
        engine = create_async_engine(server.url.replace("postgresql", "postgresql+asyncpg"))
        async with engine.begin() as connection:
            await connection.run_sync(check_kept)
        await engine.dispose()
