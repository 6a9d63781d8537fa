"""The ports `Rates`, `Attempts`, `Quotas`: exact under concurrency, all or none, bounded; quotas outlive a restart."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from msgspec import structs

from gateway.exchange import limit as memory
from gateway.exchange.limit import MemoryRates
from gateway.model import LOCAL, Caller, Door, Initiator, Principal
from gateway.policy import Limit, Per, Quota, Rate, Window
from gateway.ports.limits import Attempts, Quotas, Rates, TakenRates
from gateway.stores import usage as durable
from gateway.stores.redis.connection import Redis
from gateway.stores.redis.rates import RedisAttempts, RedisBuckets, RedisRates
from gateway.stores.sql import Database
from gateway.stores.usage import DatabaseQuotas
from gateway.token_buckets import Buckets
from tests.clock import Clock
from tests.redis_server import RedisServer

CALLER = Caller(LOCAL, "cart", Door.BRIDGE, Initiator.PAGE, "no-gesture", view="v1", proven=True)
BOB = structs.replace(CALLER, principal=replace(LOCAL, subject="bob"))
THREE = Limit(Rate(3, 60.0), Per.PRINCIPAL, "rule")
PER_VIEW = Limit(Rate(2, 60.0), Per.VIEW, "rule")
DAILY = Quota(2, Window.DAY, Per.PRINCIPAL, "rule")
HOURLY = Quota(5, Window.HOUR, Per.PRINCIPAL, "rule")
NOON = 1_785_585_600.0  # 2026-08-01T12:00:00Z
DAY = 86400.0

EACH_VIEW = 3
"""The bound of buckets per view, as these tests have it."""

MakeQuotas = Callable[[Database], Quotas]
Advance = Callable[[float], None]


@pytest.fixture(params=[MemoryRates, RedisRates])
def rates(request: pytest.FixtureRequest, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Rates:
    """Full buckets, of each implementation."""
    monkeypatch.setattr(memory, "Buckets", lambda: Buckets(each=EACH_VIEW))
    local = MemoryRates(clock)
    if request.param is MemoryRates:
        return local
    return RedisRates(RedisBuckets(request.getfixturevalue("redis"), EACH_VIEW), local, lambda: 1, lambda: None)


@pytest.fixture
def advance(rates: Rates, clock: Clock, request: pytest.FixtureRequest) -> Advance:
    """Let seconds pass: for buckets in Redis, whose clock no test sets, they become earlier by as much."""

    def advance(seconds: float) -> None:
        clock.now += seconds
        if isinstance(rates, RedisRates):
            server: RedisServer = request.getfixturevalue("redis_process")
            for key in server.ask("KEYS", "webmcp:rate:*"):
                server.ask("SET", key, int(server.ask("GET", key)) - int(seconds * 1_000_000), "KEEPTTL")

    return advance


@pytest.fixture(params=[DatabaseQuotas])
def counting(request: pytest.FixtureRequest) -> MakeQuotas:
    """Each implementation of `Quotas`."""
    made: MakeQuotas = request.param
    return made


def of_view(name: str, principal: Principal = LOCAL) -> Caller:
    """Return the caller of a proven view."""
    return structs.replace(CALLER, view=name, principal=principal)


async def take_cell(rates: Rates, limits: Sequence[Limit], caller: Caller = CALLER) -> TakenRates:
    """Take one cell of each limit, from an implementation with or without I/O."""
    answer = rates.take(limits, caller)
    return answer if isinstance(answer, TakenRates) else await answer


async def is_allowed(rates: Rates, limits: Sequence[Limit], caller: Caller = CALLER) -> bool:
    """Return whether the call is within the limits."""
    return (await take_cell(rates, limits, caller)).exceeded is None


@pytest.mark.parametrize("limits", [(THREE,), (THREE, Limit(Rate(9, 60.0), Per.APP, "rule"))])
async def test_a_burst_has_the_count_and_then_the_rate_holds(
    rates: Rates, advance: Advance, limits: tuple[Limit, ...]
) -> None:
    """The refused call learns which limit it exceeded, and when the next cell is free."""
    assert [await is_allowed(rates, limits) for _ in range(3)] == [True] * 3
    refused = await take_cell(rates, limits)
    assert refused.exceeded == THREE
    assert 0 < refused.retry_after <= 20  # Redis has a clock of its own; the vectors have exact times
    advance(20)
    assert [await is_allowed(rates, limits) for _ in range(2)] == [True, False]


async def test_concurrent_calls_do_not_take_more(rates: Rates) -> None:
    """Twenty share three."""
    outcomes = await asyncio.gather(*[is_allowed(rates, (THREE,)) for _ in range(20)])
    assert sum(outcomes) == 3


async def test_rates_are_taken_together_or_not_at_all(rates: Rates) -> None:
    """A call that the second limit refuses takes nothing from the first."""
    wide = Limit(Rate(5, 60.0), Per.APP, "rule")
    assert [await is_allowed(rates, (wide, THREE)) for _ in range(6)] == [True] * 3 + [False] * 3
    assert [await is_allowed(rates, (wide,)) for _ in range(3)] == [True, True, False]


async def test_one_limit_named_twice_counts_twice(rates: Rates) -> None:
    """A policy may repeat it; so it is also once its bucket exists."""
    four = Limit(Rate(4, 60.0), Per.VIEW, "rule")
    assert [await is_allowed(rates, (four, four)) for _ in range(3)] == [True, True, False]


async def test_each_scope_has_buckets_of_its_own(rates: Rates) -> None:
    """Another principal, another view, and another app count separately."""
    limits = (PER_VIEW, THREE)
    assert [await is_allowed(rates, limits) for _ in range(3)] == [True, True, False]
    assert [await is_allowed(rates, limits, of_view("v2")) for _ in range(2)] == [True, False]
    for other in (of_view("bob's", BOB.principal), structs.replace(CALLER, app="notes")):
        assert await is_allowed(rates, limits, other)


async def test_what_is_given_back_can_be_taken_again(rates: Rates) -> None:
    """Exactly as much as was taken."""
    limits = (THREE, PER_VIEW)
    first = await take_cell(rates, limits)
    assert [await is_allowed(rates, limits) for _ in range(2)] == [True, False]
    rates.give_back(limits, first)
    assert [await is_allowed(rates, limits) for _ in range(2)] == [True, False]


@pytest.mark.parametrize(
    "rates",
    [
        pytest.param(MemoryRates, marks=pytest.mark.bound("token buckets of rates per view")),
        pytest.param(RedisRates, marks=pytest.mark.bound("token buckets of rates per view in Redis")),
    ],
    indirect=True,
)
async def test_views_beyond_the_bound_share_one_bucket(rates: Rates) -> None:
    """Other principals, and the views that have a bucket already, are not affected."""
    assert [await is_allowed(rates, (PER_VIEW,), of_view(f"v{number}")) for number in range(3)] == [True] * 3
    more = [await is_allowed(rates, (PER_VIEW,), of_view(f"new {number}")) for number in range(4)]
    assert more == [True, True, False, False]
    assert await is_allowed(rates, (PER_VIEW,), of_view("v0"))
    assert await is_allowed(rates, (PER_VIEW,), of_view("bob's", BOB.principal))


async def test_quotas_are_exact_over_processes(
    counting: MakeQuotas, database: Database, other_database: Database
) -> None:
    """Twelve concurrent calls of two processes share five."""
    one, other = counting(database), counting(other_database)
    outcomes = await asyncio.gather(*[which.take((HOURLY,), CALLER, NOON) for which in (one, other) * 6])
    assert sorted(outcome is None for outcome in outcomes) == [False] * 7 + [True] * 5


@pytest.mark.parametrize("scopes", [("a", "b"), ("b", "a")])
async def test_quotas_are_counted_together_or_not_at_all(
    counting: MakeQuotas, database: Database, scopes: tuple[str, str]
) -> None:
    """The one that is used up is returned; the other ones lose nothing, in whichever order they are counted."""
    quotas = counting(database)
    wide, narrow = replace(HOURLY, scope=scopes[0]), replace(HOURLY, scope=scopes[1], count=2)
    outcomes = [await quotas.take((wide, narrow), CALLER, NOON) for _ in range(4)]
    assert outcomes == [None, None, narrow, narrow]
    assert [await quotas.take((wide,), CALLER, NOON) for _ in range(4)] == [None, None, None, wide]


async def test_quotas_outlive_a_restart(counting: MakeQuotas, url: str) -> None:
    """Until their window ends."""
    for expected in (None, None, DAILY):
        async with Database(url) as database:
            assert await counting(database).take((DAILY,), CALLER, NOON) == expected
    async with Database(url) as database:
        assert await counting(database).take((DAILY,), CALLER, NOON + DAY) is None


async def test_each_principal_has_quotas_of_its_own(counting: MakeQuotas, database: Database) -> None:
    """A principal that used all of it takes nothing from another."""
    quotas = counting(database)
    assert [await quotas.take((DAILY,), CALLER, NOON) for _ in range(3)] == [None, None, DAILY]
    assert await quotas.take((DAILY,), BOB, NOON) is None


@pytest.mark.bound("quota rows in the database")
async def test_quotas_of_views_beyond_the_bound_are_shared(
    counting: MakeQuotas, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another principal's are not affected."""
    monkeypatch.setattr(durable, "EACH", 3)
    quotas, quota = counting(database), Quota(2, Window.DAY, Per.VIEW, "rule")
    own = [await quotas.take((quota,), of_view(f"v{number}"), NOON) for number in range(3)]
    more = [await quotas.take((quota,), of_view(f"new {number}"), NOON) for number in range(3)]
    assert (own, more) == ([None] * 3, [None, None, quota])
    assert await quotas.take((quota,), of_view("v0"), NOON) is None
    assert await quotas.take((quota,), of_view("bob's", BOB.principal), NOON) is None


async def test_a_store_that_is_down_is_an_error(counting: MakeQuotas, database: Database) -> None:
    """The caller then refuses the call."""
    quotas = counting(database)
    await database.__aexit__(None, None, None)
    with pytest.raises(OSError, match="not open"):
        await quotas.take((DAILY,), CALLER, NOON)


@pytest.fixture(params=[RedisAttempts])
def attempts(request: pytest.FixtureRequest, redis: Redis, other_redis: Redis) -> tuple[Attempts, Attempts]:
    """Each implementation of `Attempts`, in two processes."""
    return request.param(RedisBuckets(redis)), request.param(RedisBuckets(other_redis))


async def test_attempts_at_several_processes_count_together(attempts: tuple[Attempts, Attempts]) -> None:
    """Each name has a count of its own, and an attempt that succeeded none."""
    one, other = attempts
    rate = Rate(3, 3600.0)
    assert [await process.take("a", rate) for process in (one, other, one, other)] == [True, True, True, False]
    assert await other.take("b", rate)
    one.give_back("a", rate)
    assert [await one.take("a", rate), await other.take("a", rate)] == [True, False]


async def test_attempts_of_others_that_cannot_be_known_refuse_nobody(
    attempts: tuple[Attempts, Attempts], redis: Redis
) -> None:
    """A process counts its own ones apart."""
    one, _ = attempts
    rate = Rate(1, 3600.0)
    assert await one.take("a", rate)
    redis.fail(OSError("the network is down"))
    assert await one.take("a", rate)
    one.give_back("a", rate)
