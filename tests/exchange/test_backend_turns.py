"""A caller with very many requests to one backend delays only its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from gateway.errors import Reason, Refusal
from gateway.exchange.backend_protection import EACH, Turns
from gateway.model import LOCAL, Request
from tests.exchange.house import PAGE, Shop, building, reason

ITEMS = Request("GET", "/api/items")


async def until(done: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    async with asyncio.timeout(60):
        while not done():
            await asyncio.sleep(0.005)


async def test_one_caller_leaves_room_for_others(tmp_path: Path) -> None:
    """Its further requests wait in order; all are answered."""
    hold = asyncio.Event()
    shop = Shop(hold=hold)
    other = structs.replace(PAGE, principal=replace(LOCAL, subject="bob"))
    async with building(tmp_path, shop=shop) as house, asyncio.TaskGroup() as tasks:
        mine = [tasks.create_task(house.exchange.run(ITEMS, PAGE)) for _ in range(3 * EACH)]
        await until(lambda: len(shop.sent) == EACH)
        theirs = tasks.create_task(house.exchange.run(ITEMS, other))
        await until(lambda: len(shop.sent) == EACH + 1)
        mine[-1].cancel()
        hold.set()
        assert (await theirs).status == 200
        await asyncio.wait(mine)
        assert [task.result().status for task in mine[:-1]] == [200] * (3 * EACH - 1)
        assert (await house.exchange.run(ITEMS, PAGE)).status == 200


@pytest.mark.bound("concurrent requests to a backend")
async def test_who_waits_longer_than_the_route_says_is_told(tmp_path: Path) -> None:
    """It gets the timeout of a slow backend; nothing was sent."""
    hold = asyncio.Event()
    shop = Shop(hold=hold)
    async with building(tmp_path, shop=shop, timeout=0.2) as house, asyncio.TaskGroup() as tasks:
        for _ in range(EACH):
            tasks.create_task(house.exchange.run(ITEMS, PAGE))
        await until(lambda: len(shop.sent) == EACH)
        late = await house.exchange.run(ITEMS, PAGE)
        assert (late.status, reason(late), len(shop.sent)) == (504, Reason.BACKEND_TIMEOUT, EACH)
        hold.set()


async def test_a_process_whose_lease_has_ended_sends_nothing_that_waited(tmp_path: Path) -> None:
    """Whether it may send is checked once more when its turn has come."""

    def lapsed() -> None:
        raise Refusal(Reason.STATE_UNAVAILABLE, "no lease")

    hold = asyncio.Event()
    shop = Shop(hold=hold)
    async with building(tmp_path, shop=shop) as house, asyncio.TaskGroup() as tasks:
        for _ in range(EACH):
            tasks.create_task(house.exchange.run(ITEMS, PAGE))
        await until(lambda: len(shop.sent) == EACH)
        late = tasks.create_task(house.exchange.run(ITEMS, PAGE))
        await until(lambda: bool(house.exchange._sender._turns._waiting))
        house.exchange._sender._check = lapsed
        hold.set()
        assert (reason(await late), len(shop.sent)) == (Reason.STATE_UNAVAILABLE, EACH)


@pytest.mark.parametrize("turns_of_the_loop", range(3))
async def test_a_turn_that_comes_with_a_cancellation_is_not_lost(turns_of_the_loop: int) -> None:
    """Whichever of the two comes first."""
    turns, key = Turns(1), ("p", "app", "shop")
    await turns.enter(key, 1.0)
    waiting = asyncio.create_task(turns.enter(key, 1.0))
    await asyncio.sleep(0)
    turns.leave(key)
    for _ in range(turns_of_the_loop):
        await asyncio.sleep(0)
    if not waiting.done():
        waiting.cancel()
        await asyncio.wait([waiting])
    if not waiting.cancelled():
        turns.leave(key)
    await asyncio.wait_for(turns.enter(key, 1.0), 1.0)
    with pytest.raises(Refusal):
        await turns.enter(key, 0.01)
