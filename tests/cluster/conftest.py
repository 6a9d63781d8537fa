"""One PostgreSQL for the tests of this folder, with a database of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.postgresql import PostgreSQL, postgresql, programs

_numbers = count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[PostgreSQL]:
    """A running PostgreSQL."""
    if programs() is None:
        pytest.skip("PostgreSQL is not installed: run scripts/postgresql")
    with postgresql() as running:
        yield running


@pytest.fixture
async def database(server: PostgreSQL) -> str:
    """The URL of a new database."""
    name = f"cluster_{next(_numbers)}"
    engine = create_async_engine(server.url.replace("postgresql:", "postgresql+asyncpg:"), isolation_level="AUTOCOMMIT")
    async with engine.connect() as connection:
        await connection.execute(text(f"CREATE DATABASE {name}"))
    await engine.dispose()
    return server.url.rpartition("/")[0] + f"/{name}"
