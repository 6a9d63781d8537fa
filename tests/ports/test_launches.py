"""The port `LaunchValues`: of one principal and app, good for a day and for an old result again, bounded."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select, update

from gateway.errors import DatabaseUnavailable, Reason, Refusal
from gateway.model import LOCAL, Principal
from gateway.ports.views import LaunchStore, LaunchValues
from gateway.stores.schema import LAUNCHES
from gateway.stores.sealing import KeyFile, KeyRing
from gateway.stores.sql import Database
from gateway.stores.view_state import DatabaseLaunches
from gateway.views import memory as memory
from gateway.views.memory import LIFE, Launches
from tests.clock import Clock

EVE = replace(LOCAL, subject="eve")
APPS = {"cart", "notes"}


@pytest.fixture
def ring(tmp_path: Path) -> KeyRing:
    """The keys of all processes."""
    return KeyRing(KeyFile(tmp_path / "key"))


@pytest.fixture
def store(database: Database, ring: KeyRing, clock: Clock) -> LaunchStore:
    """The values in a database."""
    return DatabaseLaunches(database, ring, clock)


@pytest.fixture(params=["memory", "stored"])
def launches(request: pytest.FixtureRequest, clock: Clock, store: LaunchStore) -> LaunchValues:
    """Each implementation, without a launch value."""
    return Launches(clock, store if request.param == "stored" else None)


@pytest.fixture
def after(clock: Clock, other_database: Database, ring: KeyRing) -> Launches:
    """The values of the next process."""
    return Launches(clock, DatabaseLaunches(other_database, ring, clock))


@pytest.fixture
def before(clock: Clock, store: LaunchStore) -> Launches:
    """The values of the process that runs first."""
    return Launches(clock, store)


async def issue(launches: LaunchValues, principal: Principal = LOCAL, app: str = "cart", chosen: bool = False) -> str:
    """Issue a launch value."""
    return (await launches.give(principal, app, chosen=chosen)).launch.reveal()


async def can_attach(launches: LaunchValues, value: str, principal: Principal = LOCAL) -> bool:
    """Return whether a page of `principal` can attach with this value."""
    try:
        await launches.find(value, principal, APPS)
    except Refusal as refusal:
        return refusal.reason is not Reason.VIEW_UNPROVEN
    return True


async def test_a_value_leads_to_its_view_for_a_day(launches: LaunchValues, clock: Clock) -> None:
    """Again and again, also after a page has attached; then it has expired."""
    opened = await launches.give(LOCAL, "cart", chosen=True)
    for number in (1, 2):
        launch = await launches.find(opened.launch.reveal(), LOCAL, APPS)
        assert (launch.view, launch.app, launch.chosen, launch.unsure) == (opened.view, "cart", True, False)
        assert await launches.attach(opened.launch.reveal()) == number
    clock.now += LIFE
    assert await can_attach(launches, opened.launch.reveal())
    clock.now += 1
    assert not await can_attach(launches, opened.launch.reveal())


async def test_a_value_is_good_for_its_principal_and_app_alone(launches: LaunchValues) -> None:
    """For others it is as unknown as an invented one."""
    value = await issue(launches)
    assert not await can_attach(launches, value, EVE)
    assert not await can_attach(launches, value + "x")
    with pytest.raises(Refusal) as refused:
        await launches.find(value, LOCAL, {"notes"})
    assert refused.value.reason is Reason.VIEW_UNPROVEN


async def test_values_and_views_are_never_issued_twice(launches: LaunchValues) -> None:
    """Not even to concurrent calls of one principal; no value contains its view."""
    opened = await asyncio.gather(*[launches.give(LOCAL, "cart", chosen=False) for _ in range(50)])
    assert len({one.view for one in opened} | {one.launch.reveal() for one in opened}) == 100
    assert all(len(one.launch.reveal()) >= 43 and one.view not in one.launch.reveal() for one in opened)


async def test_a_view_is_awaited_until_its_page_has_attached(launches: LaunchValues, clock: Clock) -> None:
    """By its principal, for its app; not for ever."""
    first, second = [await launches.give(LOCAL, "cart", chosen=False) for _ in range(2)]
    for principal, app, expected in (
        (LOCAL, None, True),
        (LOCAL, "cart", True),
        (LOCAL, "notes", False),
        (EVE, None, False),
    ):
        assert await launches.is_awaited(first.view, principal, app) is expected
    await launches.attach(first.launch.reveal())
    assert [await launches.is_awaited(one.view, LOCAL, None) for one in (first, second)] == [False, True]
    clock.now += LIFE + 1
    assert not await launches.is_awaited(second.view, LOCAL, None)
    assert not await launches.is_awaited("unknown", LOCAL, None)


async def test_what_a_model_chose_is_known_until_the_page_has_attached(launches: LaunchValues) -> None:
    """For this principal and app."""
    await issue(launches)
    assert not await launches.is_chosen(LOCAL, "cart")
    value = await issue(launches, chosen=True)
    assert await launches.is_chosen(LOCAL, "cart")
    assert not await launches.is_chosen(LOCAL, "notes")
    assert not await launches.is_chosen(EVE, "cart")
    await launches.attach(value)
    assert not await launches.is_chosen(LOCAL, "cart")


async def test_a_page_attaches_with_nothing_that_has_ended(launches: LaunchValues) -> None:
    """It is ignored."""
    assert await launches.attach("unknown") == 0
    assert not await can_attach(launches, "unknown")


@pytest.mark.bound("unused launch values")
async def test_values_of_one_principal_are_bounded(launches: LaunchValues, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is evicted; another principal's stays."""
    monkeypatch.setattr(memory, "EACH", 2)
    eves = await issue(launches, EVE)
    mine = [await issue(launches) for _ in range(3)]
    assert [await can_attach(launches, value) for value in mine] == [False, True, True]
    assert await can_attach(launches, eves, EVE)


@pytest.mark.parametrize("end", ["stopped", "killed", "tainted"])
async def test_a_value_is_good_in_the_next_process(before: Launches, after: Launches, end: str) -> None:
    """For its principal and app; its page may be the model's, unless the former process stored that it is not."""
    opened = await before.give(LOCAL, "cart", chosen=True)
    value = opened.launch.reveal()
    assert await before.attach(value) == 1
    if end != "killed":
        await before.settle({(LOCAL.id, "cart")} if end == "tainted" else set())
    assert not await can_attach(after, value, EVE)
    with pytest.raises(Refusal):
        await after.find(value, LOCAL, {"notes"})
    launch = await after.find(value, LOCAL, APPS)
    assert (launch.view, launch.chosen, launch.unsure) == (opened.view, True, end != "stopped")
    assert await after.attachment(opened.view, LOCAL) == 1
    assert await after.attachment(opened.view, EVE) is None
    assert await after.attach(value) == 2
    assert not (await after.find(value, LOCAL, APPS)).unsure
    assert await after.attachment(opened.view, LOCAL) is None


async def test_processes_that_attach_at_once(before: Launches, after: Launches) -> None:
    """Each attachment has a number of its own: the newest is the view."""
    value = await issue(before)
    await after.find(value, LOCAL, APPS)
    numbers = await asyncio.gather(*[one.attach(value) for one in (before, after) for _ in range(3)])
    assert sorted(numbers) == list(range(1, 7))


async def test_an_unused_value_is_awaited_by_the_next_process(before: Launches, after: Launches, clock: Clock) -> None:
    """By its principal, for its app, until it has expired."""
    opened = await before.give(LOCAL, "cart", chosen=False)
    awaited = [(LOCAL, None, True), (LOCAL, "cart", True), (LOCAL, "notes", False), (EVE, None, False)]
    for principal, app, expected in awaited:
        assert await after.is_awaited(opened.view, principal, app) is expected
    assert await after.attachment(opened.view, LOCAL) is None
    clock.now += LIFE + 1
    assert not await after.is_awaited(opened.view, LOCAL, None)
    assert not await can_attach(after, opened.launch.reveal())


async def test_evicted_and_expired_values_leave_the_database(
    before: Launches, after: Launches, database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next process does not know them."""
    monkeypatch.setattr(memory, "EACH", 2)
    values = []
    for _ in range(3):
        clock.now += 1
        values.append(await issue(before))
    assert [await can_attach(after, value) for value in values] == [False, True, True]
    clock.now += LIFE + 1
    await issue(before, EVE)
    async with database.connect() as connection:
        assert len((await connection.execute(select(LAUNCHES))).all()) == 1


@pytest.mark.parametrize(
    "change", [{"principal": EVE.id}, {"app": "notes"}, {"view": "other"}, {"attached": 0}, {"state": b"\0" * 40}]
)
async def test_a_row_that_somebody_rewrote_is_not_accepted(
    before: Launches, after: Launches, database: Database, change: dict[str, object]
) -> None:
    """The rights that it grants are sealed; the value itself is not stored."""
    opened = await before.give(LOCAL, "cart", chosen=True)
    value = opened.launch.reveal()
    await before.attach(value)
    async with database.connect() as connection:
        assert value not in str((await connection.execute(select(LAUNCHES))).one())
        await connection.execute(update(LAUNCHES).values(change))
        await connection.commit()
    assert [await can_attach(after, value, one) for one in (LOCAL, EVE)] == [False, False]
    assert await after.attachment(opened.view, LOCAL) is None


async def test_without_the_database_values_are_good_in_their_process(
    before: Launches, after: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing fails that needs no former process."""

    def down(*_: object) -> None:
        raise DatabaseUnavailable("down")

    monkeypatch.setattr(Database, "connect", down)
    value = await issue(before)
    assert [await before.attach(value) for _ in range(2)] == [1, 2]
    await before.settle(set())
    with pytest.raises(Refusal) as refused:
        await after.find(value, LOCAL, APPS)
    assert refused.value.reason is Reason.BACKEND_UNAVAILABLE
    assert not await after.is_awaited("unknown", LOCAL, None)
