"""Fair scheduling of long reads over the turns of an event loop."""

from __future__ import annotations

import asyncio
import math
from functools import partial

import pytest

from gateway.eventloop import fair_share as in_turns
from gateway.eventloop.fair_share import MOMENT, REST, RoundRobin, TimeSlices
from tests.clock import Clock


async def test_one_goes_on_in_each_turn() -> None:
    """Round robin among any number; one that raises does not keep the others from their turns."""
    waiting, went = RoundRobin(), list[str]()
    failed = list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda _, said: failed.append(str(said["exception"])))

    def go_on(name: str, left: int) -> None:
        went.append(name)
        if left:
            waiting.add(partial(go_on, name, left - 1))
        if name == "b":
            raise ValueError(name)

    for name in "abc":
        waiting.add(partial(go_on, name, 2))
    before = 0
    while len(went) < 9:
        await asyncio.sleep(0)
        assert len(went) <= before + 1
        before = len(went)
    assert went == [*"abcabcabc"]
    assert failed == ["b"] * 3


async def test_all_of_them_have_a_small_part_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both callbacks and readers that report their time: a flood of either leaves most slices to other tasks.

    Time passes only by what works, so the slices of each are counted.
    """
    clock, at_work, others = Clock(), 0, 0
    monkeypatch.setattr(in_turns, "perf_counter", clock)
    monkeypatch.setattr(asyncio.get_running_loop(), "time", clock)
    in_turn, ends = RoundRobin(), clock() + 1000 * MOMENT

    def work() -> None:
        nonlocal at_work
        clock.now += MOMENT
        at_work += 1

    def called() -> None:
        work()
        if clock() < ends:
            in_turn.add(called)

    async def read() -> None:
        moments = TimeSlices(in_turn)
        while clock() < ends:
            began = clock()
            work()
            if moments.count_work(clock() - began):
                await moments.turn()

    async def all_else() -> None:
        nonlocal others
        while True:
            clock.now += MOMENT
            others += 1
            await asyncio.sleep(0)

    in_turn.add(called)
    other = asyncio.create_task(all_else())
    await asyncio.gather(read(), read())
    other.cancel()
    assert 0.8 < at_work / (at_work + others) * (1 + REST) < 1.1


async def test_nobody_rests_where_nothing_else_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it worked, and however long the pause would be."""
    monkeypatch.setattr(in_turns, "IDLE", math.inf)
    monkeypatch.setattr(in_turns, "REST", 1e6)
    moments = TimeSlices(RoundRobin())
    async with asyncio.timeout(60):
        for _ in range(10):
            await moments.spend(1.0)


async def test_who_has_little_to_do_waits_for_nobody() -> None:
    """Less than a time slice costs no wait."""
    assert not TimeSlices(RoundRobin()).count_work(MOMENT / 2)
