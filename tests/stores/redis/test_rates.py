"""Rates in Redis: the vectors of local buckets, exact over gateways, never more than the rate, strict without it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from gateway.exchange.limit import MemoryRates
from gateway.model import LOCAL, Caller, Door, Initiator
from gateway.policy import Limit, Per, Rate, take
from gateway.ports.limits import TakenRates
from gateway.stores.redis.connection import Redis, Script
from gateway.stores.redis.members import Members
from gateway.stores.redis.rates import TAKE, RedisBuckets, RedisRates, bucket_of, local_share
from gateway.telemetry import Metrics
from tests.clock import Clock
from tests.redis_server import RedisServer
from tests.stores.redis.conftest import failures, until

CALLER = Caller(LOCAL, "cart", Door.BRIDGE, Initiator.PAGE, "no-gesture", view="v1", proven=True)
THREE = Limit(Rate(3, 60.0), Per.PRINCIPAL, "rule")

Vector = tuple[Rate, Sequence[tuple[float, bool, float]]]

VECTORS: dict[str, Vector] = {
    "a burst, then one for each interval": (
        Rate(3, 60.0),
        [(0, True, 0), (0, True, 0), (0, True, 0), (0, False, 20), (19.7, False, 0.3), (20, True, 0), (20, False, 20)],
    ),
    "a refused call takes nothing": (Rate(1, 10.0), [(0, True, 0), (1, False, 9), (9, False, 1), (10, True, 0)]),
    "a full bucket is no fuller later": (Rate(2, 2.0), [(0, True, 0), (99, True, 0), (99, True, 0), (99, False, 1)]),
    "an interval that is no number of microseconds": (
        Rate(3, 1.0),
        [(0, True, 0), (0, True, 0), (0, True, 0), (0.3, False, 0.033334), (0.34, True, 0)],
    ),
    "a tolerance of a hundredth of an interval": (
        Rate(1, 100.0),
        [(0, True, 0), (98.9, False, 1.1), (99.01, True, 0), (197.9, False, 2.1)],
    ),
}


@pytest.mark.parametrize("vector", VECTORS.values(), ids=VECTORS)
def test_local_buckets_follow_the_vectors(vector: Vector) -> None:
    """Each step: the time in seconds, whether the call is allowed, and the seconds to wait."""
    rate, steps = vector
    tat = 0.0
    for at, allowed, wait in steps:
        outcome = take(tat, 1000.0 + at, rate)
        tat = outcome.tat
        assert outcome.allowed == allowed
        assert outcome.retry_after == pytest.approx(wait, abs=1e-4)


@pytest.fixture
async def redis(server: RedisServer, metrics: Metrics) -> AsyncIterator[Redis]:
    """The connections of one gateway."""
    async with Redis(server.url, metrics) as connected:
        yield connected


STOPPED = Script(TAKE.text.replace("redis.call('TIME')", "redis.call('HMGET', 'clock', 's', 'us')"))
"""The script with a clock that the test sets."""


async def take_at(redis: Redis, rate: Rate, at: float, key: str = "webmcp:rate:x") -> tuple[bool, float]:
    """Take one cell at a time in seconds; return whether there was one, and the seconds to wait."""
    micros = round((1_800_000_000 + at) * 1_000_000)
    clock = redis.calls.send(("HSET", "clock", "s", micros // 1_000_000, "us", micros % 1_000_000))
    bucket = bucket_of(rate, key)
    reply: Any = await redis.calls.run(STOPPED, [key], (9, bucket.interval, bucket.period, ""))
    await clock
    return reply[0] == 0, int(reply[1]) / 1_000_000


@pytest.mark.parametrize("vector", VECTORS.values(), ids=VECTORS)
async def test_buckets_in_redis_follow_the_same_vectors(redis: Redis, vector: Vector) -> None:
    """The script itself, with another clock."""
    assert STOPPED.text != TAKE.text
    rate, steps = vector
    for at, allowed, wait in steps:
        found, seconds = await take_at(redis, rate, at)
        assert found == allowed
        assert seconds == pytest.approx(wait, abs=1e-4)


async def test_more_than_the_rate_is_never_admitted(redis: Redis) -> None:
    """In every span of time, whatever the rate: at most a burst, and one for each interval, less its tolerance."""
    runs = iter(range(1_000_000))

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        st.integers(1, 2_000_000),
        st.sampled_from([1.0, 60.0, 3600.0, 86400.0]),
        st.lists(st.one_of(st.just(0.0), st.floats(0, 3)), min_size=1, max_size=40),
    )
    def steps(count: int, period: float, gaps: list[float]) -> None:
        cases.append((Rate(count, period), gaps))

    cases: list[tuple[Rate, list[float]]] = []
    steps()
    for rate, gaps in cases:
        key, at, taken = f"webmcp:rate:{next(runs)}", 0.0, list[float]()
        for gap in gaps:
            at = round(at + gap * rate.period / rate.count, 6)
            if (await take_at(redis, rate, at, key))[0]:
                taken.append(at)
        for first in range(len(taken)):
            for last in range(first, len(taken)):
                most = rate.count + (taken[last] - taken[first]) * rate.count / rate.period
                assert last - first + 1 <= most + 0.011


async def test_a_clock_that_went_back_locks_nobody_out(redis: Redis) -> None:
    """After a failover to a server whose clock is an hour behind, a bucket is empty at worst."""
    rate = Rate(2, 60.0)
    assert (await take_at(redis, rate, 3600.0))[0]
    allowed, wait = await take_at(redis, rate, 0.0)
    assert not allowed
    assert wait == pytest.approx(30.0)
    assert (await take_at(redis, rate, 30.0))[0]


@pytest.mark.parametrize(
    "write",
    [
        ("SET", "KEY", "theirs"),
        ("SET", "KEY", "nan"),
        ("SET", "KEY", "9e300"),
        ("LPUSH", "KEY", "1"),
        ("HSET", "KEY", "a", "1"),
        ("ZADD", "KEY", 1, "a"),
        ("SADD", "KEY", "a"),
    ],
    ids=lambda write: " ".join(map(str, write)),
)
@pytest.mark.parametrize("per", [Per.PRINCIPAL, Per.VIEW])
async def test_foreign_data_count_as_an_empty_bucket(
    server: RedisServer, redis: Redis, metrics: Metrics, write: tuple[str | int, ...], per: Per
) -> None:
    """What was used is not known; so nothing is allowed at first, and the bucket recovers."""
    rates = shared_rates(redis)
    limit = Limit(Rate(2, 60.0), per, "rule")
    assert await is_allowed(rates, limit)
    (key,) = server.names()
    server.ask("DEL", key)
    server.ask(*(key if word == "KEY" else word for word in write))
    if per is Per.VIEW and write[0] == "HSET":  # a hash of another's fields
        assert await is_allowed(rates, limit)
        return
    assert not await is_allowed(rates, limit)
    assert 0 < server.ask("PTTL", key) <= 60_001
    if "9e300" not in write:
        assert "foreign" in failures(metrics)


def shared_rates(redis: Redis, nodes: int = 2, clock: Clock | None = None) -> RedisRates:
    """Return the rates of one of several gateways."""
    local = MemoryRates(clock) if clock is not None else MemoryRates()
    return RedisRates(RedisBuckets(redis), local, lambda: nodes, lambda: None)


async def take_one(rates: RedisRates, limit: Limit, caller: Caller = CALLER) -> TakenRates:
    """Take one cell."""
    answer = rates.take((limit,), caller)
    return answer if isinstance(answer, TakenRates) else await answer


async def is_allowed(rates: RedisRates, limit: Limit, caller: Caller = CALLER) -> bool:
    """Return whether a call is within a limit."""
    return (await take_one(rates, limit, caller)).exceeded is None


async def test_limits_are_exact_over_gateways(server: RedisServer, redis: Redis) -> None:
    """Sixty concurrent calls through three gateways share ten cells, and what one returns another may take."""
    async with Redis(server.url, Metrics()) as second, Redis(server.url, Metrics()) as third:
        all_rates = [shared_rates(one) for one in (redis, second, third)]
        limit = Limit(Rate(10, 3600.0), Per.APP, "rule")
        taken = await asyncio.gather(*[take_one(rates, limit) for rates in all_rates * 20])
        admitted = [(rates, one) for rates, one in zip(all_rates * 20, taken, strict=True) if one.exceeded is None]
        assert len(admitted) == 10
        rates, one = admitted[0]
        rates.give_back((limit,), one)
        await until(lambda: server.ask("PING") is True)
        assert sum([await is_allowed(rates, limit) for rates in all_rates]) == 1


async def test_without_redis_each_gateway_allows_its_share_without_a_burst(server: RedisServer, redis: Redis) -> None:
    """Three in a minute of two gateways are one in forty seconds of each, the calls before the failure included."""
    clock = Clock()
    rates = shared_rates(redis, 2, clock)
    assert await is_allowed(rates, THREE)
    server.stop()
    refused = await take_one(rates, THREE)
    assert refused.exceeded == THREE
    assert refused.retry_after == pytest.approx(40.0)
    other = structs.replace(CALLER, app="notes")
    assert [await is_allowed(rates, THREE, other) for _ in range(2)] == [True, False]
    clock.now += 40
    assert [await is_allowed(rates, THREE) for _ in range(2)] == [True, False]


def test_shares_are_never_more_than_the_rate() -> None:
    """All together, for any rate and number of gateways."""
    for count, period, nodes in ((1, 1.0, 1), (3, 60.0, 7), (999_999_999, 1.0, 3)):
        share = local_share(Limit(Rate(count, period), Per.APP), nodes).rate
        assert share.count == 1
        assert nodes * share.count / share.period <= count / period * (1 + 1e-9)


async def test_cells_that_were_taken_locally_are_returned_locally(server: RedisServer, redis: Redis) -> None:
    """Also once Redis is there again."""
    rates = shared_rates(redis)
    server.stop()
    taken = await take_one(rates, THREE)
    assert taken.exceeded is None
    server.start()
    await until(lambda: redis.usable)
    rates.give_back((THREE,), taken)
    server.stop()
    await until(lambda: not redis.usable)
    assert await is_allowed(rates, THREE)


async def test_gateways_learn_how_many_they_are(
    server: RedisServer, redis: Redis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also after one ended, or Redis lost its data; without Redis the last number counts."""
    caplog.set_level(logging.ERROR)
    lost: list[str] = []
    async with Redis(server.url, Metrics()) as second:
        one, other = Members(redis, "one"), Members(second, "other")
        one.watch(lambda: lost.append("one"), lambda: None)
        for members in (one, other, one):
            await members.announce()
        assert one.nodes == other.nodes == {"one", "other"}
        server.ask("SET", "webmcp:nodes", "theirs")
        for members in (one, other, one):
            await members.announce()
        assert (one.count, lost) == (2, ["one"])
        await other.leave()
        await one.announce()
        assert one.count == 1
        await other.announce()
        await one.announce()
        server.stop()
        await one.announce()
        assert one.count == 2
