"""The cart app's servers, fresh for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.examples.house import House, running


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """Yield a new house."""
    async with running(tmp_path) as built:
        yield built
