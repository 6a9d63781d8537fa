"""The port `LaunchValues`: of one principal and app, good for a day and for an old result again, bounded."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from gateway.errors import Reason, Refusal
from gateway.model import LOCAL, Principal
from gateway.ports.views import LaunchValues
from gateway.views import launches as memory
from gateway.views.launches import LIFE, MemoryLaunches
from tests.clock import Clock

EVE = replace(LOCAL, subject="eve")
APPS = {"cart", "notes"}

Make = Callable[[Clock], LaunchValues]
"""Makes an implementation with this clock."""


@pytest.fixture(params=[MemoryLaunches])
def launches(request: pytest.FixtureRequest, clock: Clock) -> LaunchValues:
    """Each implementation, without a launch value."""
    make: Make = request.param
    return make(clock)


async def given(launches: LaunchValues, principal: Principal = LOCAL, app: str = "cart", chosen: bool = False) -> str:
    """Issue a launch value."""
    return (await launches.give(principal, app, chosen=chosen)).launch.reveal()


async def known(launches: LaunchValues, value: str, principal: Principal = LOCAL) -> bool:
    """Return whether a page of `principal` can attach with this value."""
    try:
        await launches.find(value, principal, APPS)
    except Refusal as refusal:
        return refusal.reason is not Reason.VIEW_UNPROVEN
    return True


async def test_a_value_leads_to_its_view_for_a_day(launches: LaunchValues, clock: Clock) -> None:
    """Again and again, also after a page has attached; then it has expired."""
    opened = await launches.give(LOCAL, "cart", chosen=True)
    for _ in range(2):
        launch = await launches.find(opened.launch.reveal(), LOCAL, APPS)
        assert (launch.view, launch.app, launch.chosen) == (opened.view, "cart", True)
        await launches.attached(opened.launch.reveal())
    clock.now += LIFE
    assert await known(launches, opened.launch.reveal())
    clock.now += 1
    assert not await known(launches, opened.launch.reveal())


async def test_a_value_is_good_for_its_principal_and_app_alone(launches: LaunchValues) -> None:
    """For others it is as unknown as an invented one."""
    value = await given(launches)
    assert not await known(launches, value, EVE)
    assert not await known(launches, value + "x")
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
        assert await launches.awaited(first.view, principal, app) is expected
    await launches.attached(first.launch.reveal())
    assert [await launches.awaited(one.view, LOCAL, None) for one in (first, second)] == [False, True]
    clock.now += LIFE + 1
    assert not await launches.awaited(second.view, LOCAL, None)
    assert not await launches.awaited("unknown", LOCAL, None)


async def test_what_a_model_chose_is_known_until_the_page_has_attached(launches: LaunchValues) -> None:
    """For this principal and app."""
    await given(launches)
    assert not await launches.chosen(LOCAL, "cart")
    value = await given(launches, chosen=True)
    assert await launches.chosen(LOCAL, "cart")
    assert not await launches.chosen(LOCAL, "notes")
    assert not await launches.chosen(EVE, "cart")
    await launches.attached(value)
    assert not await launches.chosen(LOCAL, "cart")


async def test_a_page_attaches_with_nothing_that_has_ended(launches: LaunchValues) -> None:
    """It is ignored."""
    await launches.attached("unknown")
    assert not await known(launches, "unknown")


@pytest.mark.bound("unused launch values")
async def test_values_of_one_principal_are_bounded(launches: LaunchValues, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is evicted; another principal's stays."""
    monkeypatch.setattr(memory, "EACH", 2)
    eves = await given(launches, EVE)
    mine = [await given(launches) for _ in range(3)]
    assert [await known(launches, value) for value in mine] == [False, True, True]
    assert await known(launches, eves, EVE)
