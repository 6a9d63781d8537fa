"""Atomic work is not cut off by any cancellation."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from gateway.stores.sql import whole

DONE = "done"


async def work(seen: list[str]) -> str:
    """Take some turns of the event loop."""
    for _ in range(5):
        await asyncio.sleep(0)
    seen.append(DONE)
    return DONE


async def test_who_is_cancelled_again_and_again_ends_after_the_work() -> None:
    seen: list[str] = []
    task = asyncio.create_task(whole(work(seen)))
    for _ in range(4):
        await asyncio.sleep(0)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == [DONE]


async def test_a_scope_that_ends_waits_for_the_work() -> None:
    """The scope cancels in each turn until the task ends."""
    seen: list[str] = []
    with anyio.CancelScope() as scope:
        asyncio.get_running_loop().call_soon(scope.cancel)
        await whole(work(seen))
    assert (scope.cancelled_caught, seen) == (True, [DONE])


@pytest.mark.parametrize("error", [OSError, ValueError])
async def test_the_error_of_the_work_is_raised(error: type[Exception]) -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise error

    with pytest.raises(error):
        await whole(fail())


async def test_who_was_cancelled_hears_of_that_and_not_of_the_error() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError

    task = asyncio.create_task(whole(fail()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_result_is_given() -> None:
    assert await whole(work([])) == DONE
