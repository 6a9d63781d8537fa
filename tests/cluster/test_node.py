"""Leases under virtual time: a node stops before others take over, whatever happens to it."""

from __future__ import annotations

import pytest

from gateway.cluster.lease import ADOPT_AFTER, RENEW_EVERY, STOP_AFTER
from gateway.errors import Refusal, StartError
from tests.cluster.virtual import MemoryNodes, Time, node


async def renew(*nodes: object) -> None:
    """Renew leases once."""
    for one in nodes:
        await one._renew()  # type: ignore[attr-defined]


@pytest.fixture
def store() -> MemoryNodes:
    """The rows of all nodes."""
    return MemoryNodes(Time())


async def test_nodes_know_each_other(store: MemoryNodes) -> None:
    """A node that joined later is looked up; both suit."""
    a, b = node(store, "a"), node(store, "b")
    await a.join()
    await b.join()
    assert [row.announced.name for row in b.others()] == ["a"]
    store.time.now += 1
    found = await a.find(b.incarnation)
    assert found is not None
    assert a.suits(found) is None
    assert await a.find("unknown") is None


async def test_a_stopped_node_does_nothing_when_it_wakes(store: MemoryNodes) -> None:
    """It refuses after seven seconds without a renewal, and others take over after ten: never both."""
    a, b = node(store, "a"), node(store, "b")
    await a.join()
    await b.join()
    old = a.incarnation
    began = store.time.now
    while store.time.now < began + ADOPT_AFTER + 2:
        store.time.now += 0.5
        await renew(b)
        may_act, is_taken = a.lease.holds, not await b.lives(old)
        assert not (may_act and is_taken)
        assert may_act == (store.time.now < began + STOP_AFTER)
    with pytest.raises(Refusal, match="state-unavailable"):
        a.check()
    assert not await b.lives(old)
    lapsed = list[str]()
    a.lapsed.add(lambda: lapsed.append(old))
    await renew(a)
    await renew(a)
    assert (lapsed, a.lease.holds) == ([old], False)
    await a.join()
    a.check()
    assert a.incarnation != old


async def test_a_late_renewal_does_not_take_back(store: MemoryNodes) -> None:
    """A lease that has ended in the database stays ended, though the node was only slow."""
    a, b = node(store, "a"), node(store, "b")
    await a.join()
    await b.join()
    store.time.now += ADOPT_AFTER
    await renew(a)
    assert not a.lease.holds
    assert not await b.lives(a.incarnation)


async def test_a_database_that_is_down_stops_the_node(store: MemoryNodes) -> None:
    """It serves until its lease ends; requests to nodes whose lease has ended are ended."""
    a, b = node(store, "a"), node(store, "b")
    await a.join()
    await b.join()
    gone = list[str]()
    b.gone.add(gone.append)
    store.down = True
    with pytest.raises(OSError, match="down"):
        await renew(a)
    a.check()
    store.time.now += STOP_AFTER
    with pytest.raises(Refusal):
        a.check()
    store.down = False
    await renew(b)
    assert gone == []
    store.time.now += ADOPT_AFTER - STOP_AFTER
    await renew(b)
    assert gone == [a.incarnation]


async def test_two_nodes_of_one_name(store: MemoryNodes) -> None:
    """The second is refused while the first lives; after a crash it waits for the lease."""
    a, again = node(store, "a"), node(store, "a")
    await a.join()
    before = store.time.now
    await again.join()
    assert store.time.now - before >= ADOPT_AFTER
    third = node(store, "a")

    async def renewing(seconds: float) -> None:
        store.time.now += seconds
        await renew(again)

    third._sleep = renewing
    with pytest.raises(StartError, match=r"cluster\.name"):
        await third.join()


async def test_another_encryption_key_is_refused(store: MemoryNodes) -> None:
    """What nodes share is encrypted; during a rotation one key in common is enough."""
    a = node(store, "a", keys="new old")
    await a.join()
    with pytest.raises(StartError, match="encryption_key"):
        await node(store, "b", keys="other").join()
    await node(store, "c", keys="old").join()


@pytest.mark.parametrize(
    ("change", "word"), [({"version": "2"}, "version 2"), ({"digest": "x"}, "configuration differs")]
)
async def test_differing_nodes_do_not_suit(store: MemoryNodes, change: dict[str, str], word: str) -> None:
    """Nothing is forwarded between versions, nor between configurations."""
    a, b = node(store, "a"), node(store, "b", **change)
    await a.join()
    await b.join()
    assert word in str(b.suits(b.others()[0])) or word in str(a.suits((await store.nodes())[1]))


async def test_the_time_is_that_of_the_database(store: MemoryNodes) -> None:
    """Whatever the clocks of machines say."""
    a, b = node(store, "a"), node(store, "b")
    await a.join()
    await b.join()
    store.time.now += RENEW_EVERY
    assert a.now() == b.now() == store.time.now


async def test_a_node_that_leaves_is_replaced_at_once(store: MemoryNodes) -> None:
    """A clean stop needs no ten seconds."""
    a, b = node(store, "a"), node(store, "b")
    await a.join()
    await b.join()
    await a.leave()
    await renew(b)
    assert not a.lease.holds
    assert not await b.lives(a.incarnation)
    before = store.time.now
    await node(store, "a").join()
    assert store.time.now == before
