"""What tests of every room share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.world import World, running


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """The cart example behind a gateway, with real servers."""
    async with running(tmp_path) as started:
        yield started
