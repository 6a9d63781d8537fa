"""One attacked gateway for each test file."""

from collections.abc import AsyncIterator

import pytest

from tests.attacks.world import AttackWorld, running_world


@pytest.fixture(scope="module")
async def attacked_world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AttackWorld]:
    """The gateway and its backends, with the requests that they received."""
    async with running_world(tmp_path_factory.mktemp("attacks")) as world:
        yield world


@pytest.fixture(scope="module")
async def slow_world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AttackWorld]:
    """The same without the fast path."""
    async with running_world(tmp_path_factory.mktemp("slow"), fast_path=False) as world:
        yield world
