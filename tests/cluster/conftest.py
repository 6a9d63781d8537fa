"""One PostgreSQL for the tests of this folder, with a database of its own for each test; Redis; three machines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.machines import Machines, machines, serve_machines
from tests.postgresql import PostgreSQL, postgresql, programs
from tests.redis_server import RedisServer, redis_server


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


@pytest.fixture(scope="session")
def places(server: PostgreSQL) -> Iterator[Machines]:
    """Three machines, which PostgreSQL serves."""
    with machines() as made:
        serve_machines(server, made)
        yield made


@pytest.fixture
def redis(places: Machines) -> Iterator[RedisServer]:
    """A new Redis that the machines reach."""
    with redis_server(bind=places.bound, protected_mode="no") as running:
        yield running
