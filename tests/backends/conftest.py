"""A backend for the tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateway.backends.connect import Connections
from gateway.backends.http import HttpBackend
from tests.backends.peers import Shop


@pytest.fixture
async def backend() -> AsyncIterator[HttpBackend]:
    """A backend that may connect to loopback."""
    async with Connections() as connections:
        yield HttpBackend(Shop(), connections)
