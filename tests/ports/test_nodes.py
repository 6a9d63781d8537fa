"""The suites of `NodeStore`, `ViewOwners`, `UpstreamOwners`: PostgreSQL, and the rows in memory that simulate it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace

import pytest
from sqlalchemy import text

from gateway.crypto import SigningKeys
from gateway.ports.nodes import Announcement, NameTaken, NodeStore, ViewOwner
from gateway.stores.nodes import DatabaseNodes, DatabaseUpstreamOwners, DatabaseViewOwners
from gateway.stores.sql import Database
from tests.cluster.virtual import MemoryNodes, Time
from tests.postgresql import postgresql, programs

KEYS = SigningKeys((b"k" * 32,))
A = Announcement("incarnation-a", "a", "unix:/a", "1", "digest", "key", {"cart": "v1"})
B = replace(A, incarnation="incarnation-b", name="b", address="unix:/b")


@dataclass
class Rows:
    """A store, and a function that lets seconds pass for all rows."""

    store: NodeStore
    wait: Callable[[float], Awaitable[None]]


@pytest.fixture(scope="module")
def url() -> object:
    """The URL of a real PostgreSQL."""
    if programs() is None:
        pytest.skip("PostgreSQL is not installed: run scripts/postgresql")
    with postgresql() as server:
        yield server.url


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    """An open database without rows."""
    async with Database(url) as opened:
        yield opened
        async with opened.connect() as connection:
            await connection.execute(text("DELETE FROM nodes"))
            await connection.execute(text("DELETE FROM view_owners"))
            await connection.execute(text("DELETE FROM upstream_owners"))
            await connection.commit()


@pytest.fixture(params=["memory", "postgresql"])
def rows(request: pytest.FixtureRequest) -> Rows:
    """Each implementation."""
    if request.param == "memory":
        memory = MemoryNodes(Time())

        async def pass_time(seconds: float) -> None:
            memory.time.now += seconds

        return Rows(memory, pass_time)
    database: Database = request.getfixturevalue("database")

    async def wait(seconds: float) -> None:
        async with database.connect() as connection:
            await connection.execute(
                text(f"UPDATE nodes SET renewed = renewed - {seconds}, started = started - {seconds}")
            )
            await connection.commit()

    return Rows(DatabaseNodes(database, KEYS), wait)


async def test_what_is_announced_is_read(rows: Rows) -> None:
    """With its age, and signed."""
    await rows.store.join(A)
    await rows.wait(3)
    (row,) = await rows.store.nodes()
    assert (row.announced, row.signed, row.draining) == (A, True, False)
    assert 3 <= row.age < 9
    changed = replace(A, digest="other")
    renewal = await rows.store.renew(changed, draining=True, owns={"views": 2})
    assert (renewal.lost, renewal.nodes[0].announced, renewal.nodes[0].draining) == (False, changed, True)


async def test_a_lease_that_ended_is_not_renewed(rows: Rows) -> None:
    """Ten seconds after its last renewal, or after the node left, and for an unknown one."""
    await rows.store.join(A)
    await rows.wait(9)
    assert not (await rows.store.renew(A, draining=False, owns={})).lost
    await rows.wait(10)
    assert (await rows.store.renew(A, draining=False, owns={})).lost
    await rows.store.join(B)
    await rows.store.leave(B.incarnation)
    assert (await rows.store.renew(B, draining=False, owns={})).lost
    assert (await rows.store.renew(replace(A, incarnation="unknown"), draining=False, owns={})).lost


async def test_a_name_belongs_to_one(rows: Rows) -> None:
    """As long as its lease holds; of many that join at once one gets it."""
    again = replace(A, incarnation="second")
    results = await asyncio.gather(rows.store.join(A), rows.store.join(again), return_exceptions=True)
    assert [type(result) for result in results].count(NameTaken) == 1
    await rows.store.join(B)
    await rows.wait(10)
    await rows.store.join(replace(A, incarnation="third"))


async def test_an_altered_row_is_not_signed(database: Database) -> None:
    """Who can write the database cannot send the requests of nodes elsewhere."""
    store = DatabaseNodes(database, KEYS)
    await store.join(A)
    async with database.connect() as connection:
        await connection.execute(text("UPDATE nodes SET address = 'unix:/evil'"))
        await connection.commit()
    (row,) = await store.nodes()
    assert not row.signed


async def test_the_owner_of_a_view(database: Database) -> None:
    """The newest to take it; the former one is told once, and its `drop` then does nothing."""
    owners, nodes = DatabaseViewOwners(database), DatabaseNodes(database, KEYS)
    await nodes.join(A)
    assert await owners.find("view") is None
    assert await owners.take("view", "incarnation-a", "incarnation-a") is None
    assert await owners.find("view") == ViewOwner("incarnation-a", 1)
    assert await owners.take("view", "incarnation-b", "incarnation-a") == ViewOwner("incarnation-a", 1)
    assert list((await nodes.renew(A, draining=False, owns={})).lost_views) == ["view"]
    assert list((await nodes.renew(A, draining=False, owns={})).lost_views) == []
    await owners.drop("view", "incarnation-a")
    assert await owners.find("view") == ViewOwner("incarnation-b", 2)
    await owners.drop("view", "incarnation-b")
    assert await owners.find("view") is None


async def test_each_former_owner_is_told_until_it_has_noticed(database: Database) -> None:
    """Also if a renewal's answer is lost, and if the view has moved on; one that took it back is not told."""
    owners, nodes, others = DatabaseViewOwners(database), DatabaseNodes(database, KEYS), DatabaseNodes(database, KEYS)
    await nodes.join(A)
    await others.join(B)
    await owners.take("view", B.incarnation, A.incarnation)
    await owners.take("view", "incarnation-c", A.incarnation)
    assert list((await others.renew(B, draining=False, owns={})).lost_views) == ["view"]
    lost = await DatabaseNodes(database, KEYS).renew(A, draining=False, owns={})
    assert list(lost.lost_views) == list((await nodes.renew(A, draining=False, owns={})).lost_views) == ["view"]
    await owners.take("view", A.incarnation, A.incarnation)
    await owners.take("view", B.incarnation, A.incarnation)
    assert list((await nodes.renew(A, draining=False, owns={})).lost_views) == ["view"]
    await owners.take("view", A.incarnation, A.incarnation)
    assert list((await nodes.renew(A, draining=False, owns={})).lost_views) == []
    assert list((await others.renew(B, draining=False, owns={})).lost_views) == ["view"]


async def test_many_take_a_view_at_once(database: Database) -> None:
    """Each has an epoch of its own, and the last one is the owner."""
    owners = DatabaseViewOwners(database)
    taken = await asyncio.gather(*(owners.take("view", f"node-{n}", "maker") for n in range(8)))
    assert sorted(owner.epoch for owner in taken if owner is not None) == list(range(8))
    found = await owners.find("view")
    assert found is not None
    assert found.epoch == 8


async def test_one_living_node_owns_an_upstream(database: Database) -> None:
    """The first claim holds until that node's lease has ended, or it releases the upstream; claims may coincide."""
    nodes, owners = DatabaseNodes(database, KEYS), DatabaseUpstreamOwners(database)
    for announced in (A, B):
        await nodes.join(announced)
    names = [one.incarnation for one in (A, B) for _ in range(4)]
    claimed = await asyncio.gather(*(owners.claim("budget", name) for name in names))
    assert len(set(claimed)) == 1
    first = claimed[0]
    other = next(one.incarnation for one in (A, B) if one.incarnation != first)
    await owners.release("budget", other)
    assert await owners.claim("budget", other) == first
    await owners.release("budget", first)
    assert await owners.claim("budget", other) == other
    await nodes.leave(other)
    assert await owners.claim("budget", first) == first
    assert await owners.claim("another", other) == other


async def test_an_upstream_may_be_released_while_another_node_claims_it(database: Database) -> None:
    """Each claim has an owner."""
    nodes, owners = DatabaseNodes(database, KEYS), DatabaseUpstreamOwners(database)
    names = [A.incarnation, B.incarnation]
    for announced in (A, B):
        await nodes.join(announced)

    async def claim_and_release(name: str) -> None:
        for _ in range(50):
            assert await owners.claim("budget", name) in names
            await owners.release("budget", name)

    await asyncio.gather(*(claim_and_release(name) for name in names for _ in range(3)))
