"""Amounts that one person holds in several gateways count together, a second later, and locally without Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateway.bounds import Shares
from gateway.stores.redis.connection import Redis
from gateway.stores.redis.members import Members
from gateway.stores.redis.rates import RedisShares
from gateway.telemetry import Metrics
from tests.redis_server import RedisServer
from tests.stores.redis.conftest import until

Gateway = tuple[Shares, RedisShares, Redis]


@pytest.fixture
async def gateways(server: RedisServer) -> AsyncIterator[tuple[Gateway, Gateway]]:
    """Two gateways, each with a hundred places per person, which exchange their amounts when the test says so."""
    async with Redis(server.url, Metrics()) as one, Redis(server.url, Metrics()) as other:
        made = []
        for name, redis in (("one", one), ("other", other)):
            shares = Shares(100, 10_000)
            made.append((shares, RedisShares(redis, Members(redis, name), {"bodies": shares}), redis))
        yield made[0], made[1]


async def exchange(*gateways: Gateway) -> None:
    """Let all know of all."""
    for _ in range(2):
        for _, held, _ in gateways:
            await held.exchange()


async def test_what_is_held_elsewhere_counts(gateways: tuple[Gateway, Gateway]) -> None:
    """Of the same person alone; and no more once it was given back."""
    (here, _, _), (there, _, _) = gateways
    assert here.take("ada", 60)
    assert there.take("ada", 30)
    await exchange(*gateways)
    assert (here.take("ada", 11), here.take("ada", 10)) == (False, True)
    assert there.take("eve", 100)
    here.give("ada", 70)
    await exchange(*gateways)
    assert there.take("ada", 70)


async def test_small_amounts_are_not_told(gateways: tuple[Gateway, Gateway], server: RedisServer) -> None:
    """A stream of each of a million persons costs no command."""
    redis = gateways[0][2]
    whole = Shares(1000, 10_000)
    small = RedisShares(redis, Members(redis, "one"), {"streams": whole})
    assert whole.take("ada", 14)
    await small.exchange()
    assert not [name for name in server.names() if "held" in name]
    assert whole.take("ada", 1)
    await small.exchange()
    (key,) = [name for name in server.names() if "held" in name]
    assert "ada" not in key
    assert 0 < server.ask("PTTL", key) <= 30_000


@pytest.mark.parametrize(
    "write",
    [
        ("SET", "KEY", "x"),
        ("HSET", "KEY", "x", "y"),
        ("HSET", "KEY", "x", "5:1"),
        ("HSET", "KEY", "x", "9" * 400 + ":1"),
    ],
)
async def test_foreign_data_hold_nothing(
    gateways: tuple[Gateway, Gateway], server: RedisServer, write: tuple[str, ...]
) -> None:
    """Nor does a process that has ended without giving back."""
    (here, _, _), (there, _, _) = gateways
    assert here.take("ada", 60)
    await exchange(*gateways)
    (key,) = [name for name in server.names() if "held" in name]
    if write[0] == "SET":
        server.ask("DEL", key)
    server.ask(*(key if word == "KEY" else word for word in write))
    assert there.take("ada", 30)
    await exchange(*gateways)
    assert there.elsewhere == {"ada": 60}
    assert here.elsewhere == {"ada": 30}


async def test_without_redis_each_counts_its_own(gateways: tuple[Gateway, Gateway], server: RedisServer) -> None:
    """Until it is there again."""
    (here, _, redis), (there, _, other) = gateways
    assert here.take("ada", 60)
    assert there.take("ada", 30)
    await exchange(*gateways)
    server.stop()
    await exchange(*gateways)
    assert (dict(here.elsewhere), dict(there.elsewhere)) == ({}, {})
    server.start()
    await until(lambda: redis.usable and other.usable)
    await exchange(*gateways)
    assert (here.elsewhere, there.elsewhere) == ({"ada": 30}, {"ada": 60})
