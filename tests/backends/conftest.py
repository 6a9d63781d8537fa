"""A backend for the tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateway.backends.connect import Connections
from gateway.backends.http import HttpBackend
from tests.backends.peers import Shop


@pytest.fixture
async def backend(http_client: str) -> AsyncIterator[HttpBackend]:
    """A backend that may connect to loopback, with either HTTP client."""
    async with Connections(use_aiohttp=http_client == "aiohttp") as connections:
        yield HttpBackend(Shop(), connections)
