"""A real Redis for each test that breaks it, and the connections of gateways to it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

from gateway.stores.redis.connection import Redis
from gateway.telemetry import Metrics
from tests.redis_server import RedisServer, be_patient, redis_server

Failures = dict[str, float]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Need no quick machine."""
    be_patient(monkeypatch)


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A Redis that the test may break."""
    with redis_server() as started:
        yield started


@pytest.fixture
def metrics() -> Metrics:
    """The metrics of one process."""
    return Metrics()


def failures(metrics: Metrics) -> set[str]:
    """Return the kinds of failures that were counted."""
    return {str(sample.labels["failure"]) for family in metrics.redis_failures.collect() for sample in family.samples}


async def until(wanted: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not wanted():
        assert time.monotonic() < end, "it does not become so"
        await asyncio.sleep(0.02)


async def is_back(redis: Redis) -> None:
    """Wait until Redis can be used."""
    await until(lambda: redis.usable)
