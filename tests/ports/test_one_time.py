"""The port `OneTimeValues`: each value is used once, ends on time, and takes nothing from other owners."""

import asyncio
from typing import Protocol

import pytest
from sqlalchemy import insert, select, update

from gateway.model import Secret
from gateway.ports.sessions import OneTimeValues
from gateway.stores.one_time import DatabaseOneTimeValues, MemoryOneTimeValues
from gateway.stores.schema import ONE_TIME
from gateway.stores.sealing import GivenKeys, KeyRing, new_key
from gateway.stores.sql import Database
from tests.clock import Clock
from tests.ports.conftest import at


class Put(Protocol):
    """Puts a value under a key."""

    async def __call__(self, key: str, value: str = "value", owner: str = "ann", kind: str = "ticket") -> bool: ...


@pytest.fixture
def values(shared: Database | None, ring: KeyRing, clock: Clock) -> OneTimeValues:
    """Each implementation, without a value."""
    return MemoryOneTimeValues(clock) if shared is None else DatabaseOneTimeValues(shared, ring, now=at(clock))


@pytest.fixture
def put(values: OneTimeValues) -> Put:
    """A value lives for 30 seconds, and an owner has three at most."""

    async def put(key: str, value: str = "value", owner: str = "ann", kind: str = "ticket") -> bool:
        return await values.put(kind, key, value, owner=owner, life=30.0, each=3, most=100)

    return put


async def test_a_value_is_taken_once(values: OneTimeValues, put: Put) -> None:
    """Of concurrent callers one gets it; a value of another kind is another one."""
    await put("a", "first")
    await put("a", "other", kind="challenge")
    taken = await asyncio.gather(*[values.take("ticket", "a") for _ in range(8)])
    assert [one for one in taken if one is not None] == ["first"]
    assert await values.take("challenge", "a") == "other"
    assert await values.take("ticket", "unknown") is None


async def test_a_value_ends_on_time(values: OneTimeValues, put: Put, clock: Clock) -> None:
    """Up to its last moment it is valid."""
    await put("a")
    await put("b")
    clock.now += 29.5
    assert await values.take("ticket", "a") == "value"
    clock.now += 0.5
    assert await values.take("ticket", "b") is None


async def test_a_new_value_takes_the_place_of_the_one_before(values: OneTimeValues, put: Put) -> None:
    """Of the same kind and key."""
    await put("a", "first")
    await put("a", "second")
    assert [await values.take("ticket", "a") for _ in range(2)] == ["second", None]


async def test_the_oldest_values_of_an_owner_make_room(values: OneTimeValues, put: Put, clock: Clock) -> None:
    """Those of others stay."""
    await put("bob's", owner="bob")
    evicted = []
    for key in "abcd":
        clock.now += 1
        evicted.append(await put(key))
    assert evicted == [False, False, False, True]
    assert [await values.take("ticket", key) for key in ("a", "b", "bob's")] == [None, "value", "value"]


async def test_a_claim_is_one_callers(values: OneTimeValues, clock: Clock) -> None:
    """Until its time is over; an owner has so many."""
    claims = await asyncio.gather(*[values.claim("jti", "a", owner="ann", life=30.0, each=2) for _ in range(8)])
    assert sorted(map(str, claims)) == ["False"] * 7 + ["True"]
    assert await values.claim("jti", "b", owner="ann", life=30.0, each=2) is True
    assert await values.claim("jti", "c", owner="ann", life=30.0, each=2) is None
    assert await values.claim("jti", "c", owner="bob", life=30.0, each=2) is True
    clock.now += 30
    assert await values.claim("jti", "a", owner="ann", life=30.0, each=2) is True


async def test_a_kind_is_dropped(values: OneTimeValues, put: Put) -> None:
    """Values of other kinds stay."""
    await put("a")
    await put("a", kind="challenge")
    await values.drop("ticket")
    assert [await values.take(kind, "a") for kind in ("ticket", "challenge")] == [None, "value"]


async def test_a_value_that_was_written_into_the_database_is_none(database: Database, ring: KeyRing) -> None:
    """Neither one of other keys, nor one of another key, nor one that was prolonged."""
    values = DatabaseOneTimeValues(database, ring)
    foreign = DatabaseOneTimeValues(database, KeyRing(GivenKeys("KEYS", Secret(new_key()))))
    await foreign.put("ticket", "forged", "eve", owner="eve", life=30.0, each=3, most=100)
    assert await values.take("ticket", "forged") is None
    await values.put("ticket", "over", "ann", owner="ann", life=-1.0, each=3, most=100)
    async with database.connect() as connection:
        await connection.execute(update(ONE_TIME).values(expires=1e12))
        await connection.commit()
    assert await values.take("ticket", "over") is None
    await values.put("ticket", "a", "ann", owner="ann", life=30.0, each=3, most=100)
    await values.put("ticket", "b", "bob", owner="bob", life=30.0, each=3, most=100)
    async with database.connect() as connection:
        stolen = (await connection.execute(select(ONE_TIME).where(ONE_TIME.c.owner == "ann"))).one()
        sealed = {"seal": stolen.seal, "sealed": stolen.sealed}
        await connection.execute(update(ONE_TIME).where(ONE_TIME.c.owner == "bob").values(sealed))
        await connection.execute(insert(ONE_TIME).values({**stolen._asdict(), "key": "another"}))
        await connection.commit()
    assert await values.take("ticket", "b") is None
    assert await values.take("ticket", "a") == "ann"
