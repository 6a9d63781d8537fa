"""The stores in which the ports are tested: SQLite, a real PostgreSQL, and a real Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Float, literal

from gateway.model import Secret
from gateway.stores.approval_rows import TimeOf
from gateway.stores.redis.connection import Redis
from gateway.stores.schema import METADATA, SCHEMA_VERSION
from gateway.stores.sealing import GivenKeys, KeyRing, new_key
from gateway.stores.sql import Database
from gateway.telemetry import Metrics
from tests.clock import Clock
from tests.postgresql import PostgreSQL, postgresql
from tests.redis_server import RedisServer, be_patient, redis_server


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
    return await empty_database(request.param, request, tmp_path)


async def empty_database(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    """Return the URL of an empty database of this kind; the one of SQLite is in `folder`."""
    if kind == "sqlite":
        return f"sqlite:///{folder}/gateway.db"
    server: PostgreSQL = request.getfixturevalue("server")
    tables = ", ".join(table.name for table in METADATA.sorted_tables if table is not SCHEMA_VERSION)
    async with Database(server.url) as database, database.connect() as connection:
        await connection.exec_driver_sql(f"TRUNCATE {tables}")
        await connection.commit()
    return server.url


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
async def shared(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database | None]:
    """The database of an implementation for several processes; None for the one in memory."""
    if request.param == "memory":
        yield None
        return
    async with Database(await empty_database(request.param, request, tmp_path)) as opened:
        yield opened


@pytest.fixture
def ring() -> KeyRing:
    """The keys that the processes of one gateway share."""
    return KeyRing(GivenKeys("KEYS", Secret(new_key())))


def at(clock: Clock) -> TimeOf:
    """Let a clock of the test be that of the database."""
    return lambda _: literal(clock.now, Float)


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


@pytest.fixture(scope="session")
def redis_process() -> Iterator[RedisServer]:
    """One Redis for all of these tests."""
    with redis_server() as started:
        yield started


@pytest.fixture
async def redis(redis_process: RedisServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Redis]:
    """The connections of one process to an empty Redis."""
    be_patient(monkeypatch)
    redis_process.ask("FLUSHALL")
    async with Redis(redis_process.url, Metrics()) as connected:
        yield connected


@pytest.fixture
async def other_redis(redis: Redis, redis_process: RedisServer) -> AsyncIterator[Redis]:
    """Those of another process to the same Redis."""
    async with Redis(redis_process.url, Metrics()) as connected:
        yield connected
