"""One attacked gateway for each file of tests."""

from collections.abc import AsyncIterator

import pytest

from tests.attacks.world import AttackWorld, attacked


@pytest.fixture(scope="module")
async def attacked_world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AttackWorld]:
    """The gateway, its backends and what they have seen."""
    async with attacked(tmp_path_factory.mktemp("attacks")) as world:
        yield world
