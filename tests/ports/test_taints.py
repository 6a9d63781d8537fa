"""The port `TaintStore`: what a model's call marked outlives the process, until a person acted."""

from collections.abc import Callable

import pytest

from gateway.ports.views import StoredTaint, TaintStore
from gateway.stores.sql import Database
from gateway.stores.view_state import DatabaseTaints

CART, NOTES = ("gateway|local|ann", "cart"), ("gateway|local|ann", "notes")
CALLED, REPORTED = StoredTaint("model-call", "call-1"), StoredTaint("model-call-reported", None)

Make = Callable[[Database], TaintStore]


@pytest.fixture(params=[DatabaseTaints])
def make(request: pytest.FixtureRequest) -> Make:
    """Each implementation."""
    made: Make = request.param
    return made


async def test_taints_outlive_a_restart_until_they_are_removed(make: Make, url: str) -> None:
    """Each with its evidence."""
    async with Database(url) as database:
        await make(database).put({CART: CALLED, NOTES: REPORTED})
    async with Database(url) as database:
        assert await make(database).all(9) == {CART: CALLED, NOTES: REPORTED}
        await make(database).remove({CART: CALLED.call, ("nobody", "cart"): None})
    async with Database(url) as database:
        assert await make(database).all(9) == {NOTES: REPORTED}


async def test_a_later_call_of_another_process_outlives_the_end_of_an_earlier_one(
    make: Make, database: Database, other_database: Database
) -> None:
    """The newest call is stored, and a process removes the one alone that it knows."""
    one, other = make(database), make(other_database)
    await one.put({CART: CALLED, NOTES: REPORTED})
    later = StoredTaint("model-call", "call-2")
    await other.put({CART: later})
    assert len(await one.all(1)) == 1
    await one.remove({CART: CALLED.call, NOTES: None})
    assert (await one.find(CART), await one.find(NOTES)) == (later, None)
    await one.remove({CART: later.call})
    assert await other.find(CART) is None


async def test_a_store_that_is_down_is_an_error(make: Make, database: Database) -> None:
    """Each method raises."""
    taints = make(database)
    await database.__aexit__(None, None, None)
    for asked in (taints.all(1), taints.put({CART: CALLED}), taints.remove({CART: None}), taints.find(CART)):
        with pytest.raises(OSError, match="not open"):
            await asked
