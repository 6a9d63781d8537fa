"""One PostgreSQL for the tests of this folder, with a database of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgresql import PostgreSQL, postgresql, programs


@pytest.fixture(scope="session")
def server() -> Iterator[PostgreSQL]:
    """A running PostgreSQL."""
    if programs() is None:
        pytest.skip("PostgreSQL is not installed: run scripts/postgresql")
    with postgresql() as running:
        yield running


@pytest.fixture
def database(server: PostgreSQL) -> str:
    """The URL of a new database."""
    return server.new_database()
