"""The databases in which the ports with a durable implementation are tested: SQLite and a real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gateway.stores.sql import Database
from tests.clock import Clock
from tests.postgresql import PostgreSQL, postgresql


@pytest.fixture
def clock() -> Clock:
    """A stopped clock."""
    return Clock()


@pytest.fixture(scope="session")
def server() -> Iterator[PostgreSQL]:
    """One PostgreSQL for all of these tests."""
    with postgresql() as started:
        yield started


@pytest.fixture(params=["sqlite", "postgresql"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/gateway.db"
    server: PostgreSQL = request.getfixturevalue("server")
    async with Database(server.url) as database, database.connect() as connection:
        await connection.exec_driver_sql("TRUNCATE sessions, quotas, taints, mcp_sessions, issued_tokens, launches")
        await connection.commit()
    return server.url


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    """The database of one process."""
    async with Database(url) as opened:
        yield opened


@pytest.fixture
async def other_database(url: str) -> AsyncIterator[Database]:
    """The same database, opened by another process."""
    async with Database(url) as opened:
        yield opened
