"""One attacked gateway for the whole suite."""

from collections.abc import AsyncIterator

import pytest

from tests.attacks.world import AttackWorld, attacked


@pytest.fixture(scope="session")
async def attacked_world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AttackWorld]:
    """The gateway, its backends and what they have seen."""
    async with attacked(tmp_path_factory.mktemp("attacks")) as world:
        yield world
